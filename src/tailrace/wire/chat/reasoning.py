"""Where servers of this dialect put reasoning. The same text may be in several fields of one message (C41): the body
keeps all of them, one is the text."""

from __future__ import annotations

from tailrace.messages import JsonObject
from tailrace.wire.peer_json import objects_of, text_of
from tailrace.wire.reasoning_seal import TEXT_FIELDS
from tailrace.wire.templates import joined

DETAILS = "reasoning_details"
_GROWING = ("text", "summary")  # the fields of a detail that arrive in pieces


class ReasoningState:
    """The reasoning fields of one message under way."""

    def __init__(self) -> None:
        self.pieces: dict[str, list[str]] = {}
        self._details: list[GrowingObject] = []
        self._open: dict[tuple[object, object], GrowingObject] = {}  # by type and index

    def add(self, delta: JsonObject) -> str:
        """Adds the fields of a delta; returns the new text once, also where several fields have it."""
        new = ""
        for field in TEXT_FIELDS:
            value = delta.get(field)
            if isinstance(value, str):
                self.pieces.setdefault(field, []).append(value)
                new = new or value
        for item in objects_of(delta.get(DETAILS)):
            self._add_detail(item)
        return new or _text_of_details(delta)

    @property
    def seen(self) -> bool:
        """There was any."""
        return bool(self.pieces or self._details)

    def rebuilt(self) -> JsonObject:
        """The message's fields, whole."""
        fields: JsonObject = {field: joined(pieces) for field, pieces in self.pieces.items()}
        if self._details:
            fields[DETAILS] = [detail.rebuilt() for detail in self._details]
        return fields

    def _add_detail(self, item: JsonObject) -> None:
        index = item.get("index")
        key = (str(item.get("type")), index if isinstance(index, int) else None)
        detail = self._open.get(key)
        if detail is None or not detail.goes_on_with(item):
            detail = self._open[key] = GrowingObject(*_GROWING)
            self._details.append(detail)
        detail.add(item)


class GrowingObject:
    """An object under way: the texts of some fields are joined, all else is assigned."""

    __slots__ = ("_fields", "_growing", "_pieces")

    def __init__(self, *growing: str) -> None:
        self._growing = growing
        self._fields: JsonObject = {}
        self._pieces: dict[str, list[str]] = {}

    def goes_on_with(self, item: JsonObject) -> bool:
        """Another id, or other encrypted data, is another block although type and index are the same."""
        return all(
            not item.get(field) or not self._fields.get(field) or item[field] == self._fields[field]
            for field in ("id", "data")
        )

    def add(self, item: JsonObject) -> None:
        for field, value in item.items():
            if field in self._growing and isinstance(value, str):
                self._pieces.setdefault(field, []).append(value)
                self._fields.setdefault(field, "")  # holds its place among the fields
            elif value or field not in self._fields:
                self._fields[field] = value

    def rebuilt(self) -> JsonObject:
        return self._fields | {field: joined(pieces) for field, pieces in self._pieces.items()}


def _text_of_details(message: JsonObject) -> str:
    """The readable part of `reasoning_details`."""
    return "".join(text_of(item.get(field)) for item in objects_of(message.get(DETAILS)) for field in _GROWING)


def text_of_thinking(part: JsonObject) -> str:
    """The text of a content part of type `thinking` (Mistral), whose thoughts are a list of parts or plain text."""
    thinking = part.get("thinking")
    if isinstance(thinking, str):
        return thinking
    return "".join(text_of(inner.get("text")) for inner in objects_of(thinking))


def text_of_message(message: JsonObject) -> str:
    """The reasoning text: the longest of the fields. Content parts are not considered."""
    return max(*(text_of(message.get(field)) for field in TEXT_FIELDS), _text_of_details(message), key=len)
