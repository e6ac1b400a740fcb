"""The models of a soak: three dialects, every answer known beforehand, and one request in four goes wrong.

A broken answer is asked for again, and goes on where it broke off: what a client has at the end is the text or an
error, and nothing between.
"""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from tailrace.testing.provider import FaultyProvider, Scenario, call, reply, scenario
from tailrace.testing.provider.server import rest_of
from tailrace.testing.scripted.request_reader import ScriptedRequest

TEXT: Final = " ".join(f"word{number}" for number in range(120))
NOTE: Final = "the mill is closed on Mondays\n"
ANSWER: Final = "The note says that the mill is closed on Mondays."
TURNS: Final = {"worker": [reply("Let me read it.", call("read_file", {"path": "note.txt"})), reply(ANSWER)]}
FAULTS: Final = (
    "cut@60%",
    "reset@40%",
    "stall@50%",
    "end@70%",
    "drop",
    "silence",
    "garbage",
    "html",
    "status-429-after-0.2",
    "status-500",
    "status-503",
    "status-529",
)
HARMLESS: Final = ("crlf", "gzip", "multi-data", "comments", "drip@64", "glued")
FAULTY_SHARE: Final = 0.25
MAX_KEPT_REQUESTS: Final = 1000


class SoakProvider(FaultyProvider):
    """Model `text` says `TEXT`, `worker` reads a note and says `ANSWER`. The faults follow from the seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(turns=TURNS)
        self._rng = random.Random(seed)
        self.asked = 0
        self.faults: dict[str, int] = {}

    def choose(self, request: ScriptedRequest) -> Scenario:
        self.asked += 1
        del self.requests[:-MAX_KEPT_REQUESTS]
        said = reply(rest_of(TEXT, request.body)) if request.model == "text" else super().choose(request).reply
        share = self._rng.random()
        if share < FAULTY_SHARE:
            name = self._rng.choice(FAULTS)
            self.faults[name] = self.faults.get(name, 0) + 1
            return replace(scenario(name), reply=said)
        chosen = scenario(self._rng.choice(HARMLESS)) if share < 2 * FAULTY_SHARE else Scenario()
        return replace(chosen, reply=said, pace_s=self._rng.choice((0.0, 0.0, 0.005)))
