"""A message's `content` while it streams: one text, or typed parts (Mistral's thinking and text)."""

from __future__ import annotations

from typing import Any

from tailrace.messages import JsonObject
from tailrace.wire.chat.reasoning import text_of_thinking


class Content:
    """Text is joined once, in `rebuilt`. A string after parts continues as a text part."""

    __slots__ = ("_parts", "_text", "seen")

    def __init__(self) -> None:
        self.seen = False  # a string or parts came: the body has "" rather than null
        self._text: list[str] = []
        self._parts: list[_Part] | None = None  # once parts came: the body is a list

    def text_pieces(self) -> list[str]:
        """Where the next piece of plain text belongs."""
        return self._text if self._parts is None else _last_part(self._parts, "text").pieces

    def add_text(self, text: str) -> None:
        self.seen = True
        if text:
            self.text_pieces().append(text)

    def add_parts(self, items: list[Any]) -> tuple[str, str]:
        """Takes in typed parts; returns the text and the thoughts that are new."""
        self.seen = True
        parts = self._parts
        if parts is None:
            parts = self._parts = []
            if self._text:
                _begun(parts, "text").pieces.extend(self._text)
        texts: list[str] = []
        thoughts: list[str] = []
        for item in items:
            if isinstance(item, str):
                _last_part(parts, "text").pieces.append(item)
                texts.append(item)
            elif isinstance(item, dict):
                text, thought = _add_part(parts, item)
                texts.append(text)
                thoughts.append(thought)
        return "".join(texts), "".join(thoughts)

    def rebuilt(self) -> str | list[JsonObject] | None:
        if self._parts is not None:
            return [part.rebuilt() for part in self._parts]
        return "".join(self._text) if self.seen else None


class _Part:
    __slots__ = ("fields", "kind", "pieces")

    def __init__(self, kind: str) -> None:
        self.kind = kind  # "text" and "thinking" grow; "" is complete as it came
        self.pieces: list[str] = []
        self.fields: JsonObject = {}

    def rebuilt(self) -> JsonObject:
        match self.kind:
            case "text":
                return {"type": "text", "text": "".join(self.pieces)} | self.fields
            case "thinking":
                thoughts = [{"type": "text", "text": "".join(self.pieces)}]
                return {"type": "thinking", "thinking": thoughts} | self.fields
            case _:
                return self.fields


def _add_part(parts: list[_Part], item: JsonObject) -> tuple[str, str]:
    """Takes in one part; returns its text and its thoughts."""
    kind = item.get("type")
    text = item.get("text") if kind == "text" else text_of_thinking(item)
    if kind not in ("text", "thinking") or not isinstance(text, str):
        _begun(parts, "").fields = item  # a part of an unknown kind is complete
        return "", ""
    part = _last_part(parts, kind)
    part.pieces.append(text)
    part.fields |= {field: value for field, value in item.items() if field not in ("type", "text", "thinking")}
    return (text, "") if kind == "text" else ("", text)


def _last_part(parts: list[_Part], kind: str) -> _Part:
    """The part that a piece of this kind continues: the last one, or a new one."""
    return parts[-1] if parts and parts[-1].kind == kind else _begun(parts, kind)


def _begun(parts: list[_Part], kind: str) -> _Part:
    part = _Part(kind)
    parts.append(part)
    return part
