"""The stream of a Messages API answer: bytes to deltas, and at the end the non-streaming body. Never awaits, never
raises on what a peer sends, keeps no growing snapshot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeGuard

from tailrace import messages
from tailrace.config.quirks import NONE, WireQuirks
from tailrace.errors import PeerError
from tailrace.messages import AnyDelta, FinishDelta, JsonObject, NativeDelta, ReasoningDelta, TextDelta, ToolCallDelta
from tailrace.wire.anthropic.completion import arguments_of, made_call_id, refusal_in, stop_reason_for, usage_of
from tailrace.wire.failure import failure, failure_in, stream_cut
from tailrace.wire.peer_json import assign_fields, decode_object, encode_object, object_of, objects_of, text_of
from tailrace.wire.sse import is_event_name
from tailrace.wire.templates import TemplateDecoder, joined, learn
from tailrace.wire.translation.citations import cited_block

TEXT, THINKING, ARGUMENTS = "text_delta", "thinking_delta", "input_json_delta"  # the deltas that make a block grow
PIECES = frozenset({TEXT, THINKING, ARGUMENTS})
# What a block of each type grows by: the delta, its field, and the block's field that it becomes.
_GROWTH = {
    "text": (TEXT, "text", "text"),
    "thinking": (THINKING, "thinking", "thinking"),
    "tool_use": (ARGUMENTS, "partial_json", "input"),  # and server_tool_use, mcp_tool_use, …
}
_WHOLE = ("", "", "")  # a block of any other type is complete in its start
# The type of a block whose start never came, by the delta that came instead.
_IMPLIED_TYPE = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
    "compaction_delta": "compaction",
}
_DELTA_HEAD = b"event: content_block_delta\ndata: "
_HEAD_LENGTH = len(_DELTA_HEAD)
_LF = 0x0A  # as a number: looking for one byte is ten times as fast as for a string of one
_UNNAMED = "message"  # what the SSE specification calls an event that has no name
_EVENTS = frozenset(
    {
        *("message_start", "message_delta", "message_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)


class AnthropicDecoder(TemplateDecoder):
    """`ports.StreamDecoder` for the Messages API."""

    _dialect = "anthropic"
    _run_name = "content_block_delta"

    def __init__(self, quirks: WireQuirks = NONE, *, keep_events: bool = False) -> None:
        # No client could read the events of a provider that repeats the text before them.
        super().__init__(keep_events=keep_events and not quirks.cumulative_text, learns=not quirks.cumulative_text)
        self._cumulative = quirks.cumulative_text
        self._message: JsonObject | None = None  # the fields of message_start and of message_delta since
        self._usage: JsonObject = {}
        self._blocks: list[Block] = []  # in order of arrival
        self._newest: dict[int, Block] = {}  # by block index; a server that reuses one means a new block
        self._calls = 0

    def close(self, *, cut: bool = False) -> list[AnyDelta]:
        out: list[AnyDelta] = []
        if not self._ended and not cut and self._is_terminal(frame := self._sse.unfinished_block()):
            self._decode_block(frame, out)
        if not self._ended:
            missing = "message_stop" if self._message is not None or self._blocks else "a single event of the dialect"
            self._fail_unended(f"the stream ended without {missing}", out)
        return out

    def rebuilt_body(self) -> JsonObject:
        blocks = self._blocks
        if len(self._newest) == len(blocks):  # no index was used twice: they are the places (B33)
            blocks = sorted(blocks, key=lambda block: block.index)
        message = self._message or {"type": "message", "role": "assistant", "stop_reason": None}
        return {**message, "content": [block.rebuilt() for block in blocks], "usage": dict(self._usage)}

    def _learn(self, frame: bytes, block: Block) -> None:
        """Makes the event of this frame the template of the next, unless the event has other fields beside its data."""
        make_delta = _delta_maker(block)
        if self._samples_left == 0 or make_delta is None or (self._keeps_events and block.place != block.index):
            return
        if not frame.startswith(_DELTA_HEAD) or frame.find(_LF, _HEAD_LENGTH) >= 0:
            return
        self._samples_left -= 1
        path = ("delta", block.source)
        event = decode_object(frame[_HEAD_LENGTH:])
        self._template = learn(frame, event, path, block.pieces, make_delta, data_at=_HEAD_LENGTH, spaced=True)
        if self._template is not None:
            self._template.emits_empty = block.grows_by is THINKING  # hidden thinking: they are progress (C47)

    def _keep(self, event: JsonObject, out: list[AnyDelta], **changes: Any) -> None:
        """Hands out the provider's own event, with these changes, before its deltas."""
        if self._keeps_events:
            name = text_of(event.get("type"))
            out.append(messages.EventDelta("anthropic", name, encode_object({**event, **changes})))

    def _add(self, block: Block, text: str, out: list[AnyDelta]) -> None:
        if self._cumulative and block.grows_by is not ARGUMENTS:
            text = block.unseen(text)
        block.pieces.append(text)
        if block.grows_by is TEXT:
            if text:
                out.append(TextDelta(text))
        elif block.grows_by is THINKING:
            out.append(ReasoningDelta(text))  # also the empty ones of hidden thinking: they are progress (C47)
        elif block.call is not None and text:
            out.append(ToolCallDelta(block.call, "", "", text))
        elif block.call is None and text:  # the input of a tool that the provider runs
            out.append(_native(delta={"type": "input_json_delta", "partial_json": text}))

    # ── every block that no template fits ───────────────────────────────────────────────────────────────────────

    def _decode_block(self, block: bytes, deltas: list[AnyDelta]) -> bool:
        event = self._sse.parse(block)
        if event is not None and event.event != "ping":
            self._forget_template()
            try:
                body = decode_object(event.data)
            except PeerError as exc:
                self._undecodable(event.event, event.data, exc, deltas)
            else:
                self._event(event.event, body, block, deltas)
        return self._ended

    def _is_terminal(self, frame: bytes) -> bool:
        event = self._sse.parse(frame)
        try:
            return event is not None and _kind_of(event.event, decode_object(event.data)) == "message_stop"
        except PeerError:
            return False

    def _event(self, name: str, body: JsonObject, frame: bytes, out: list[AnyDelta]) -> None:
        kind = _kind_of(name, body)
        body = {"type": kind, **body}
        match kind:
            case "message_start":
                self._message_start(body, out)
            case "content_block_start":
                self._block_start(body, out)
            case "content_block_delta":
                self._block_delta(body, frame, out)
            case "content_block_stop":
                if (block := self._block_of(body)) is not None:
                    self._end(block, out, body)
            case "message_delta":
                self._message_delta(body, out)
            case "message_stop":
                self._message_stop(body, out)
            case _ if kind == "error" or name == "error" or body.get("error"):
                self._fail(failure_in(body) or failure_in({"error": body}) or failure(str(body)), out)
            case "ping" | "message":  # the latter has neither name nor type
                pass
            case _:  # an event of a later version of the API (A12)
                if is_event_name(kind):
                    self._keep(body, out)

    def _undecodable(self, name: str, data: bytes, exc: PeerError, out: list[AnyDelta]) -> None:
        shown = data.strip()
        if name == "error":
            self._fail(failure(shown.decode("utf-8", "replace")), out)
        elif shown and shown != b"[DONE]" and not shown.startswith(b":") and (name == _UNNAMED or name in _EVENTS):
            self._skip(exc, out)

    def _has_begun(self) -> bool:
        return bool(self._blocks)

    def _message_start(self, body: JsonObject, out: list[AnyDelta]) -> None:
        message = body.get("message")
        if self._message is not None or not isinstance(message, dict):
            return  # gateways that retry upstream send a second one: the first is kept
        self._message = {"content": [], **message}
        self._keep(body, out, message={**message, "content": []})  # its blocks come as events
        for block in objects_of(message.get("content")):  # an answer that continues earlier blocks
            self._end(self._begin(len(self._blocks), block, out), out)
        self._read_usage(message.get("usage"), out)

    def _message_stop(self, body: JsonObject, out: list[AnyDelta]) -> None:
        if self._message is None and not self._blocks:
            self._fail(stream_cut("the stream ended without a single event of the dialect"), out)
            return
        for block in self._blocks:
            self._end(block, out)
        self._keep(body, out)
        self._ended = self.complete = True

    def _message_delta(self, body: JsonObject, out: list[AnyDelta]) -> None:
        changes = {name: value for name, value in body.items() if name not in {"type", "delta", "usage"}}
        changes |= object_of(body.get("delta"))
        reason = stop_reason_for(changes.get("stop_reason"), called=bool(self._calls))
        self._keep(body, out, **({"delta": {**object_of(body.get("delta")), "stop_reason": reason}} if reason else {}))
        if self._message is None:
            self._message = {"type": "message", "role": "assistant", "content": []}
        assign_fields(self._message, changes)
        self._read_usage(body.get("usage"), out)
        if isinstance(sequence := changes.get("stop_sequence"), str):
            out.append(_native(stop_sequence=sequence))
        if refusal := refusal_in(changes):
            out.append(_native(refusal=refusal))
        if isinstance(reason := changes.get("stop_reason"), str):
            out.append(FinishDelta(reason))

    def _read_usage(self, usage: object, out: list[AnyDelta]) -> None:
        """Counts are totals so far: they replace the earlier ones and are never added up (A21)."""
        if isinstance(usage, dict):
            assign_fields(self._usage, usage)
            out.append(messages.UsageDelta(usage_of(self._usage)))

    def _block_start(self, body: JsonObject, out: list[AnyDelta]) -> None:
        start = body.get("content_block")
        if not isinstance(start, dict):
            return
        before = self._block_of(body)
        if before is not None and not before.closed and not before.pieces and before.start == start:
            return  # a repeated start
        self._begin(body.get("index"), start, out, body)

    def _begin(self, given: object, start: JsonObject, out: list[AnyDelta], event: JsonObject | None = None) -> Block:
        index = given if _is_index(given) else len(self._blocks)
        ours = start.get("type") == "tool_use"
        block = Block(index, start, self._calls if ours else None)
        if index in self._newest:  # a client would take it for the block before it
            block.place = max(other.place for other in self._blocks) + 1
        if self._blocks and self._blocks[-1].start.get("type") == start.get("type") and not ours:
            out.append(_native(apart=True))  # to other dialects two texts in a row are one
        self._blocks.append(block)
        self._newest[index] = block
        if ours and not start.get("id"):
            start["id"] = made_call_id(self._calls)
        self._keep(event or {"type": "content_block_start"}, out, index=block.place, content_block=start)
        if ours:
            out.append(ToolCallDelta(self._calls, text_of(start.get("id")), text_of(start.get("name"))))
            self._calls += 1
        elif block.is_native:
            out.append(_native(start=start.copy()))
        elif begun := text_of(start.get(block.field)):
            out.append(TextDelta(begun) if block.grows_by is TEXT else ReasoningDelta(begun))
        if start.get("type") == "fallback" and isinstance(to := start.get("to"), dict) and self._message is not None:
            self._message["model"] = to.get("model", self._message.get("model"))  # the model that answers from here on
        return block

    def _end(self, block: Block, out: list[AnyDelta], event: JsonObject | None = None) -> None:
        if block.closed:
            return
        block.closed = True
        self._keep(event or {"type": "content_block_stop"}, out, index=block.place)
        if block.is_native:
            out.append(_native(stop=True))
        if block.start.get("citations") and (cited := cited_block(block.rebuilt())) is not None:
            out.append(cited)
        if block.call is not None and not any(block.pieces):
            # No text of arguments came: they were in the start, as an object (B31), or there are none (B32).
            out.append(ToolCallDelta(block.call, "", "", arguments_of(block.rebuilt()["input"])))

    def _block_delta(self, body: JsonObject, frame: bytes, out: list[AnyDelta]) -> None:
        delta = body.get("delta")
        if not isinstance(delta, dict):
            return
        block = self._block_of(body)
        if block is None:
            block = self._begin(body.get("index"), _implied_start(text_of(delta.get("type"))), out)
        self._keep(body, out, index=block.place)
        if isinstance(text := delta.get(block.source), str):
            self._add(block, text, out)
            if delta.get("type") == block.grows_by:
                self._learn(frame, block)
        elif text_of(delta.get("type")) not in PIECES:
            out.append(_native(delta=delta))
        block.merge(delta)

    def _block_of(self, body: JsonObject) -> Block | None:
        index = body.get("index")
        if _is_index(index):
            return self._newest.get(index)
        return self._blocks[-1] if self._blocks else None


