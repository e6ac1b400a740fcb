"""Answers as the Messages API sends them, for clients of our server. Owns the grammar of what we send: one block open
at a time, indexes without gaps, one end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from tailrace import messages
from tailrace.messages import AnyDelta, JsonObject, NativeDelta, Reasoning, ReasoningDelta, TextDelta, ToolCallDelta
from tailrace.wire import peer_json
from tailrace.wire.anthropic.completion import arguments_of, stop_reason_for, with_call_ids
from tailrace.wire.anthropic.content import blocks_of, call_id
from tailrace.wire.dialect import WireDialect
from tailrace.wire.failure import anthropic_error_body, contradiction
from tailrace.wire.peer_json import decode_object, is_object_text, object_of, objects_of, without_lone_surrogates
from tailrace.wire.reasoning_seal import named_field, seal, seal_of, sealed_native, signed_item
from tailrace.wire.served_dialect import AnswerEncoder, AnswerHeader, framed
from tailrace.wire.sse import encode_event
from tailrace.wire.translation.citations import of_annotations

_STOP_REASONS: dict[messages.Stop, str] = {
    "end": "end_turn",
    "length": "max_tokens",
    "tools": "tool_use",
    "filter": "refusal",
    "pause": "pause_turn",
    "unknown": "end_turn",
}
# The deltas that stand for each kind of block; any other kind is this dialect's alone.
_KINDS: dict[str, type[AnyDelta]] = {"text": TextDelta, "thinking": ReasoningDelta, "tool_use": ToolCallDelta}
_encode = msgspec.json.Encoder().encode


class StreamEncoder(AnswerEncoder):
    """Without `hidden_thinking` the client gets no block for thinking that has no text: it may take the first block for
    the answer. This dialect has one choice only: deltas of others are left out."""

    dialect = "anthropic"

    def __init__(self, header: AnswerHeader) -> None:
        super().__init__(header)
        self._id, self._model = header.id, header.model
        self._hidden_thinking = header.hidden_thinking
        self._usage = messages.Usage()
        self._stop_reason = ""
        self._stop_sequence: str | None = None
        self._started = False
        self._blocks = 0  # begun so far: the next one's index
        self._kind: type[AnyDelta] | None = None  # of the open block
        self._head = b""  # of the open block's next delta, up to the text
        self._call = -1  # the open call's position among the calls
        self._calls: set[int] = set()  # begun so far
        self._arguments: list[str] = []  # of the open call
        self._held: dict[int, list[ToolCallDelta]] = {}  # of calls that wait for the open one to end
        self._preamble: list[bytes] = []  # events that are sent with the next one; an attempt may still replace them
        self._relayed: dict[int, type[AnyDelta]] = {}  # the open blocks of the provider's own events
        self._endings: list[bytes] = []  # the provider's own `message_delta`, which is sent with its `message_stop`
        self._reasoning_field = self._source.reasoning_field
        self._signed = False  # the open thinking block has its provider's own signature

    def start(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        message = _message_body(self._id, self._model, [], None, usage_body(self._usage, self._source))
        return _event("message_start", {"type": "message_start", "message": message})

    def encode_text(self, text: str) -> bytes:
        if self._kind is not TextDelta or self._relays is not False or self._preamble or self._ended:
            return super().encode_text(text)
        return b"%b%b}}\n\n" % (self._head, _json_text(text))

    def _encode_delta(self, delta: AnyDelta, out: list[bytes]) -> None:
        if self._preamble:  # the end of what another attempt had opened
            out += self._preamble
            self._preamble.clear()
        if delta.__class__ is self._kind is TextDelta and not delta.choice:  # the steady state, without a match
            out += (self._head, _json_text(delta.text), b"}}\n\n")
            return
        match delta:
            case TextDelta(text, 0) | messages.RefusalDelta(text, 0) | ReasoningDelta(text, 0):
                self._add_text(ReasoningDelta if isinstance(delta, ReasoningDelta) else TextDelta, text, out)
            case ToolCallDelta(replaces=True):
                self._fail(contradiction(), out)
            case ToolCallDelta(choice=0):
                self._tool_call(delta, out)
            case NativeDelta():
                self._native(delta, out)
            case messages.FinishDelta(reason, 0):
                self._stop_reason = self._reason_for(reason, _STOP_REASONS)
            case messages.UsageDelta():
                self._note_usage(delta)
            case messages.ErrorDelta():
                self._fail(delta, out)
            case TextDelta() | ReasoningDelta() | messages.RefusalDelta() | ToolCallDelta() | messages.FinishDelta():
                pass  # of another choice
            case messages.EventDelta() | messages.EventRunDelta():
                pass
            case _:
                assert_never(delta)

    def close(self, stop: messages.Stop | None = None, *, at: float | None = None) -> bytes:  # noqa: ARG002
        if self._ended:
            return b""
        out = [*self._preamble, self.start()]
        self._close_blocks(out)
        self._ended = True
        reason = _STOP_REASONS[stop] if stop else self._stop_reason or "end_turn"
        if reason == "end_turn" and self._calls:
            reason = "tool_use"  # clients run the calls only under this reason
        elif reason == "end_turn" and self._stop_sequence:
            reason = "stop_sequence"
        end = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": self._stop_sequence},
            "usage": usage_body(self._usage, self._source),
        }
        out += (_event("message_delta", end), _event("message_stop", {"type": "message_stop"}))
        return b"".join(out)

    def _fail(self, error: messages.ErrorDelta, out: list[bytes]) -> None:
        self._ended = True
        out.append(_event("error", anthropic_error_body(error)))

    # ── the provider's own events ────────────────────────────────────────────────────────────────────────────

    def new_attempt(self, provider: str = "", source: WireDialect | None = None) -> None:
        super().new_attempt(provider, source)
        if self._kind is not ReasoningDelta:  # open thoughts keep the field of their beginning
            self._reasoning_field = self._source.reasoning_field

    def _leave_relay(self) -> bool:
        """The answer goes on in the open text, or in a block after those that the client has."""
        self._preamble.clear()
        self._endings.clear()  # the client has seen no end
        last = self._blocks - 1
        if self._relayed.get(last) is TextDelta and len(self._relayed) == 1:
            self._kind, self._head = TextDelta, _delta_head(last, b'"text_delta","text":')
        elif self._started:
            for index in sorted(self._relayed):
                self._preamble.append(_event("content_block_stop", {"type": "content_block_stop", "index": index}))
        return self._started

    def _relay(self, delta: messages.EventDelta, out: list[bytes]) -> None:
        """An event of this dialect, with all that it has; only the message's id and its model are ours."""
        data = delta.data
        match delta.name:
            case "message_start":
                event = decode_object(data)
                event["message"] = {**object_of(event.get("message")), "id": self._id, "model": self._model}
                self._preamble = [_event("message_start", event)]
                return
            case "content_block_start":
                event = decode_object(data)
                self._blocks = max(self._blocks, event["index"] + 1)
                block = object_of(event.get("content_block"))
                self._relayed[event["index"]] = _KINDS.get(peer_json.text_of(block.get("type")), NativeDelta)
            case "content_block_stop":
                self._relayed.pop(decode_object(data)["index"], None)
            case "message_delta":
                self._endings.append(framed(delta))
                return
            case "message_stop":
                self._ended = True
            case _:
                pass
        if not self._started:
            start = self.start()
            out.append(b"".join(self._preamble) or start)
            self._preamble.clear()
        if self._ended:
            out += self._endings
        out.append(framed(delta))

    def _relay_run(self, run: messages.EventRunDelta, out: list[bytes]) -> None:
        """Pieces of one block: nothing in them is ours, so they are sent as they came: -37 % CPU of a relay."""
        if self._relays and self._started:
            out.append(run.data)
        else:
            super()._relay_run(run, out)

    def relayed_form(self, form: messages.EventForm) -> messages.EventForm | None:
        return form if self._relays and self._started else None

    def _note_usage(self, delta: messages.UsageDelta) -> None:
        self._usage = delta.usage

    # ── events of ours ───────────────────────────────────────────────────────────────────────────────────────

    def _add_text(self, kind: type[TextDelta | ReasoningDelta], text: str, out: list[bytes]) -> None:
        if not text:
            return
        if self._kind is not kind:
            self._open_text(kind, out)
        out += (self._head, _json_text(text), b"}}\n\n")

    def _native(self, native: NativeDelta, out: list[bytes]) -> None:
        """What only one dialect has: of the others, where two texts are two blocks and where reasoning was."""
        if native.dialect == self.dialect:
            self._own(native.item, out)
            return
        match native.item:
            case {"apart": _}:  # as in the whole body
                if self._kind is TextDelta:
                    self._stop_block(out)
            case {"annotation": annotation}:
                self._cite({"annotations": [annotation]}, out)
            case {"delta": {"annotations": _} as delta}:
                self._cite(delta, out)
            case {"reasoning": _}:
                self._seal_thoughts(native, out)
            case {"stop_sequence": str(sequence)}:
                self._stop_sequence = sequence
            case _ if (field := named_field(native)) is not None and not native.choice:
                self._reasoning_field = field
            case _:
                pass

    def _cite(self, annotated: JsonObject, out: list[bytes]) -> None:
        for citation in of_annotations(annotated):
            self._own({"delta": {"type": "citations_delta", "citation": citation.page()}}, out)

    def _seal_thoughts(self, native: NativeDelta, out: list[bytes]) -> None:
        """Encrypted reasoning goes along under a seal: in the signature of its thoughts, or alone where none came."""
        sealed = sealed_native(native, "", self._provider)
        if self._kind is ReasoningDelta:
            self._own({"delta": {"type": "signature_delta", "signature": sealed}}, out)
            self._stop_block(out)
        elif self._hidden_thinking:
            self._close_blocks(out)
            self._open_block(NativeDelta, {"type": "redacted_thinking", "data": sealed}, b"", out)
            self._stop_block(out)

    def _own(self, item: JsonObject, out: list[bytes]) -> None:
        """Parts that only this dialect has, from its own decoder, in their place."""
        match item:
            case {"start": dict(start)}:
                self._close_blocks(out)
                self._open_block(NativeDelta, start, b"", out)
            case {"delta": dict(delta)}:
                self._open_for(delta.get("type"), out)
                self._signed |= delta.get("type") == "signature_delta"
                if self._kind is not None:
                    said = {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}
                    out.append(_event("content_block_delta", said))
            case {"apart": True}:
                self._stop_block(out)
            case {"stop": True} if self._kind is NativeDelta:
                self._stop_block(out)
            case {"stop_sequence": str(sequence)}:
                self._stop_sequence = sequence
            case _:
                pass

    def _open_for(self, kind: object, out: list[bytes]) -> None:
        """Hidden reasoning has a signature too, and a citation may come before its text."""
        if kind == "signature_delta" and self._kind is not ReasoningDelta:
            self._open_text(ReasoningDelta, out)
        elif kind == "citations_delta" and self._kind is not TextDelta:
            self._open_text(TextDelta, out)

    def _open_text(self, kind: type[TextDelta | ReasoningDelta], out: list[bytes]) -> None:
        self._close_blocks(out)
        if kind is TextDelta:
            self._open_block(kind, {"type": "text", "text": ""}, b'"text_delta","text":', out)
        else:
            start = {"type": "thinking", "thinking": "", "signature": ""}
            self._open_block(kind, start, b'"thinking_delta","thinking":', out)

    def _tool_call(self, delta: ToolCallDelta, out: list[bytes]) -> None:
        if self._kind is ToolCallDelta and delta.index == self._call:
            self._add_arguments(delta, out)
        elif delta.index not in self._calls:
            # A source may interleave calls, and clients expect one after the other: the pieces of another call are held
            # until the arguments of the open one are one closed object. Checked when a call begins, not at each piece.
            waits = self._kind is ToolCallDelta and (
                delta.index in self._held or not is_object_text("".join(self._arguments))
            )
            self._held.setdefault(delta.index, []).append(delta)
            if not waits:
                self._stop_block(out)
                self._begin_call(out)

    def _begin_call(self, out: list[bytes]) -> None:
        """Begins the oldest held call, with all its pieces so far."""
        self._call = next(iter(self._held))
        self._calls.add(self._call)
        pieces = self._held.pop(self._call)
        first = pieces[0]
        start = {"type": "tool_use", "id": call_id(first.id or f"call_{self._call}"), "name": first.name, "input": {}}
        self._open_block(ToolCallDelta, start, b'"input_json_delta","partial_json":', out)
        for piece in pieces:
            self._add_arguments(piece, out)

    def _add_arguments(self, delta: ToolCallDelta, out: list[bytes]) -> None:
        if delta.arguments:
            self._arguments.append(delta.arguments)
            out += (self._head, _json_text(delta.arguments), b"}}\n\n")

    def _open_block(self, kind: type[AnyDelta], start: JsonObject, head: bytes, out: list[bytes]) -> None:
        out.append(self.start())
        index, self._kind = self._blocks, kind
        self._blocks += 1
        self._head = _delta_head(index, head)
        opening = {"type": "content_block_start", "index": index, "content_block": start}
        out.append(_event("content_block_start", opening))

    def _stop_block(self, out: list[bytes]) -> None:
        if self._kind is not None:
            if self._kind is ReasoningDelta and not self._signed:  # clients drop blocks without a signature
                signature = {"type": "signature_delta", "signature": seal(self._provider, self._reasoning_field)}
                said = {"type": "content_block_delta", "index": self._blocks - 1, "delta": signature}
                out.append(_event("content_block_delta", said))
            self._kind, self._signed = None, False
            self._arguments.clear()
            out.append(_event("content_block_stop", {"type": "content_block_stop", "index": self._blocks - 1}))

    def _close_blocks(self, out: list[bytes]) -> None:
        """Closes the open block and sends the held calls, so that nothing overtakes them."""
        self._stop_block(out)
        while self._held:
            self._begin_call(out)
            self._stop_block(out)


