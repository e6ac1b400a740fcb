"""One content block of a message while it grows, and the typed pieces it grows by.

Owns what a block becomes in the non-streaming body. Knows no framing and no order of events.
"""

from __future__ import annotations

import operator
from typing import TypeAlias

import msgspec

from tailrace.errors import PeerError
from tailrace.messages import JsonObject
from tailrace.wire._json import decode_object


class TextPiece(msgspec.Struct, tag="text_delta", gc=False):
    text: str


class ThinkingPiece(msgspec.Struct, tag="thinking_delta", gc=False):
    text: str = msgspec.field(name="thinking")


class JsonPiece(msgspec.Struct, tag="input_json_delta", gc=False):
    text: str = msgspec.field(name="partial_json")


Piece: TypeAlias = TextPiece | ThinkingPiece | JsonPiece

# What a block of each type grows by, and in which field. A block of any other type arrives whole in its start.
_GROWTH: dict[str, tuple[type[Piece], str]] = {
    "text": (TextPiece, "text"),
    "thinking": (ThinkingPiece, "thinking"),
    "tool_use": (JsonPiece, "input"),
    "server_tool_use": (JsonPiece, "input"),
    "mcp_tool_use": (JsonPiece, "input"),
}
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
    """The start that a delta without one asks for."""
    return {"type": _IMPLIED_TYPE.get(delta_type, "unknown")}


class Block:
    """`pieces` are joined once, when the body is asked for; everything else is merged into `start` as it comes."""

    __slots__ = ("call", "closed", "field", "grows_by", "index", "pieces", "seen", "start")

    def __init__(self, index: int, start: JsonObject, call: int | None) -> None:
        self.index = index
        self.start = start
        self.call = call  # position among the answer's calls; None for a block that is not a call of ours
        self.closed = False
        self.pieces: list[str] = []
        self.seen = ""  # the whole text so far; kept only for a provider that repeats it (A17)
        self.grows_by: type[Piece] | None
        self.grows_by, self.field = _GROWTH.get(_type_of(start), (None, ""))

    @property
    def type(self) -> str:
        return _type_of(self.start)

    def unseen(self, text: str) -> str:
        """What `text`, which repeats everything before it, adds to that (A17)."""
        seen = self.seen or self._begun()
        self.seen = text
        return text.removeprefix(seen)

    def merge(self, delta: JsonObject) -> None:
        """A delta that is not the block's usual piece. Unknown ones are kept: text grows, lists grow, the rest is
        replaced."""
        kind = delta.get("type")
        if kind == "citations_delta":
            self.start["citations"] = [*(self.start.get("citations") or ()), delta.get("citation")]
            return
        whole = kind in {"signature_delta", "compaction_delta"}  # each comes once, in one piece
        for name, value in delta.items():
            if name != "type" and value is not None:
                self.start[name] = value if whole else _grown(self.start.get(name), value)

    def body(self) -> JsonObject:
        """The block as the non-streaming answer would have it."""
        if self.field == "input":
            return {**self.start, "input": self._input()}
        if self.field:
            return {**self.start, self.field: "".join([self._begun(), *self.pieces])}
        return dict(self.start)

    def _begun(self) -> str:
        begun = self.start.get(self.field)
        return begun if isinstance(begun, str) else ""

    def _input(self) -> object:
        """An object exactly where the model wrote a whole one; else the text it wrote, as text, which is no valid
        input to anybody (B34). Nothing written in a closed block is `{}` (B32); in an open one it is the text `""`."""
        written = "".join(self.pieces)
        if written:
            try:
                return decode_object(written.encode())
            except PeerError:
                return written
        begun = self.start.get("input")
        return begun or ({} if self.closed else "")


def _type_of(start: JsonObject) -> str:
    kind = start.get("type")
    return kind if isinstance(kind, str) else "unknown"


def _grown(before: object, value: object) -> object:
    match before, value:
        case (str(), str()) | (list(), list()):
            return operator.add(before, value)
        case _:
            return value
