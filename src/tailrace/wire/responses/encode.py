"""Answers as the Responses API sends them, for clients of our server. Every item and part is opened, grown, closed and
repeated in full at the end (H95). A non-streaming body is the last state of an encoded stream, so the two cannot
differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from tailrace import messages
from tailrace.messages import AnyDelta, EventDelta, JsonObject, NativeDelta, ReasoningDelta, TextDelta, ToolCallDelta
from tailrace.wire.dialect import WireDialect
from tailrace.wire.failure import contradiction
from tailrace.wire.peer_json import decode_object, is_object_text, object_of, objects_of, without_lone_surrogates
from tailrace.wire.reasoning_seal import USUAL_FIELD, named_field, provider_of, seal, sealed_native
from tailrace.wire.responses import response_fields
from tailrace.wire.responses.client_tools import OfferedTools, custom_input
from tailrace.wire.responses.completion import with_call_ids
from tailrace.wire.responses.relayed_items import ENDINGS, SNAPSHOTS, RelayedItems, numbered, with_response
from tailrace.wire.responses.text_slots import CALL_SLOTS, FORMS, PART_SLOTS, SLOTS, OpenText, TextForm
from tailrace.wire.served_dialect import AnswerEncoder, AnswerHeader, framed
from tailrace.wire.translation.citations import of_annotations, of_cited
from tailrace.wire.translation.message_deltas import message_deltas

_encode = msgspec.json.Encoder().encode


class StreamEncoder(AnswerEncoder):
    """The header's `fields` are fields of the request that a response repeats (`instructions`, `tools`, …); its `state`
    are fields that are ours also in a provider's own response (`store`, `previous_response_id`, …). This dialect has
    one choice only: deltas of others are left out."""

    dialect = "responses"

    def __init__(self, header: AnswerHeader) -> None:
        super().__init__(header)
        self._response: JsonObject = {
            "id": header.id,
            "object": "response",
            "created_at": header.created,
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": header.model,
            "output": [],
            "usage": None,
            **response_fields.DEFAULTS,
            **header.fields,
            **header.state,
        }
        self._ours: JsonObject = {**header.state, "id": header.id, "model": header.model}
        self._key = header.id.removeprefix("resp_")
        self._items: list[JsonObject] = []  # every item begun, in order; each grows into its final form
        self._kind: type[AnyDelta] | None = None  # of the open text
        self._text: OpenText | None = None
        self._item: JsonObject | None = None  # the open message or reasoning item
        self._calls: dict[int, OpenText] = {}  # the calls, by their place among them
        self._open_calls: set[int] = set()
        self._usage: messages.Usage | None = None
        self._stop: messages.Stop = "unknown"
        self._sequence = 0
        self._started = False
        self._relayed = RelayedItems()
        self._preamble: list[EventDelta] = []  # an attempt may still replace them
        self._closings: list[bytes] = []  # the end of what an attempt had opened that did not go on
        self._reasoning_field = USUAL_FIELD
        self._tools = OfferedTools(header.fields.get("tools"))

    @property
    def response(self) -> JsonObject:
        """The response as it now stands: after `close`, the body of a non-streaming answer."""
        return self._response

    def start(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        out: list[bytes] = []
        for name in ("response.created", "response.in_progress"):
            self._send(name, {"response": self._response}, out)
        return b"".join(out)

    def encode_text(self, text: str) -> bytes:
        grown = self._text
        if grown is None or self._kind is not TextDelta or self._relays or self._closings or self._ended or not text:
            return super().encode_text(text)
        return self._grown(grown, text)

    def _encode_delta(self, delta: AnyDelta, out: list[bytes]) -> None:
        if not self._started or self._closings:
            out += (self.start(), *self._closings)
            self._closings.clear()
        if delta.__class__ is TextDelta and not delta.choice:  # nearly every delta: ahead of the match for speed alone
            self._add_text(TextDelta, delta.text, out)
            return
        match delta:
            case TextDelta(text, 0) | ReasoningDelta(text, 0) | messages.RefusalDelta(text, 0):
                self._add_text(type(delta), text, out)
            case ToolCallDelta(choice=0):
                self._add_arguments(delta, out)
            case NativeDelta("responses", item):
                self._native(item, out)
            case NativeDelta(choice=0):
                self._foreign(delta, out)
            case messages.FinishDelta(reason, 0):
                self._stop = self._source.stop_of(reason)
            case messages.UsageDelta():
                self._note_usage(delta)
            case messages.ErrorDelta():
                self._fail(delta, out)
            case TextDelta() | ReasoningDelta() | messages.RefusalDelta() | ToolCallDelta() | NativeDelta():
                pass
            case messages.FinishDelta() | EventDelta() | messages.EventRunDelta():
                pass
            case _:
                assert_never(delta)

    def close(self, stop: messages.Stop | None = None, *, at: float | None = None) -> bytes:
        if reason := response_fields.INCOMPLETE_REASONS.get(stop or self._stop):
            return self._finish("incomplete", {"incomplete_details": {"reason": reason}})
        return self._finish("completed", {"completed_at": None if at is None else int(at)})

    def cancel(self) -> bytes:
        """The end of a cancelled answer: the output so far is kept. The schema has no event for such a response."""
        return self._finish("incomplete", {"status": "cancelled"})

    def steered(self) -> bytes:
        """The end of an answer between two items: input that came meanwhile is for a successor."""
        out = [self.start()]
        self._close_open("completed", out)
        return b"".join(out) + self._finish("incomplete", {"incomplete_details": {"reason": "steered"}})

    # ── the provider's own events ────────────────────────────────────────────────────────────────────────────

    def new_attempt(self, provider: str = "", source: WireDialect | None = None) -> None:
        if self._item is None or self._item["type"] != "reasoning":  # open thoughts keep the field of their beginning
            self._reasoning_field = USUAL_FIELD
        super().new_attempt(provider, source)

    def _leave_relay(self) -> bool:
        """The answer goes on in the open text, or in an item after those that the client has."""
        self._preamble.clear()
        relayed, self._relayed = self._relayed, RelayedItems()
        if not self._started or not relayed.items:
            return False
        self._items = relayed.items
        if (item := relayed.open_text()) is not None and relayed.part is not None:
            self._item, self._kind = item, TextDelta
            self._text = OpenText("response.output_text", item, relayed.part)
            self._text.pieces = relayed.pieces
            relayed.open.pop(len(self._items) - 1)
        for index, item in sorted(relayed.open.items()):
            if "status" in item:
                item["status"] = "incomplete"
            self._done(index, self._closings)
        return True

    def _relay(self, delta: EventDelta, out: list[bytes]) -> None:
        """An event of this dialect, with all that it has; only the response's id, its model and its state are ours."""
        if delta.name in SNAPSHOTS:
            self._response |= {**object_of(decode_object(delta.data).get("response")), **self._ours}
            if not self._started:
                self._preamble.append(delta)
            return
        if not self._started:
            self._started = bool(self._preamble)
            for event in self._preamble:
                status = object_of(decode_object(event.data).get("response")).get("status", "in_progress")
                self._send_on(event, with_response(event, self._sequence, {**self._response, "status": status}), out)
            self._preamble.clear()
            out.append(self.start())
        if delta.name in ENDINGS:
            self._ended = True
            self._response |= {**object_of(decode_object(delta.data).get("response")), **self._ours}
            self._send_on(delta, with_response(delta, self._sequence, self._response), out)
        else:
            self._relayed.apply(delta)
            self._send_on(delta, numbered(delta, self._sequence), out)

    def _send_on(self, delta: EventDelta, data: bytes, out: list[bytes]) -> None:
        out.append(framed(delta, data))
        self._sequence += 1

    def _note_usage(self, delta: messages.UsageDelta) -> None:
        self._usage = delta.usage

    # ── texts ────────────────────────────────────────────────────────────────────────────────────────────────

    def _add_text(self, kind: type[AnyDelta], text: str, out: list[bytes]) -> None:
        if not text:
            return
        grown = self._text
        if grown is None or self._kind is not kind:
            grown = self._open_text(kind, out)
        out.append(self._grown(grown, text))

    def _grown(self, grown: OpenText, text: str) -> bytes:
        """The event that adds this text to an open one."""
        try:
            raw = _encode(text)
        except UnicodeEncodeError:  # a lone surrogate has no bytes (A18)
            text = without_lone_surrogates(text)
            raw = _encode(text)
        grown.pieces.append(text)
        number, self._sequence = self._sequence, self._sequence + 1
        return b'%b%d,"delta":%b}\n\n' % (grown.head, number, raw)

    def _open_text(self, kind: type[AnyDelta], out: list[bytes]) -> OpenText:
        form = FORMS[kind]
        slot = form.slot
        self._close_text(out)
        item = self._open_item(form, out)
        keys = {"item_id": item["id"], "output_index": len(self._items) - 1, slot.index: len(item[slot.parts])}
        self._send(f"{form.part_event}.added", {**keys, "part": form.part}, out)
        self._kind = kind
        self._text = OpenText(form.text_event, item, keys)
        return self._text

    def _open_item(self, form: TextForm, out: list[bytes]) -> JsonObject:
        """The open item where it is of this form; else a new one, after what is open."""
        slot = form.slot
        if self._item is None or self._item["type"] != slot.item:
            self._close_open("completed", out)
            item: JsonObject = {"id": self._item_id(form.prefix), "type": slot.item, slot.parts: []}
            if slot.item == "message":
                item |= {"role": "assistant", "status": "in_progress"}
            self._item = self._add(item, out)
        return self._item

    def _close_text(self, out: list[bytes]) -> None:
        if self._text is None or self._kind is None:
            return
        form, text, keys = FORMS[self._kind], self._text.text, self._text.keys
        slot = form.slot
        part = {**form.part, slot.field: text}
        said: JsonObject = {slot.field: text}
        if form.text_event == "response.output_text":
            part |= {"annotations": self._text.annotations, "logprobs": self._text.logprobs}
            said["logprobs"] = self._text.logprobs
        self._send(f"{form.text_event}.done", {**keys, **said}, out)
        self._send(f"{form.part_event}.done", {**keys, "part": part}, out)
        self._text.item[slot.parts].append(part)
        self._kind = self._text = None

    def _close_item(self, status: str, out: list[bytes]) -> None:
        if self._item is None:
            return
        if "status" in self._item:
            self._item["status"] = status
        if self._item["type"] == "reasoning" and self._source.reasoning_field and self._reasoning_field:
            self._item.setdefault("encrypted_content", seal(self._provider, self._reasoning_field))
        self._done(len(self._items) - 1, out)  # nothing is added while it is open
        self._item = None

    def _foreign(self, native: NativeDelta, out: list[bytes]) -> None:
        """What another dialect has beside texts and calls: where reasoning was, what signs it, cited web pages."""
        match native.item:
            case {"cited": _}:
                for citation in of_cited(native.item, self._text.length if self._text is not None else 0):
                    self._native({"annotation": citation.annotation()}, out)
            case {"delta": {"annotations": _} as delta}:
                for citation in of_annotations(delta):
                    self._native({"annotation": citation.annotation()}, out)
            case {"delta": {"type": "signature_delta"}} | {"start": {"type": "redacted_thinking"}}:
                self._seal_thoughts(native, out)
            case _:
                field = named_field(native)
                self._reasoning_field = self._reasoning_field if field is None else field

    def _seal_thoughts(self, signed: NativeDelta, out: list[bytes]) -> None:
        """Signed reasoning is whole, and goes out under a seal."""
        thoughts = self._text.text if self._text is not None and self._kind is ReasoningDelta else ""
        if (sealed := sealed_native(signed, thoughts, self._provider)) is not None:
            self._open_item(FORMS[ReasoningDelta], out)["encrypted_content"] = sealed
            self._close_text(out)
            self._close_item("completed", out)

    def _native(self, item: JsonObject, out: list[bytes]) -> None:
        """Parts that only this dialect has, from its own decoder, in their place."""
        match item:
            case {"annotation": dict(annotation)} if self._text is not None and self._kind is TextDelta:
                index = len(self._text.annotations)
                self._text.annotations.append(annotation)
                fields = {**self._text.keys, "annotation_index": index, "annotation": annotation}
                self._send("response.output_text.annotation.added", fields, out)
            case {"logprobs": list(logprobs)} if self._text is not None:
                self._text.logprobs += logprobs
            case {"encrypted_content": str(sealed)}:
                self._open_item(FORMS[ReasoningDelta], out)["encrypted_content"] = sealed  # its text may be hidden
            case {"apart": what}:
                self._close_text(out)
                if what == "item":
                    self._close_item("completed", out)
            case {"item": dict(whole)}:
                self._close_open("completed", out)
                self._add(whole, out)
                self._done(len(self._items) - 1, out)
            case _:
                pass

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────

    def _add_arguments(self, delta: ToolCallDelta, out: list[bytes]) -> None:
        call = self._calls.get(delta.index)
        if call is None:
            call = self._open_call(delta, out)
        if delta.replaces:
            self._fail(contradiction(), out)
        elif delta.arguments and delta.index in self._open_calls:
            if call.item["type"] == "custom_tool_call":
                call.pieces.append(delta.arguments)  # its text is known once they are whole
            else:
                out.append(self._grown(call, delta.arguments))

    def _open_call(self, delta: ToolCallDelta, out: list[bytes]) -> OpenText:
        """Calls may be interleaved: each keeps its place. A complete call is closed before the next begins."""
        self._close_text(out)
        self._close_item("completed", out)
        self._close_calls("completed", out, whole_only=True)
        item: JsonObject = {
            "id": self._item_id("fc"),
            "type": "function_call",
            "status": "in_progress",
            "arguments": "",
            "call_id": delta.id or f"call_{self._key}_{delta.index}",
            "name": delta.name,
            **self._tools.item_fields(delta.name),
        }
        if item["type"] == "custom_tool_call":
            item["input"] = item.pop("arguments")
        self._add(item, out)
        keys = {"item_id": item["id"], "output_index": len(self._items) - 1}
        call = self._calls[delta.index] = OpenText("response.function_call_arguments", item, keys)
        self._open_calls.add(delta.index)
        return call

    def _close_calls(self, status: str, out: list[bytes], *, whole_only: bool = False) -> None:
        for index in sorted(self._open_calls):
            call = self._calls[index]
            arguments = call.text
            if whole_only and not is_object_text(arguments):
                continue
            self._open_calls.discard(index)
            call.item["status"] = status
            if call.item["type"] == "custom_tool_call":
                said = call.item["input"] = custom_input(arguments)
                self._send("response.custom_tool_call_input.delta", {**call.keys, "delta": said}, out)
                self._send("response.custom_tool_call_input.done", {**call.keys, "input": said}, out)
            else:
                call.item["arguments"] = arguments or "{}"
                done = {**call.keys, "name": call.item["name"], "arguments": call.item["arguments"]}
                self._send("response.function_call_arguments.done", done, out)
            self._done(call.keys["output_index"], out)

    # ── items and ends ───────────────────────────────────────────────────────────────────────────────────────

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._key}_{len(self._items)}"

    def _add(self, item: JsonObject, out: list[bytes]) -> JsonObject:
        self._items.append(item)
        self._send("response.output_item.added", {"output_index": len(self._items) - 1, "item": item}, out)
        return item

    def _done(self, index: int, out: list[bytes]) -> None:
        self._send("response.output_item.done", {"output_index": index, "item": self._items[index]}, out)

    def _close_open(self, status: str, out: list[bytes]) -> None:
        self._close_text(out)
        self._close_item(status, out)
        self._close_calls(status, out)

    def _finish(self, status: str, changes: JsonObject) -> bytes:
        """Sends the end with this status; `changes` are made to the response last."""
        if self._ended:
            return b""
        self.new_attempt(self._provider)  # a provider's own events that did not come to their end
        out = [self.start(), *self._closings]
        self._end(status, out)
        self._response |= changes
        self._send(f"response.{status}", {"response": self._response}, out)
        return b"".join(out)

    def _end(self, status: str, out: list[bytes]) -> None:
        """Closes the open items with the response's status."""
        self._close_open(status, out)
        self._ended = True
        usage = None if self._usage is None else response_fields.usage_body(self._usage, self._source)
        self._response |= {"status": status, "output": self._items, "usage": usage}

    def _fail(self, error: messages.ErrorDelta, out: list[bytes]) -> None:
        """Sends an `error` event and `response.failed`: clients look for one or the other. Open items stay open on the
        wire: a client may run a call as soon as its done event arrives."""
        out.append(self.start())
        sequence = self._sequence
        if self._relays:
            self._items, self._relays = self._relayed.items, False
        self._end("incomplete", [])
        self._sequence = sequence
        self._response |= {"status": "failed", "error": response_fields.failed_response_error(error)}
        self._send("error", response_fields.error_event(error), out)
        self._send("response.failed", {"response": self._response}, out)

    def _send(self, name: str, fields: JsonObject, out: list[bytes]) -> None:
        body = {"type": name, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        out.append(b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(body)))  # JSON and our names have no line ends


