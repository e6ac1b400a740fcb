"""Answers as the Messages API sends them, for clients of our server: deltas to events, completions to a body.

Owns the grammar of what we send: one block open at a time, indexes without gaps, one end. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from tailrace.messages import (
    AnyDelta,
    Completion,
    Dialect,
    ErrorDelta,
    EventDelta,
    EventRunDelta,
    FinishDelta,
    JsonObject,
    Message,
    Native,
    NativeDelta,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Stop,
    Text,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from tailrace.wire.anthropic.completion import stop_reason_for, with_call_ids
from tailrace.wire.anthropic.content import blocks_of, call_id
from tailrace.wire.error_bodies import anthropic_error_body
from tailrace.wire.failure import contradiction
from tailrace.wire.peer_json import (
    decode_object,
    is_object_text,
    object_of,
    objects_of,
    text_of,
    without_lone_surrogates,
)
from tailrace.wire.reasoning_seal import USUAL_FIELD, named_field, seal, seal_of, sealed_native, signed_item
from tailrace.wire.sse import encode_event
from tailrace.wire.translation.citations import of_annotation, of_annotations

_STOP_REASONS: dict[Stop, str] = {
    "end": "end_turn",
    "length": "max_tokens",
    "tools": "tool_use",
    "filter": "refusal",
    "pause": "pause_turn",
    "unknown": "end_turn",
}
# The finish reasons of the other dialects in this one; its own are kept.
_FOREIGN_REASONS = {
    "stop": "end_turn",
    "completed": "end_turn",
    "length": "max_tokens",
    "incomplete": "max_tokens",
    "max_output_tokens": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
# The deltas that stand for each kind of block; any other kind is this dialect's alone.
_KINDS: dict[str, type[AnyDelta]] = {"text": TextDelta, "thinking": ReasoningDelta, "tool_use": ToolCallDelta}
_encode = msgspec.json.Encoder().encode


class StreamEncoder:
    """Deltas in, bytes of the event stream out. `source` is the dialect that the deltas were decoded from. Without
    `hidden_thinking` the client gets no block for thinking that has no text: it may take the first block for the
    answer."""

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the field's name
        model: str,
        source: Dialect = "anthropic",
        hidden_thinking: bool = True,
    ) -> None:
        self._id, self._model, self._source = id, model, source
        self._hidden_thinking = hidden_thinking
        self._usage = Usage()
        self._stop_reason = ""
        self._stop_sequence: str | None = None
        self._started = self._ended = False
        self._blocks = 0  # begun so far: the next one's index
        self._kind: type[AnyDelta] | None = None  # of the open block
        self._head = b""  # of the open block's next delta, up to the text
        self._call = -1  # the open call's position among the calls
        self._calls: set[int] = set()  # begun so far
        self._arguments: list[str] = []  # of the open call
        self._held: dict[int, list[ToolCallDelta]] = {}  # of calls that wait for the open one to end
        self._relays: bool | None = None  # the provider's own events are sent; None: that is not known yet
        self._preamble: list[bytes] = []  # events that are sent with the next one; an attempt may still replace them
        self._relayed: dict[int, type[AnyDelta]] = {}  # the open blocks of the provider's own events
        self._endings: list[bytes] = []  # the provider's own `message_delta`, which is sent with its `message_stop`
        self._provider = ""  # of the attempt under way
        self._reasoning_field = USUAL_FIELD if source == "chat" else ""
        self._signed = False  # the open thinking block has its provider's own signature

    def start(self) -> bytes:
        """The first event, as soon as the request is accepted; else it comes with the first delta."""
        if self._started:
            return b""
        self._started = True
        message = _message_body(self._id, self._model, [], None, usage_body(self._usage, self._source))
        return _event("message_start", {"type": "message_start", "message": message})

    def encode(self, deltas: Iterable[AnyDelta]) -> bytes:
        """The events of these deltas. This dialect has one choice only: deltas of others are left out."""
        out: list[bytes] = []
        if self._preamble and self._relays is False:  # the end of what another attempt had opened
            out, self._preamble = self._preamble, out
        for delta in deltas:
            if self._ended:
                break
            if delta.__class__ is EventDelta:
                if self._relays is not False and delta.dialect == "anthropic":
                    self._relay(delta, out)
            elif delta.__class__ is EventRunDelta:
                if self._relays is not False and delta.dialect == "anthropic":
                    self._relay_run(delta, out)
            elif self._relays:
                self._track(delta, out)
            elif delta.__class__ is self._kind is TextDelta and not delta.choice:  # the steady state, without a match
                out += (self._head, _json_text(delta.text), b"}}\n\n")
            else:
                self._encode_delta(delta, out)
        return b"".join(out)

    def encode_text(self, text: str) -> bytes:
        """As `encode` of one `TextDelta`."""
        return self.encode((TextDelta(text),))

    def _encode_delta(self, delta: AnyDelta, out: list[bytes]) -> None:
        self._relays = False
        match delta:
            case TextDelta(text, 0) | RefusalDelta(text, 0):
                self._add_text(TextDelta, text, out)
            case ReasoningDelta(text, 0):
                self._add_text(ReasoningDelta, text, out)
            case ToolCallDelta(replaces=True):
                self._fail(contradiction(), out)
            case ToolCallDelta(choice=0):
                self._tool_call(delta, out)
            case NativeDelta():
                self._native(delta, out)
            case FinishDelta(reason, 0):
                self._stop_reason = _FOREIGN_REASONS.get(reason, reason)
            case UsageDelta(usage):
                self._usage = usage
            case ErrorDelta():
                self._fail(delta, out)
            case TextDelta() | ReasoningDelta() | RefusalDelta() | ToolCallDelta() | FinishDelta():
                pass  # of another choice
            case EventDelta() | EventRunDelta():
                pass
            case _:
                assert_never(delta)

    def close(self, stop: Stop | None = None, *, at: float | None = None) -> bytes:  # noqa: ARG002
        """The end of the answer; `stop` overrides the reason of the deltas. Nothing after an error event (H94)."""
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

    def _fail(self, error: ErrorDelta, out: list[bytes]) -> None:
        self._ended = True
        out.append(_event("error", anthropic_error_body(error)))

    # ── the provider's own events ────────────────────────────────────────────────────────────────────────────

    def new_attempt(self, provider: str = "", source: Dialect | None = None) -> None:
        """An attempt at this provider follows; `source` is its dialect. Once a block was sent, its answer goes on in
        events of ours: in the open text, or in a block after those that the client has."""
        self._provider = provider
        self._source = source or self._source
        if self._kind is not ReasoningDelta:  # open thoughts keep the field of their beginning
            self._reasoning_field = USUAL_FIELD if self._source == "chat" else ""
        if not self._relays:
            return
        self._preamble.clear()
        self._endings.clear()  # the client has seen no end
        if not self._started:
            self._relays = None
            return
        self._relays = False
        last = self._blocks - 1
        if self._relayed.get(last) is TextDelta and len(self._relayed) == 1:
            self._kind, self._head = TextDelta, _delta_head(last, b'"text_delta","text":')
            return
        for index in sorted(self._relayed):
            self._preamble.append(_event("content_block_stop", {"type": "content_block_stop", "index": index}))

    def _relay(self, delta: EventDelta, out: list[bytes]) -> None:
        """An event of this dialect, with all that it has; only the message's id and its model are ours."""
        self._relays, data = True, delta.data
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
                self._relayed[event["index"]] = _KINDS.get(text_of(block.get("type")), NativeDelta)
            case "content_block_stop":
                self._relayed.pop(decode_object(data)["index"], None)
            case "message_delta":
                self._endings.append(_framed(delta))
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
        out.append(_framed(delta))

    def _relay_run(self, run: EventRunDelta, out: list[bytes]) -> None:
        """Pieces of one block: nothing in them is ours, so they are sent as they came."""
        if self._relays and self._started:
            out.append(run.data)
        else:
            for event in run.events():
                self._relay(event, out)

    def _track(self, delta: AnyDelta, out: list[bytes]) -> None:
        """What a relayed event meant, for an answer that must go on without its provider."""
        if isinstance(delta, ErrorDelta):
            self._fail(delta, out)
        elif isinstance(delta, UsageDelta):
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
        match native:
            case NativeDelta("anthropic", item):
                self._own(item, out)
            case NativeDelta("responses", {"apart": _}):  # as in the whole body
                self._stop_text(out)
            case NativeDelta("responses", {"annotation": annotation}):
                if (citation := of_annotation(annotation)) is not None:
                    self._own({"delta": {"type": "citations_delta", "citation": citation.page()}}, out)
            case NativeDelta("responses", {"reasoning": _}):
                self._seal_thoughts(native, out)
            case NativeDelta("chat", choice=0):
                field = named_field(native)
                self._reasoning_field = self._reasoning_field if field is None else field
            case _:
                pass

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

    def _stop_text(self, out: list[bytes]) -> None:
        if self._kind is TextDelta:
            self._stop_block(out)

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


