"""A message's `content` while it streams: one text, or typed parts (Mistral's thinking and text)."""

from __future__ import annotations

from typing import Any

from tailrace.messages import JsonObject
from tailrace.wire.chat.reasoning import text_of_thinking


class Content:
    """Text is joined once, in `rebuilt`. A string after parts continues as a text part."""

    def __init__(self) -> None:
        self.seen = False  # a string or parts came: the body has "" rather than null
        self._text: list[str] = []
        self._typed = False  # parts came: the body is a list
        self._parts: list[_Part] = []

    def text_pieces(self) -> list[str]:
        """Where the next piece of plain text belongs."""
        return self._last_part("text").pieces if self._typed else self._text

    def add_text(self, text: str) -> None:
        self.seen = True
        if text:
            self.text_pieces().append(text)

    def add_parts(self, items: list[Any]) -> tuple[str, str]:
        """Takes in typed parts; returns the text and the thoughts that are new."""
        self.seen = True
        if not self._typed:
            self._typed = True
            if self._text:
                self._begin("text").pieces.extend(self._text)
        texts: list[str] = []
        thoughts: list[str] = []
        for item in items:
            if isinstance(item, str):
                self._last_part("text").pieces.append(item)
                texts.append(item)
            elif isinstance(item, dict):
                text, thought = self._add_part(item)
                texts.append(text)
                thoughts.append(thought)
        return "".join(texts), "".join(thoughts)

    def rebuilt(self) -> str | list[JsonObject] | None:
        if self._typed:
            return [part.rebuilt() for part in self._parts]
        return "".join(self._text) if self.seen else None

    def _add_part(self, item: JsonObject) -> tuple[str, str]:
        kind = item.get("type")
        text = item.get("text") if kind == "text" else text_of_thinking(item)
        if kind not in ("text", "thinking") or not isinstance(text, str):
            self._begin("").fields = item  # a part of an unknown kind is complete
            return "", ""
        part = self._last_part(kind)
        part.pieces.append(text)
        part.fields |= {field: value for field, value in item.items() if field not in ("type", "text", "thinking")}
        return (text, "") if kind == "text" else ("", text)

    def _last_part(self, kind: str) -> _Part:
        """The part that a piece of this kind continues: the last one, or a new one."""
        return self._parts[-1] if self._parts and self._parts[-1].kind == kind else self._begin(kind)

    def _begin(self, kind: str) -> _Part:
        part = _Part(kind)
        self._parts.append(part)
        return part


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
