"""What of a request shows in the answer to it, and the ids that answer bears.

Ids and times depend on the request alone, not on whether a stream was asked for nor on when: so the two kinds of
answer to one request can be compared byte by byte.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from tailrace.messages import Dialect, JsonObject, Value

CREATED = 1_760_000_000  # seconds since the epoch; fixed, so that a body is the same on every day
_HOW = ("stream", "stream_options")  # how the answer travels, not what it says


class Sse(Value):
    """One server-sent event before it is framed. `data` is JSON, or text that is sent as it stands."""

    data: JsonObject | str
    event: str = ""


class ScriptedRequest(Value):
    """A request as the answer sees it."""

    body: JsonObject
    digest: str
    dialect: Dialect = "chat"

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def streamed(self) -> bool:
        return self.body.get("stream") is True

    @property
    def wants_usage(self) -> bool:
        options = self.body.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    @property
    def choices(self) -> int:
        n = self.body.get("n")
        return n if isinstance(n, int) and 0 < n <= 16 else 1

    def id(self, prefix: str, *path: int) -> str:
        """An id of this answer or of the part at `path` in it."""
        return prefix + self.digest[:24] + "".join(f"{step:02d}" for step in path)

    def padding(self, number: int) -> str:
        """What hides the length of a delta on OpenAI's wire: noise to be ignored."""
        return self.digest[: (number * 7) % 16 + 1]


def scripted_request(dialect: Dialect, body: JsonObject) -> ScriptedRequest:
    said = {key: value for key, value in body.items() if key not in _HOW}
    seed = msgspec.json.encode([dialect, said], order="deterministic")
    return ScriptedRequest(body, hashlib.sha256(seed).hexdigest(), dialect)


def logprob(piece: str) -> dict[str, Any]:
    """The log probability of a piece: invented, and the same each time."""
    encoded = piece.encode(errors="surrogatepass")
    return {"token": piece, "logprob": -len(encoded) / 64, "bytes": list(encoded), "top_logprobs": []}