def encode_body(
    completion: Completion,
    *,
    id: str = "",  # noqa: A002 - the field's name
    model: str = "",
    hidden_thinking: bool = True,
) -> JsonObject:
    """The completion as a non-streaming body. An answer of this dialect keeps its own, mended as its events are."""
    if completion.dialect == "anthropic":
        return own_body(completion.body)
    content: list[JsonObject] = []
    for part in completion.message.parts:
        match part:
            case Text(text) | Refusal(text):
                content.append({"type": "text", "text": text})
            case Native("responses", {"type": "output_text"} as item) if content:
                content[-1]["citations"] = [citation.page() for citation in of_annotations(item)]
            case Reasoning(text) if text:  # another dialect's reasoning has no signature but ours
                content.append({"type": "thinking", "thinking": text, "signature": seal_of(part)})
            case Reasoning() if hidden_thinking and signed_item(part):
                content.append({"type": "redacted_thinking", "data": seal_of(part)})
            case Reasoning():
                pass
            case _:
                content += blocks_of(Message("assistant", (part,)))
    reason = _STOP_REASONS[completion.stop]
    if reason == "end_turn" and completion.tool_calls:
        reason = "tool_use"
    elif reason == "end_turn" and completion.stop_sequence:
        reason = "stop_sequence"
    usage = usage_body(completion.usage, completion.dialect)
    body = _message_body(id or completion.id, model or completion.model, content, reason, usage)
    return {**body, "stop_sequence": completion.stop_sequence} if reason == "stop_sequence" else body


