"""What goes wrong: in the provider, at the viewer, or with the product's servers."""

from __future__ import annotations

import re
from typing import NamedTuple


class Fault(NamedTuple):
    """`provider` is what happens at a random word of the first attempt; `viewer` and `server` what is done when a
    viewer has seen a random word. `needs` is what a product must have for the question to make sense."""

    name: str
    about: str
    provider: str = "none"
    viewer: str = ""
    server: str = ""
    needs: tuple[str, ...] = ()
    words: int = 40
    pace_s: float = 0.02
    padding: int = 0
    tool: bool = False
    trials: int = 10

    @property
    def slug(self) -> str:
        """Part of the names of its runs."""
        return re.sub(r"\W+", "_", self.name)


FAULTS = (
    Fault("healthy", "nothing goes wrong"),
    Fault("cut", "the provider's connection breaks", provider="cut"),
    Fault("stall", "the provider says nothing more", provider="stall", needs=("limits",)),
    Fault("malformed event", "one event of the stream is half a JSON object", provider="malformed"),
    Fault("empty answer", "the model ends in good order and said nothing", provider="empty", needs=("mends",)),
    Fault(
        "empty tool call",
        "the model says that it called a tool, and did not",
        provider="no-tool-call",
        needs=("mends",),
    ),
    Fault("429 in mid-stream", "the stream has a rate-limit error and ends", provider="429"),
    Fault("provider gone", "every connection breaks, new ones are refused for 10 s", provider="gone"),
    Fault(
        "cut in a tool call", "the connection breaks within its arguments", "cut-in-tool", needs=("tools",), tool=True
    ),
    Fault("viewer reconnects", "a viewer goes and comes back", viewer="drop", needs=("resume",)),
    Fault("second viewer", "another viewer joins", viewer="second", needs=("resume",)),
    Fault(
        "viewer too slow",
        "a viewer takes nothing for 5 s of a long answer",
        viewer="slow",
        words=3000,
        pace_s=0.0,
        padding=200,
        trials=5,
    ),
    Fault(
        "stop, resumed stream",
        "a viewer comes back, then stops the run",
        viewer="stop",
        needs=("resume", "stop"),
        words=300,
    ),
    Fault(
        "kill -9", "the server is killed and started again", server="kill", needs=("durable",), words=60, pace_s=0.03
    ),
    Fault(
        "kill -9 after a tool",
        "the same in the answer after a tool's result",
        server="kill",
        needs=("durable", "tools"),
        tool=True,
        words=60,
        pace_s=0.03,
    ),
    Fault(
        "kill -9 in a tool",
        "the same while tools run that have had their effect",
        server="kill-in-tool",
        needs=("durable", "tools"),
        tool=True,
    ),
    Fault(
        "one of two killed",
        "one server is killed, viewers go to another",
        server="kill-one",
        needs=("resume", "durable", "servers"),
        words=60,
        pace_s=0.03,
    ),
    Fault(
        "one of two hangs",
        "one server stops for 15 s, then goes on",
        server="hang-one",
        needs=("resume", "durable", "servers"),
        words=60,
        pace_s=0.03,
    ),
    Fault("disk full", "the disk is full for 4 s", server="full", needs=("store",), words=100, pace_s=0.03),
)