def encode_body(completion: messages.Completion, header: AnswerHeader) -> JsonObject:
    """The completion as a non-streaming body. A provider's body of this dialect is kept, mended as its events are."""
    encoder = StreamEncoder(header)
    if completion.dialect == "responses" and completion.body:
        output = with_call_ids(objects_of(completion.body.get("output")))
        ours = {**header.state, "id": header.id, "model": header.model}
        return {**encoder.response, **completion.body, "output": output, **ours}
    encoder.new_attempt(provider_of(completion.message))
    encoder.encode([*message_deltas(completion.message), messages.UsageDelta(completion.usage)])
    encoder.close(completion.stop, at=header.ended)
    return encoder.response


def events_of_body(body: JsonObject) -> Iterator[JsonObject]:
    """A non-streaming body of this dialect as the events of a stream, with every field."""
    body = {**body, "output": with_call_ids(objects_of(body.get("output")))}
    opening = {**body, "status": "in_progress", "output": [], "usage": None}
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": opening}
    for index, item in enumerate(body["output"]):
        yield from _item_events(index, item)
    yield {"type": f"response.{body.get('status') or 'completed'}", "response": body}


def _item_events(index: int, item: JsonObject) -> Iterator[JsonObject]:
    place = {"item_id": item.get("id"), "output_index": index}
    opening = {**item, **{name: [] for name in ("content", "summary") if isinstance(item.get(name), list)}}
    if slot := CALL_SLOTS.get(str(item.get("type"))):
        opening[slot.field] = ""
    if "status" in item:
        opening["status"] = "in_progress"
    yield {"type": "response.output_item.added", "output_index": index, "item": opening}
    for name in ("summary", "content"):
        for number, part in enumerate(objects_of(item.get(name))):
            yield from _part_events(name, {**place, f"{name}_index": number}, part)
    if slot is not None:
        family = next(family for family, known in SLOTS.items() if known is slot)
        yield {"type": f"{family}.delta", **place, "delta": item.get(slot.field)}
        yield {"type": f"{family}.done", **place, slot.field: item.get(slot.field)}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _part_events(name: str, place: JsonObject, part: JsonObject) -> Iterator[JsonObject]:
    family = "response.reasoning_summary_part" if name == "summary" else "response.content_part"
    slot = PART_SLOTS.get(str(part.get("type")))
    text = part.get(slot.field) if slot is not None else None
    if slot is None or not isinstance(text, str):
        yield {"type": f"{family}.added", **place, "part": part}
        yield {"type": f"{family}.done", **place, "part": part}
        return
    texts = next(name for name, known in SLOTS.items() if known is slot)
    logprobs = {"logprobs": part.get("logprobs") or []} if slot.part == "output_text" else {}
    yield {"type": f"{family}.added", **place, "part": {**part, slot.field: ""}}
    yield {"type": f"{texts}.delta", **place, "delta": text, **logprobs}
    yield {"type": f"{texts}.done", **place, slot.field: text, **logprobs}
    yield {"type": f"{family}.done", **place, "part": part}