def encode_body(completion: messages.Completion, header: AnswerHeader) -> JsonObject:
    """The completion as a non-streaming body. A provider's body of this dialect is kept, mended as its events are."""
    if completion.dialect == "anthropic" and completion.body:
        return {**own_body(completion.body), "id": header.id, "model": header.model}
    content: list[JsonObject] = []
    for part in completion.message.parts:
        match part:
            case messages.Text(text) | messages.Refusal(text):
                content.append({"type": "text", "text": text})
            case messages.Native(item={"type": "output_text"} as item) if content:
                content[-1]["citations"] = [citation.page() for citation in of_annotations(item)]
            case Reasoning(text) if text:  # another dialect's reasoning has no signature but ours
                content.append({"type": "thinking", "thinking": text, "signature": seal_of(part)})
            case Reasoning() if header.hidden_thinking and signed_item(part):
                content.append({"type": "redacted_thinking", "data": seal_of(part)})
            case Reasoning():
                pass
            case _:
                content += blocks_of(messages.Message("assistant", (part,)))
    reason = _STOP_REASONS[completion.stop]
    if reason == "end_turn" and completion.tool_calls:
        reason = "tool_use"
    elif reason == "end_turn" and completion.stop_sequence:
        reason = "stop_sequence"
    usage = usage_body(completion.usage, header.source)
    body = _message_body(header.id, header.model, content, reason, usage)
    return {**body, "stop_sequence": completion.stop_sequence} if reason == "stop_sequence" else body


