"""What each event of the stream does to the answer. `done` events win over the sum of the deltas (B40): a text that the
deltas left out is emitted then, and the body has the text of the `done` event."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from tailrace import messages
from tailrace.messages import AnyDelta, ErrorDelta, EventDelta, JsonObject, NativeDelta, ReasoningDelta, ToolCallDelta
from tailrace.wire.peer_json import encode_object, object_of, objects_of, text_of
from tailrace.wire.responses import completion, text_slots
from tailrace.wire.responses.completion import PART_SEPARATOR, argument_text, finish_reason_of, usage_of, with_call_id
from tailrace.wire.responses.output_items import NO_INDEX, Output, OutputItem
from tailrace.wire.responses.relayed_items import SNAPSHOTS
from tailrace.wire.responses.response_fields import error_in, error_of
from tailrace.wire.responses.text_slots import CALL_SLOTS, DELTA_SLOTS, PART_ADDED, PART_DONE, PART_SLOTS, Slot
from tailrace.wire.sse import is_event_name

# The status that a terminal event stands for, where its response has none.
TERMINAL = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}

_ITEM_ADDED = "response.output_item.added"
_WITH_ITEM = frozenset({_ITEM_ADDED, "response.output_item.done"})
# The encoder words errors itself; the others say nothing of the answer.
_NOT_KEPT = frozenset({"error", "ping", "keepalive", "message"})

_DELTAS: dict[text_slots.TextKind, type[AnyDelta]] = {
    "text": messages.TextDelta,
    "reasoning": ReasoningDelta,
    "refusal": messages.RefusalDelta,
}


class Piece(msgspec.Struct, gc=False):
    """The fields of a `*.delta` event that are read. The others (`obfuscation`) have no place in the body."""

    type: str = ""
    delta: str = ""
    item_id: str = ""
    output_index: int = NO_INDEX
    content_index: int = 0
    summary_index: int = 0
    logprobs: list[Any] | None = None
    sequence_number: int = NO_INDEX


class Growing:
    """The text that grew last, and what identifies its events: nearly always the next event continues it."""

    __slots__ = (
        *("append", "content_index", "item_id", "logprobs", "number", "output_index", "summary_index"),
        *("to_delta", "type"),
    )

    def __init__(self) -> None:
        self.type: str | None = None  # None: no text grows; equal to the type of no event
        self.item_id = ""
        self.output_index = self.content_index = self.summary_index = 0
        self.number = NO_INDEX  # of its last event
        self.append: Callable[[str], None] = list[str]().append
        self.to_delta: Callable[[str], AnyDelta] | None = None  # the neutral delta of a piece
        self.logprobs: list[Any] = []

    def grow(self, piece: Piece, out: list[AnyDelta]) -> None:
        self.number = piece.sequence_number
        self.append(piece.delta)
        if self.to_delta is not None:
            out.append(self.to_delta(piece.delta))
        if piece.logprobs:
            self.logprobs.extend(piece.logprobs)
            out.append(NativeDelta("responses", {"logprobs": piece.logprobs}))


class GrowingAnswer:
    """The answer so far."""

    def __init__(self, *, cumulative_text: bool = False, keep_events: bool = False) -> None:
        self.growing = Growing()
        self._keeps_events = keep_events
        self.ended = False  # by the terminal event or an error: nothing after it counts
        self.complete = False
        self.settled = False  # the provider has ended the response, whole or not
        self._cumulative = cumulative_text
        self._output = Output()
        self._response: JsonObject = {}

    # ── the fast path ────────────────────────────────────────────────────────────────────────────────────────

    def switch_to(self, piece: Piece, out: list[AnyDelta]) -> bool:
        """Makes `growing` the text of this piece. False where the event must leave the fast path."""
        slot = DELTA_SLOTS.get(piece.type)
        if slot is None or self._cumulative:
            return False
        item = self._item_at(slot, piece.item_id, piece.output_index, out)
        if item.done:
            return False
        index = piece.summary_index if slot.parts == "summary" else piece.content_index
        self._separate(item, slot, index, out)
        growing = self.growing
        growing.type, growing.item_id, growing.output_index = piece.type, piece.item_id, piece.output_index
        growing.content_index, growing.summary_index = piece.content_index, piece.summary_index
        growing.append = item.pieces(slot, index).append
        growing.logprobs = item.logprobs(index)
        growing.to_delta = _delta_maker(item, slot)
        return True

    # ── events of any kind ───────────────────────────────────────────────────────────────────────────────────

    def apply(self, kind: str, event: JsonObject, out: list[AnyDelta]) -> None:
        """Applies one event. An unknown kind is a no-op: its item is complete in `output_item.done`."""
        at, kept = len(out), self._kept(kind, event)
        self._apply(kind, event, out)
        if kind in TERMINAL and self.complete:
            kept = self._kept("response.completed" if kind == "response.done" else kind, event, self.rebuilt_body())
        if kept is not None and not any(isinstance(delta, ToolCallDelta) and delta.replaces for delta in out[at:]):
            out.insert(at, kept)

    def _kept(self, kind: str, event: JsonObject, response: JsonObject | None = None) -> EventDelta | None:
        """The event as a client of this dialect is sent it; taken before the answer grows by it."""
        if not self._keeps_events or kind in _NOT_KEPT or not is_event_name(kind):
            return None
        if kind in TERMINAL and response is None:
            return None
        sent = {**event, "type": kind}
        if response is not None:
            sent["response"] = {**response, "output": completion.with_call_ids(objects_of(response.get("output")))}
        elif kind in _WITH_ITEM:
            item, index = object_of(event.get("item")), _index(event, "output_index")
            sent["item"] = with_call_id(item, len(self._output.items) if index == NO_INDEX else index)
        return EventDelta("responses", kind, encode_object(sent))

    def _item_at(self, slot: Slot, item_id: str, index: int, out: list[AnyDelta]) -> OutputItem:
        """The item of a piece. A client receives an `added` event for one that was never announced (D55)."""
        known = len(self._output.items)
        item = self._output.at_piece(slot, item_id, index)
        if self._keeps_events and len(self._output.items) > known:
            added = {"type": _ITEM_ADDED, "output_index": item.position, "item": item.head}
            out.append(EventDelta("responses", _ITEM_ADDED, encode_object(added)))
        return item

    def _apply(self, kind: str, event: JsonObject, out: list[AnyDelta]) -> None:
        self.growing.type = None
        if (slot := DELTA_SLOTS.get(kind)) is not None:
            self._grow(slot, event, out)
        elif (slot := text_slots.DONE_SLOTS.get(kind)) is not None:
            self._settle_text(slot, event, out)
        elif kind == _ITEM_ADDED:
            self._item_added(event, out)
        elif kind == "response.output_item.done":
            whole = object_of(event.get("item"))
            self._finish_item(self._output.at_done(whole, _index(event, "output_index")), whole, out)
        elif kind in PART_ADDED or kind in PART_DONE:
            self._part(kind, event, out)
        elif kind in text_slots.ANNOTATION_ADDED:
            self._annotated(event, out)
        elif kind in TERMINAL:
            self._end(TERMINAL[kind], object_of(event.get("response")), out)
        elif kind in SNAPSHOTS:
            self._response.update(object_of(event.get("response")))
        elif kind == "error" or ("type" not in event and event.get("error")):
            out.append(self.fail(error_of(event)))

    def fail(self, error: ErrorDelta) -> ErrorDelta:
        """Ends the answer with this error. A reported error makes the response `failed`, a cut leaves its status."""
        self.ended = True
        if not error.cut:
            self._response |= {"status": "failed", "error": {"code": error.code, "message": error.message}}
        return error

    def reopen(self) -> None:
        """The stream broke and is read on: what it was ended with no longer counts, unless the provider ended it."""
        if self.ended and not self.settled:
            self.ended = False
            if self._response.get("status") == "failed":
                self._response |= {"status": "in_progress", "error": None}
        self.growing.type = None

    @property
    def id(self) -> str:
        return text_of(self._response.get("id"))

    @property
    def is_queued(self) -> bool:
        return self._response.get("status") == "queued" and not self._output.items

    def rebuilt_body(self) -> JsonObject:
        body = {"object": "response", **self._response}
        if not objects_of(body.get("output")):  # none at all, or `[]` though items were streamed (D54)
            body["output"] = self._output.rebuilt(text_of(body.get("status")))
        return body

    # ── one kind each ────────────────────────────────────────────────────────────────────────────────────────

    def _grow(self, slot: Slot, event: JsonObject, out: list[AnyDelta]) -> None:
        item, index = self._place(slot, event, out)
        delta = event.get("delta")
        if isinstance(delta, dict) and isinstance(delta.get("text"), str) and slot.kind != "call":
            delta = delta["text"]
        text = delta if isinstance(delta, str) else argument_text(delta)
        if item.done or not text or delta is None:
            return
        pieces = item.pieces(slot, index)
        if self._cumulative and slot.kind in ("text", "reasoning"):
            text = text.removeprefix("".join(pieces))
        self._emit(item, slot, index, text, out)
        pieces.append(text)

    def _settle_text(self, slot: Slot, event: JsonObject, out: list[AnyDelta]) -> None:
        whole = event.get(slot.field)
        if isinstance(whole, str):
            item, index = self._place(slot, event, out)
            self._settle(item, slot, index, whole, out)

    def _item_added(self, event: JsonObject, out: list[AnyDelta]) -> None:
        head = object_of(event.get("item"))
        again = head.get("type") == "message" and any(item.type == "message" for item in self._output.items)
        item = self._output.added(head, _index(event, "output_index"))
        if again:
            out.append(NativeDelta("responses", {"apart": "item"}))  # to other dialects two messages in a row are one
        if item.call is not None:
            self._announce(item, out)

    def _part(self, kind: str, event: JsonObject, out: list[AnyDelta]) -> None:
        part = object_of(event.get("part"))
        slot = PART_SLOTS.get(text_of(part.get("type")))
        name = PART_ADDED.get(kind) or PART_DONE[kind]
        owner = slot or PART_SLOTS["output_text" if name == "content" else "summary_text"]
        item = self._item_at(owner, text_of(event.get("item_id")), _index(event, "output_index"), out)
        index = max(0, _index(event, "summary_index" if name == "summary" else "content_index"))
        if item.done:
            return
        item.set_part(name, index, part)
        if index and name == "content" and kind in PART_ADDED:
            out.append(NativeDelta("responses", {"apart": "part"}))
        if slot is not None and kind in PART_DONE and isinstance(part.get(slot.field), str):
            self._settle(item, slot, index, part[slot.field], out)

    def _annotated(self, event: JsonObject, out: list[AnyDelta]) -> None:
        item, index = self._place(PART_SLOTS["output_text"], event, out)
        if not item.done:
            item.annotate(index, event.get("annotation"))
            out.append(NativeDelta("responses", {"annotation": event.get("annotation")}))

    def _end(self, default_status: str, response: JsonObject, out: list[AnyDelta]) -> None:
        status = text_of(response.get("status"))
        if status not in TERMINAL.values():
            status = default_status
        self._response |= {**response, "status": status}
        self.ended = self.settled = True
        self._catch_up(objects_of(response.get("output")), out)
        if isinstance(response.get("usage"), dict):
            out.append(messages.UsageDelta(usage_of(response["usage"])))
        if status in ("completed", "incomplete"):
            self.complete = True
            out.append(messages.FinishDelta(finish_reason_of(self._response, status)))
        else:
            out.append(error_in(response, status))

    def _catch_up(self, output: list[JsonObject], out: list[AnyDelta]) -> None:
        """Emits the items that only the terminal event has. Some servers give a streamed item another id here: type
        counts."""
        streamed = {item.type for item in self._output.items}
        for index, whole in enumerate(output):
            item = self._output.find(text_of(whole.get("id")), index)
            kind = text_of(whole.get("type"))
            if item is not None and item.type == kind:
                self._finish_item(item, whole, out)
            elif kind not in streamed:
                self._finish_item(self._output.add(whole, NO_INDEX), whole, out)

    # ── texts and calls ──────────────────────────────────────────────────────────────────────────────────────

    def _place(self, slot: Slot, event: JsonObject, out: list[AnyDelta]) -> tuple[OutputItem, int]:
        item = self._item_at(slot, text_of(event.get("item_id")), _index(event, "output_index"), out)
        return item, max(0, _index(event, slot.index))

    def _finish_item(self, item: OutputItem, whole: JsonObject, out: list[AnyDelta]) -> None:
        """Completes the item. Texts are matched by kind and order: some servers of gpt-oss count the reasoning's
        too."""
        if item.done:
            item.finish(whole)
            return
        for slot, texts in _texts_of(whole).items():
            for index, text in zip(item.indices(slot), texts, strict=False):
                self._settle(item, slot, index, text, out)
        item.finish(whole)
        if item.call is not None:
            self._announce(item, out)
        elif item.type == "reasoning":
            if whole.get("encrypted_content"):
                sealed = {"encrypted_content": whole["encrypted_content"], "reasoning": whole}
                out.append(NativeDelta("responses", sealed))
        elif item.type != "message":
            out.append(NativeDelta("responses", {"item": whole}))

    def _settle(self, item: OutputItem, slot: Slot, index: int, whole: str, out: list[AnyDelta]) -> None:
        """Completes one text: emits the rest where the emitted text is its beginning."""
        pieces = item.pieces(slot, index)
        said = "".join(pieces)
        if len(whole) > len(said) and whole.startswith(said):
            self._emit(item, slot, index, whole[len(said) :], out)
        elif slot.kind == "call" and item.announced and _differ(said, whole):
            out.append(ToolCallDelta(item.call or 0, arguments=whole, replaces=True))
        pieces[:] = [whole]

    def _emit(self, item: OutputItem, slot: Slot, index: int, text: str, out: list[AnyDelta]) -> None:
        self._separate(item, slot, index, out)
        make_delta = _delta_maker(item, slot)
        if make_delta is not None and text:
            out.append(make_delta(text))

    def _separate(self, item: OutputItem, slot: Slot, index: int, out: list[AnyDelta]) -> None:
        """The parts of one reasoning item are paragraphs: a separator goes between them."""
        if slot.kind != "reasoning" or item.last_emitted == (slot, index):
            return
        if item.last_emitted is not None:
            out.append(ReasoningDelta(PART_SEPARATOR))
        item.last_emitted = (slot, index)

    def _announce(self, item: OutputItem, out: list[AnyDelta]) -> None:
        """Emits a call's id and name once they are known, with the arguments that came before (B30)."""
        name = text_of(item.head.get("name"))
        if item.announced or not name or item.call is None:
            return
        item.announced = True
        call_id = text_of(with_call_id(item.head, item.position).get("call_id"))
        held = "".join(item.pieces(CALL_SLOTS[item.type], 0))
        out.append(ToolCallDelta(item.call, call_id, name, held))