def own_body(body: JsonObject) -> JsonObject:
    """A body of this dialect, mended as a provider's events are."""
    content = with_call_ids(objects_of(body.get("content")))
    called = any(block.get("type") == "tool_use" for block in content)
    return {**body, "content": content, "stop_reason": stop_reason_for(body.get("stop_reason"), called=called)}


def _delta_head(index: int, kind: bytes) -> bytes:
    head = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b'
    return head % (index, kind)


def _message_body(
    message_id: str, model: str, content: list[JsonObject], stop_reason: str | None, usage: JsonObject
) -> JsonObject:
    head = {"id": message_id, "type": "message", "role": "assistant", "model": model, "content": content}
    return {**head, "stop_reason": stop_reason, "stop_sequence": None, "usage": usage}


def usage_body(usage: Usage, source: Dialect) -> JsonObject:
    """`input_tokens` excludes the cached tokens here and includes them in the other dialects."""
    beside = 0 if source == "anthropic" else usage.cache_read_tokens
    body: JsonObject = {
        "input_tokens": max(usage.input_tokens - beside, 0),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        body["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return body


def _framed(event: EventDelta) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.name.encode(), event.data)


def _event(name: str, body: JsonObject) -> bytes:
    return encode_event(_encode(body), event=name)


def _json_text(text: str) -> bytes:
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return _encode(without_lone_surrogates(text))
