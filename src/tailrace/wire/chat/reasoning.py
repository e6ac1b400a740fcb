"""Where servers of this dialect put reasoning, while it streams and in the complete message.

The same text may be in several fields of one message (C41): the body keeps all of them, one is the text.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.messages import JsonObject

# In the order of trust: a server that fills several fills them with the same text.
TEXT_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_text")
DETAILS = "reasoning_details"
_GROWING = ("text", "summary")  # the fields of a detail that arrive in pieces


class ReasoningState:
    """The reasoning fields of one message under way."""

    def __init__(self) -> None:
        self.pieces: dict[str, list[str]] = {}
        self._details: list[_Detail] = []
        self._open: dict[tuple[object, object], _Detail] = {}  # by type and index

    def add(self, delta: JsonObject) -> str:
        """Adds the fields of a delta; returns the new text once, also where several fields have it."""
        new = ""
        for field in TEXT_FIELDS:
            value = delta.get(field)
            if isinstance(value, str):
                self.pieces.setdefault(field, []).append(value)
                new = new or value
        details = delta.get(DETAILS)
        if isinstance(details, list):
            for item in details:
                if isinstance(item, dict):
                    self._add_detail(item)
            new = new or text_of_details(details)
        return new

    def rebuilt(self) -> JsonObject:
        """The message's fields, whole."""
        fields: JsonObject = {field: "".join(pieces) for field, pieces in self.pieces.items()}
        if self._details:
            fields[DETAILS] = [detail.rebuilt() for detail in self._details]
        return fields

    def _add_detail(self, item: JsonObject) -> None:
        index = item.get("index")
        key = (str(item.get("type")), index if isinstance(index, int) else None)
        detail = self._open.get(key)
        if detail is None or not detail.goes_on_with(item):
            detail = self._open[key] = _Detail()
            self._details.append(detail)
        detail.add(item)


class _Detail:
    """One entry of OpenRouter's `reasoning_details` under way: text and summary grow, all else is assigned."""

    def __init__(self) -> None:
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
            if field in _GROWING and isinstance(value, str):
                self._pieces.setdefault(field, []).append(value)
                self._fields.setdefault(field, "")  # holds its place among the fields
            elif value or field not in self._fields:
                self._fields[field] = value

    def rebuilt(self) -> JsonObject:
        return self._fields | {field: "".join(pieces) for field, pieces in self._pieces.items()}


def text_of_details(details: Iterable[object]) -> str:
    """The readable part of `reasoning_details`."""
    return "".join(
        value
        for item in details
        if isinstance(item, dict)
        for field in _GROWING
        if isinstance(value := item.get(field), str)
    )


def text_of_thinking(part: JsonObject) -> str:
    """The text of a content part of type `thinking` (Mistral), whose thoughts are a list of parts or plain text."""
    thinking = part.get("thinking")
    if isinstance(thinking, str):
        return thinking
    if not isinstance(thinking, list):
        return ""
    return "".join(text for inner in thinking if isinstance(inner, dict) and isinstance(text := inner.get("text"), str))


def text_of_message(message: JsonObject) -> str:
    """The reasoning text: the longest of the fields. Content parts are not considered."""
    candidates = [value for field in TEXT_FIELDS if isinstance(value := message.get(field), str)]
    details = message.get(DETAILS)
    if isinstance(details, list):
        candidates.append(text_of_details(details))
    return max(candidates, key=len, default="")
