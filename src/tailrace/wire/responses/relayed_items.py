"""The items that a client has received in relayed events, so that an answer can go on where its provider broke off."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.messages import EventDelta, JsonObject
from tailrace.wire.peer_json import decode_object, encode_object, object_of, objects_of, text_of

SNAPSHOTS = frozenset({"response.created", "response.queued", "response.in_progress"})
ENDINGS = frozenset({"response.completed", "response.incomplete"})
_TRACKED = frozenset(
    {
        *("response.output_item.added", "response.output_item.done"),
        *("response.content_part.added", "response.content_part.done"),
    }
)
_NUMBER = b'"sequence_number":%d'
_DIGITS = b"0123456789"


class _Piece(msgspec.Struct, gc=False):
    delta: Any = ""


_piece = msgspec.json.Decoder(_Piece).decode


class RelayedItems:
    """The items that the client has, and those that are still open."""

    def __init__(self) -> None:
        self.items: list[JsonObject] = []
        self.open: dict[int, JsonObject] = {}
        self.part: JsonObject | None = None  # the keys of the open text part, and its text so far
        self.pieces: list[str] = []

    def apply(self, delta: EventDelta) -> None:
        if delta.name == "response.output_text.delta":
            if self.part is None:
                self._open_unopened(decode_object(delta.data))
            self.pieces.append(text_of(_piece(delta.data).delta))
        if delta.name not in _TRACKED:
            return
        event = decode_object(delta.data)
        index = self._index_of(event)
        match delta.name:
            case "response.output_item.added":
                item = object_of(event.get("item"))
                if item.get("type") == "message" or "content" in item:
                    item = {**item, "content": objects_of(item.get("content"))}
                self._put(index, item)
                self.open[index] = self.items[index]
            case "response.output_item.done":
                self._put(index, object_of(event.get("item")))
                self.open.pop(index, None)
            case "response.content_part.added":
                is_text = object_of(event.get("part")).get("type") == "output_text"
                keys = ("item_id", "output_index", "content_index")
                self.part = {key: event.get(key) for key in keys} if is_text else None
                self.pieces = []
            case _:
                self.part = None
                if "content" in self.open.get(index, {}):
                    self.open[index]["content"].append(event.get("part"))

    def _index_of(self, event: JsonObject) -> int:
        index = event.get("output_index")
        return index if isinstance(index, int) and 0 <= index <= len(self.items) + 1 else len(self.items)

    def _open_unopened(self, event: JsonObject) -> None:
        """Some providers send the text of a message without opening its item and its part (N172)."""
        index = self._index_of(event)
        if index not in self.open:
            named = text_of(event.get("item_id")) or f"msg_{index}"
            item: JsonObject = {"id": named, "type": "message", "role": "assistant", "status": "in_progress"}
            self._put(index, {**item, "content": []})
            self.open[index] = self.items[index]
        self.part = {"item_id": self.open[index].get("id"), "output_index": index}
        self.part["content_index"] = event.get("content_index", 0)
        self.pieces = []

    def _put(self, index: int, item: JsonObject) -> None:
        while len(self.items) <= index:
            self.items.append({})
        self.items[index] = item

    def open_text(self) -> JsonObject | None:
        """The last item, where it is a message whose text is open."""
        last = len(self.items) - 1
        item = self.open.get(last, {})
        if self.part is None or self.part["output_index"] != last or item.get("type") != "message":
            return None
        return item


def numbered(delta: EventDelta, number: int) -> bytes:
    """The event's JSON with this number. Nearly every provider has given it that number itself."""
    data, mark = delta.data, _NUMBER % number
    if (at := data.find(mark)) >= 0 and data[at + len(mark)] not in _DIGITS:
        return data
    return encode_object({**decode_object(data), "sequence_number": number})


def with_response(delta: EventDelta, number: int, response: JsonObject) -> bytes:
    """The same with this response in it."""
    changes: dict[str, Any] = {"sequence_number": number, "response": response}
    return encode_object({**decode_object(delta.data), **changes})