def _kind_of(name: str, body: JsonObject) -> str:
    """The type of an event, by its JSON or else by its name."""
    kind = body.get("type")
    return kind if isinstance(kind, str) else name


def _delta_maker(block: Block) -> Callable[[str], AnyDelta] | None:
    """What makes the delta of a piece of this block; None for the input of a tool that the provider runs."""
    if block.grows_by is TEXT:
        return TextDelta
    if block.grows_by is THINKING:
        return ReasoningDelta
    return partial(ToolCallDelta, block.call, "", "") if block.call is not None else None


def _native(**item: Any) -> NativeDelta:
    return NativeDelta("anthropic", item)


def _is_index(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


# ── one content block while it grows, and what it becomes in the body ────────────────────────────────────────


def _implied_start(delta_type: str) -> JsonObject:
    """The start of a block whose first event is a delta of this type."""
    return {"type": _IMPLIED_TYPE.get(delta_type, "unknown")}


class Block:
    """Texts are collected in pieces and joined once, when the body is asked for; everything else is merged into
    `start` as it comes. Linear in what comes."""

    __slots__ = ("call", "closed", "field", "grown", "grows_by", "index", "pieces", "place", "seen", "source", "start")

    def __init__(self, index: int, start: JsonObject, call: int | None) -> None:
        self.index = index
        self.place = index  # its index in the events that a client is sent
        self.start = start
        self.call = call  # position among the answer's calls; None for a block that is not a call of ours
        self.closed = False
        self.seen = ""  # the text so far; kept only for a provider that repeats it (A17)
        kind = text_of(start.get("type"))
        self.grows_by, self.source, self.field = _GROWTH.get("tool_use" if kind.endswith("_tool_use") else kind, _WHOLE)
        self.pieces: list[str] = []  # of `field`
        self.grown: dict[str, list[str]] = {self.field: self.pieces} if self.field else {}

    @property
    def is_native(self) -> bool:
        """A block of a kind that the other dialects do not have."""
        return self.call is None and self.grows_by not in (TEXT, THINKING)

    def unseen(self, text: str) -> str:
        """The new end of a `text` that repeats everything before it (A17)."""
        seen = self.seen or text_of(self.start.get(self.field))
        self.seen = text
        return text.removeprefix(seen)

    def merge(self, delta: JsonObject) -> None:
        """Adds the fields of a delta beside the block's next piece: text and lists grow, the rest is replaced."""
        kind = text_of(delta.get("type"))
        if kind == "citations_delta":
            if not isinstance(self.start.get("citations"), list):
                self.start["citations"] = []
            self.start["citations"].append(delta.get("citation"))
        elif not self.grows_by or kind not in PIECES:
            whole = kind in {"signature_delta", "compaction_delta"}  # each comes once and complete
            for name, value in delta.items():
                if name not in {"type", self.source} and value is not None:
                    self._merge(name, value, whole=whole)

    def _merge(self, name: str, value: object, *, whole: bool) -> None:
        match self.start.get(name), value:
            case str(), str(text) if not whole:
                self.grown.setdefault(name, []).append(text)
            case list(begun), list(more) if not whole:
                begun.extend(more)
            case _:
                self.start[name] = value

    def rebuilt(self) -> JsonObject:
        """The block as the non-streaming answer would have it."""
        body = {name: list(value) if isinstance(value, list) else value for name, value in self.start.items()}
        for name, pieces in self.grown.items():
            is_input = name == self.field == "input"
            body[name] = self._input() if is_input else text_of(self.start.get(name)) + joined(pieces)
        return body

    def _input(self) -> object:
        """An object where the model wrote a complete one; else the text that it wrote, which is no valid input for any
        tool (B34). An empty input is `{}` in a closed block (B32) and the text `""` in an open one."""
        written = "".join(self.pieces)
        if written:
            try:
                return decode_object(written.encode())
            except PeerError:
                return written
        begun = self.start.get("input")
        return begun or ({} if self.closed else "")
