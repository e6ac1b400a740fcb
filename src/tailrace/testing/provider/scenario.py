"""A scenario: what the provider says to one request, and how it misbehaves while saying it. Values only."""

from __future__ import annotations

from typing import Literal

from tailrace.messages import Dialect, Value
from tailrace.testing.provider.edits import EDITS
from tailrace.testing.provider.replies import REPLIES
from tailrace.testing.scripted.reply import Reply

BreakKind = Literal["cut", "reset", "end", "stall", "half-close", "pings", "comments", "endless-line"]
Instead = Literal["html", "json", "sse", "no-streaming", "garbage", "bad-request", "too-long", "drop", "silence"]
Framing = Literal[
    "crlf", "cr", "bom", "no-space", "multi-data", "comments", "glued", "no-last-blank", "gzip", "content-length"
]


class UnknownScenario(ValueError):
    """There is no such scenario; `str()` of it says what would do."""


class Offset(Value):
    """A place in the response body: so many bytes, or so many per cent of it."""

    amount: float
    per_cent: bool = False

    def within(self, size: int) -> int:
        return min(size, int(size * self.amount / 100) if self.per_cent else int(self.amount))


class Break(Value):
    """What happens to the delivery, and at which byte of the body; without one, after the first event."""

    kind: BreakKind
    at: Offset | None = None


class Status(Value):
    """An error status. `retry_after` is the header's value; `date:30` becomes the date in 30 s."""

    code: int
    retry_after: str = ""
    html: bool = False


class Scenario(Value):
    """One answer to one request."""

    name: str = "ok"
    reply: Reply = REPLIES["ok"].reply
    continues: str = ""  # instead of the reply: the rest of this text, after the part that the request repeats
    status: Status | None = None  # an error instead of the reply
    instead: Instead | None = None  # something else instead of it
    refuses: tuple[str, ...] = ()  # fields of the request, dotted: a 400 that names the first one there is
    streams_only: bool = False  # the faults hold for a stream: a request for a whole answer gets it
    edits: tuple[str, ...] = ()  # names in EDITS
    framing: tuple[Framing, ...] = ()
    broken: Break | None = None
    write_bytes: int = 0  # size of each write; 0: an event at a time
    pace_s: float = 0.0  # between writes, on the loop's clock
    headers_after_s: float = 0.0

    def check(self, dialect: Dialect) -> None:
        """Raises `UnknownScenario` where the dialect has no such thing."""
        for name in self.edits:
            if dialect not in EDITS[name].dialects:
                only = ", ".join(EDITS[name].dialects)
                raise UnknownScenario(f"scenario term '{name}' exists only in: {only}")