def _delta_maker(item: OutputItem, slot: Slot) -> Callable[[str], AnyDelta] | None:
    if slot.kind == "call":
        return partial(ToolCallDelta, item.call or 0, "", "") if item.announced else None
    return _DELTAS.get(slot.kind)


def _texts_of(item: JsonObject) -> dict[Slot, list[str]]:
    """The visible texts of a finished item, by kind and in order."""
    texts: dict[Slot, list[str]] = {}
    call = CALL_SLOTS.get(text_of(item.get("type")))
    if call is not None and item.get(call.field) not in (None, ""):
        texts[call] = [argument_text(item[call.field])]
    for name in ("summary", "content"):
        for part in objects_of(item.get(name)):
            slot = PART_SLOTS.get(text_of(part.get("type")))
            if slot is not None and isinstance(part.get(slot.field), str):
                texts.setdefault(slot, []).append(part[slot.field])
    return texts


def _differ(said: str, whole: str) -> bool:
    """Whether two texts of arguments mean different ones: another spacing is the same call."""
    if said == whole:
        return False
    try:
        return bool(msgspec.json.decode(said) != msgspec.json.decode(whole))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return True


def _index(event: JsonObject, key: str) -> int:
    value = event.get(key)
    return value if isinstance(value, int) and value >= 0 else NO_INDEX
