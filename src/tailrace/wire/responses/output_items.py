"""The `output` of a response while it grows: items found by id or place. Text is kept in pieces and joined when the
item is asked for; nothing is snapshotted on the way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tailrace.messages import JsonObject
from tailrace.wire.peer_json import objects_of, text_of
from tailrace.wire.responses.text_slots import CALL_FIELDS, Slot
from tailrace.wire.templates import joined

_LISTS = ("content", "summary")
NO_INDEX = -1


class OutputItem:
    """One item. Once `done`, `head` is the complete item and the pieces no longer count (B40)."""

    __slots__ = ("_logprobs", "_parts", "_texts", "announced", "call", "done", "head", "last_emitted", "position")

    def __init__(self, head: JsonObject, position: int, call: int | None) -> None:
        self.head = head
        self.position = position
        self.call = call  # its place among the calls of this answer, where it is one
        self.announced = False  # the call's id and name were handed out
        self.last_emitted: tuple[Slot, int] | None = None  # the text of this item that was handed out last
        self.done = False
        self._texts: dict[tuple[Slot, int], list[str]] = {}
        self._parts: dict[tuple[str, int], JsonObject] = {}
        self._logprobs: dict[int, list[Any]] = {}
        for name in _LISTS:
            for index, part in enumerate(objects_of(head.get(name))):
                self._parts[name, index] = part

    @property
    def type(self) -> str:
        return text_of(self.head.get("type"))

    def pieces(self, slot: Slot, index: int) -> list[str]:
        """The pieces of one text so far, to be appended to."""
        return self._texts.setdefault((slot, index), [])

    def indices(self, slot: Slot) -> Iterator[int]:
        """The indices of the texts of this kind: those that came, in order, then free ones without end."""
        came = sorted(index for known, index in self._texts if known is slot)
        return itertools.chain(came, itertools.count(came[-1] + 1 if came else 0))

    def logprobs(self, index: int) -> list[Any]:
        """The log probabilities that came with the pieces of one part, to be extended."""
        return self._logprobs.setdefault(index, [])

    def set_part(self, name: str, index: int, part: JsonObject) -> None:
        self._parts[name, index] = part

    def annotate(self, index: int, annotation: object) -> None:
        part = self._parts.setdefault(("content", index), {"type": "output_text", "annotations": [], "text": ""})
        if not isinstance(part.get("annotations"), list):
            part["annotations"] = []
        part["annotations"].append(annotation)

    def finish(self, item: JsonObject) -> None:
        self.head, self.done = item, True

    def rebuilt(self, status: str) -> JsonObject:
        """The item as a non-streaming answer would hold it. `status` is the response's own, where it has ended."""
        if self.done:
            return self.head
        item = dict(self.head)
        lists: dict[str, dict[int, JsonObject]] = {}
        for (name, index), part in self._parts.items():
            lists.setdefault(name, {})[index] = dict(part)
        for (slot, index), pieces in self._texts.items():
            new_part = {"type": slot.part, **({"annotations": []} if slot.part == "output_text" else {})}
            holder = lists.setdefault(slot.parts, {}).setdefault(index, new_part) if slot.parts else item
            holder[slot.field] = joined(pieces)
        content = lists.get("content", {})
        for index, logprobs in self._logprobs.items():
            if logprobs and index in content and not content[index].get("logprobs"):
                content[index]["logprobs"] = logprobs
        for name, parts in lists.items():
            item[name] = [parts[index] for index in sorted(parts)]
        if item.get("status") == "in_progress" and status in ("completed", "incomplete"):
            item["status"] = status
        return item


class Output:
    """All items. A known id finds the item, else the index: some servers rotate ids, some leave out the index."""

    def __init__(self) -> None:
        self.items: list[OutputItem] = []
        self._by_id: dict[str, OutputItem] = {}
        self._by_index: dict[int, OutputItem] = {}
        self._calls = 0

    def find(self, item_id: str, index: int) -> OutputItem | None:
        found = self._by_id.get(item_id) if item_id else None
        return found if found is not None else self._by_index.get(index)

    def add(self, head: JsonObject, index: int) -> OutputItem:
        call = None
        if text_of(head.get("type")) in CALL_FIELDS:
            call, self._calls = self._calls, self._calls + 1
        item = OutputItem(head, index if index != NO_INDEX else len(self.items), call)
        self.items.append(item)
        if item_id := text_of(head.get("id")):
            self._by_id[item_id] = item
        if index != NO_INDEX:
            self._by_index[index] = item
        return item

    def added(self, head: JsonObject, index: int) -> OutputItem:
        """The item of an `output_item.added` event. A new id is a new item, even at an index that is taken."""
        item_id = text_of(head.get("id"))
        item = self._by_id.get(item_id) if item_id else self._by_index.get(index)
        if item is None or item.done:
            return self.add(head, index)
        return item

    def at_piece(self, slot: Slot, item_id: str, index: int) -> OutputItem:
        """The item a piece belongs to; made now where it was never announced (D55)."""
        item = self._by_id.get(item_id) if item_id else None
        if item is None:
            item = self._by_index.get(index)
            if item is not None and item.type != slot.item:
                item = None  # another kind of item has this index: the server counts differently
        if item is None and not item_id and index == NO_INDEX:
            item = next((i for i in reversed(self.items) if i.type == slot.item and not i.done), None)
        if item is None:
            item = self.add({"type": slot.item, **({"id": item_id} if item_id else {}), **_BLANK[slot.item]}, index)
        return item

    def at_done(self, whole: JsonObject, index: int) -> OutputItem:
        item_id = text_of(whole.get("id"))
        item = self.find(item_id, index)
        if item is None and index == NO_INDEX and not item_id:
            item = next((i for i in self.items if i.type == text_of(whole.get("type")) and not i.done), None)
        if (
            item is None
            or (item.done and self._by_id.get(item_id) is not item)
            or item.type != text_of(whole.get("type"))
        ):
            return self.add(whole, index)
        return item

    def rebuilt(self, status: str) -> list[JsonObject]:
        return [item.rebuilt(status) for item in sorted(self.items, key=lambda item: item.position)]


# The fields of an item of each type beside its texts, where `output_item.added` never came.
_BLANK: dict[str, JsonObject] = {
    "message": {"role": "assistant", "status": "in_progress"},
    "reasoning": {"summary": []},
    "function_call": {"status": "in_progress"},
    "custom_tool_call": {"status": "in_progress"},
}