def own_body(body: JsonObject) -> JsonObject:
    """A body of this dialect, mended as a provider's events are."""
    content = with_call_ids(objects_of(body.get("content")))
    called = any(block.get("type") == "tool_use" for block in content)
    return {**body, "content": content, "stop_reason": stop_reason_for(body.get("stop_reason"), called=called)}


def events_of_body(body: JsonObject) -> Iterator[JsonObject]:
    """A non-streaming body of this dialect as the events of a stream, with every field."""
    body = own_body(body)
    ends = {name: body.get(name) for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_start", "message": {**body, "content": [], **dict.fromkeys(ends)}}
    for index, block in enumerate(objects_of(body.get("content"))):
        start, deltas = _opened(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": ends, "usage": body.get("usage")}
    yield {"type": "message_stop"}


def _opened(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """The block as it begins, and the deltas that complete it."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {**block, "text": ""}, [{"type": "text_delta", "text": text}]
        case {"type": "thinking", "thinking": str(text)}:
            signature = {"type": "signature_delta", "signature": block.get("signature", "")}
            return {**block, "thinking": "", "signature": ""}, [{"type": "thinking_delta", "thinking": text}, signature]
        case {"type": str(kind), "input": dict(given)} if kind.endswith("tool_use"):
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments_of(given)}]
        case _:
            return block, []


def _delta_head(index: int, kind: bytes) -> bytes:
    head = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b'
    return head % (index, kind)


def _message_body(
    message_id: str, model: str, content: list[JsonObject], stop_reason: str | None, usage: JsonObject
) -> JsonObject:
    head = {"id": message_id, "type": "message", "role": "assistant", "model": model, "content": content}
    return {**head, "stop_reason": stop_reason, "stop_sequence": None, "usage": usage}


def usage_body(usage: messages.Usage, source: WireDialect) -> JsonObject:
    """The usage, as `source` counts it, as a `usage` object: here `input_tokens` excludes the cached tokens."""
    beside = 0 if source.counts_cache_apart else usage.cache_read_tokens
    body: JsonObject = {
        "input_tokens": max(usage.input_tokens - beside, 0),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        body["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return body


def _event(name: str, body: JsonObject) -> bytes:
    return encode_event(_encode(body), event=name)


def _json_text(text: str) -> bytes:
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return _encode(without_lone_surrogates(text))
