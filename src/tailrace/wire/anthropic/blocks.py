"""One content block of a message while it grows, and the deltas it grows by.

Owns what a block becomes in the non-streaming body. Knows no framing and no order of events.
"""

from __future__ import annotations

from tailrace.errors import PeerError
from tailrace.messages import JsonObject
from tailrace.wire.peer_json import decode_object, text_of

TEXT, THINKING, ARGUMENTS = "text_delta", "thinking_delta", "input_json_delta"  # the deltas that make a block grow
PIECES = frozenset({TEXT, THINKING, ARGUMENTS})
# What a block of each type grows by: the delta, its field, and the block's field that it becomes.
_GROWTH = {
    "text": (TEXT, "text", "text"),
    "thinking": (THINKING, "thinking", "thinking"),
    "tool_use": (ARGUMENTS, "partial_json", "input"),  # and server_tool_use, mcp_tool_use, …
}
_WHOLE = ("", "", "")  # a block of any other type is complete in its start
# The type of a block whose start never came, by the delta that came instead.
_IMPLIED_TYPE = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
    "compaction_delta": "compaction",
}


def implied_start(delta_type: str) -> JsonObject:
    """The start of a block whose first event is a delta of this type."""
    return {"type": _IMPLIED_TYPE.get(delta_type, "unknown")}


class Block:
    """Texts are collected in pieces and joined once, when the body is asked for; everything else is merged into
    `start` as it comes. Linear in what comes."""

    __slots__ = ("call", "closed", "field", "grown", "grows_by", "index", "pieces", "place", "seen", "source", "start")

    def __init__(self, index: int, start: JsonObject, call: int | None) -> None:
        self.index = index
        self.place = index  # its index in the events that a client is sent
        self.start = start
        self.call = call  # position among the answer's calls; None for a block that is not a call of ours
        self.closed = False
        self.seen = ""  # the text so far; kept only for a provider that repeats it (A17)
        kind = text_of(start.get("type"))
        self.grows_by, self.source, self.field = _GROWTH.get("tool_use" if kind.endswith("_tool_use") else kind, _WHOLE)
        self.pieces: list[str] = []  # of `field`
        self.grown: dict[str, list[str]] = {self.field: self.pieces} if self.field else {}

    @property
    def is_native(self) -> bool:
        """A block of a kind that the other dialects do not have."""
        return self.call is None and self.grows_by not in (TEXT, THINKING)

    def unseen(self, text: str) -> str:
        """The new end of a `text` that repeats everything before it (A17)."""
        seen = self.seen or text_of(self.start.get(self.field))
        self.seen = text
        return text.removeprefix(seen)

    def merge(self, delta: JsonObject) -> None:
        """Adds the fields of a delta beside the block's next piece. All fields of an unknown delta are kept: text and
        lists grow, the rest is replaced."""
        kind = text_of(delta.get("type"))
        if kind == "citations_delta":
            if not isinstance(self.start.get("citations"), list):
                self.start["citations"] = []
            self.start["citations"].append(delta.get("citation"))
        elif not self.grows_by or kind not in PIECES:
            whole = kind in {"signature_delta", "compaction_delta"}  # each comes once and complete
            for name, value in delta.items():
                if name not in {"type", self.source} and value is not None:
                    self._merge(name, value, whole=whole)

    def _merge(self, name: str, value: object, *, whole: bool) -> None:
        match self.start.get(name), value:
            case str(), str(text) if not whole:
                self.grown.setdefault(name, []).append(text)
            case list(begun), list(more) if not whole:
                begun.extend(more)
            case _:
                self.start[name] = value

    def rebuilt(self) -> JsonObject:
        """The block as the non-streaming answer would have it."""
        body = {name: list(value) if isinstance(value, list) else value for name, value in self.start.items()}
        for name, pieces in self.grown.items():
            body[name] = (
                self._input() if name == self.field == "input" else "".join([text_of(self.start.get(name)), *pieces])
            )
        return body

    def _input(self) -> object:
        """An object where the model wrote a complete one; else the text that it wrote, which is no valid input for any
        tool (B34). An empty input is `{}` in a closed block (B32) and the text `""` in an open one."""
        written = "".join(self.pieces)
        if written:
            try:
                return decode_object(written.encode())
            except PeerError:
                return written
        begun = self.start.get("input")
        return begun or ({} if self.closed else "")
