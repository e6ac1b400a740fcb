"""The stream of a chat completion: bytes to deltas, and at the end the non-streaming body. Never awaits, never raises
on what a peer sends, keeps no growing snapshot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tailrace.config.quirks import NONE, WireQuirks
from tailrace.errors import PeerError
from tailrace.messages import AnyDelta, EventDelta, JsonObject, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from tailrace.wire.chat.choice import GROWING, ChoiceState, copied
from tailrace.wire.chat.client_chunk import last_chunk, mended_chunk
from tailrace.wire.chat.completion import usage_of
from tailrace.wire.failure import failure, failure_in, stream_cut
from tailrace.wire.peer_json import assign_fields, decode_object, encode_object, object_of, objects_of, text_of
from tailrace.wire.reasoning_seal import TEXT_FIELDS
from tailrace.wire.sse import SseEvent
from tailrace.wire.templates import PADDING_FIELDS, Path, Template, TemplateDecoder, TemplateSample, learn

_HEAD = ("id", "created", "model")  # the first value that is not empty is kept: they are empty in Azure's first chunk
# Not part of the non-streaming body, or put together elsewhere.
_CHUNK_FIELDS = frozenset({"choices", "object", "usage", "x_groq", "error", *_HEAD, *PADDING_FIELDS})
_GROQ_HOISTED = ("usage", "usage_breakdown")  # at the top of Groq's non-streaming body, inside `x_groq` in the stream
_DELTA: Path = ("choices", 0, "delta")
_TEXT: Path = (*_DELTA, "content")
_DONE = b"data: [DONE]"
_UNNAMED = "message"  # the SSE specification's name of an event without one


class ChatDecoder(TemplateDecoder):
    """`ports.StreamDecoder` for Chat Completions. The terminal event is `[DONE]`."""

    __slots__ = ("_choices", "_fields", "_has_head", "_head", "_quirks", "_raw_usage")

    _dialect = "chat"
    _run_name = ""

    def __init__(self, quirks: WireQuirks = NONE, *, keep_events: bool = False) -> None:
        # No client could read the chunks of a provider that repeats the text before them.
        super().__init__(keep_events=keep_events and not quirks.cumulative_text, learns=not quirks.cumulative_text)
        self._quirks = quirks
        self._choices: dict[int, ChoiceState] = {}
        self._head: JsonObject = {}
        self._has_head = False  # none of its fields is missing or empty
        self._fields: JsonObject = {}  # the body's other fields
        self._raw_usage: JsonObject | None = None

    def close(self, *, cut: bool = False) -> list[AnyDelta]:
        deltas: list[AnyDelta] = []
        if not self._ended and not cut and self._is_terminal(block := self._sse.unfinished_block()):
            self._decode_block(block, deltas)
        if self._ended:
            return deltas
        finished = bool(self._choices) and all(choice.finish_reason for choice in self._choices.values())
        if finished and self._quirks.ends_without_done:
            self._finish(deltas)
        else:
            missing = "[DONE]" if self._choices else "a single chunk of a chat completion"
            self._fail_unended(f"the stream ended without {missing}", deltas)
        return deltas

    def rebuilt_body(self) -> JsonObject:
        head = self._head
        body: JsonObject = {"id": head.get("id", ""), "object": "chat.completion"}
        body |= {field: head[field] for field in ("created", "model") if field in head}
        body["choices"] = [self._choices[index].rebuilt() for index in sorted(self._choices)]
        if self._fields:
            body |= copied(self._fields)
        if self._raw_usage is not None:
            body["usage"] = self._raw_usage.copy()
        return body

    # ── one block, in full ───────────────────────────────────────────────────────────────────────────────────

    def _decode_block(self, block: bytes, deltas: list[AnyDelta]) -> bool:
        if block[:7] == b"data: {" and block.find(b"\n") < 0:  # `in` of bytes raises and catches an error first
            try:
                chunk = decode_object(block[6:])
            except PeerError as exc:
                self._skip(exc, deltas)
            else:
                self._take_chunk(chunk, block, deltas)
        elif block == _DONE:
            self._finish(deltas)
        elif (event := self._sse.parse(block)) is not None:  # comments and fields alone dispatch none (A09, A11)
            self._decode_event(event, block, deltas)
        return self._ended

    def _has_begun(self) -> bool:
        return bool(self._choices)

    def _decode_event(self, event: SseEvent, block: bytes, deltas: list[AnyDelta]) -> None:
        data = event.data.strip()
        if data == b"[DONE]":
            self._finish(deltas)
            return
        if not data or data.startswith(b":"):
            return  # keep-alives that were sent as data (A10)
        try:
            chunk = decode_object(data)
        except PeerError as exc:
            if event.event == _UNNAMED:
                self._skip(exc, deltas)
            elif event.event == "error":
                self._fail(failure(data.decode("utf-8", "replace")), deltas)
            return
        if event.event not in (_UNNAMED, "error") and not isinstance(chunk.get("choices"), list):
            self._forget_template()  # a ping, or a kind of event that is not a chunk (A12)
        elif event.event == "error":
            self._fail(failure_in(chunk) or failure_in({"error": chunk}) or failure(str(chunk)), deltas)
        else:
            self._take_chunk(chunk, block, deltas)

    def _take_chunk(self, chunk: JsonObject, block: bytes, deltas: list[AnyDelta]) -> None:
        if self._template is not None:
            self._forget_template()
        if (grew := self._add_plain(chunk, deltas)) is not None:
            has_usage = "usage" in chunk and chunk["usage"] is not None
            if grew and self._samples_left and not has_usage and block[:7] == b"data: {":
                choice = self._choices[chunk["choices"][0]["index"]]
                self._learn_text(block, _TEXT, choice.content.text_pieces(), _text_delta_of(choice))
            return
        at = len(deltas)
        self._add(chunk, deltas)
        mended = self._keep_event(chunk, at, deltas) if self._keeps_events else False
        if not self._ended and not mended and block.startswith(b"data: {") and block.find(b"\n") < 0:
            self._learn(block, chunk)

    def _add_plain(self, chunk: JsonObject, deltas: list[AnyDelta]) -> bool | None:
        """The short way of a chunk by the book (-37 % CPU for one token, -20 % for ten): what `_add` and
        `_keep_event` come to for at most one choice, in which nothing needs a rule of its own. True where its text
        grew; None, with nothing taken in, for any other chunk: that one goes the long way."""
        if "error" in chunk or "type" in chunk or "x_groq" in chunk or "choices" not in chunk:
            return None  # an error may be in them
        choices, at, grew = chunk["choices"], len(deltas), False
        if choices.__class__ is not list or choices[1:] or ("object" in chunk and chunk["object"] == "error"):
            return None
        for choice in choices:
            if choice.__class__ is not dict or "index" not in choice or (index := choice["index"]).__class__ is not int:
                return None
            if index not in self._choices:
                self._choices[index] = ChoiceState(index, self._quirks)
            state = self._choices[index]
            added = state.add_plain(choice, deltas, relayed=self._keeps_events)
            if added is None:
                return None
            grew = added
        if self._keeps_events:
            deltas.insert(at, EventDelta("chat", "", chunk))
        self._add_fields(chunk, deltas)
        return grew

    def _keep_event(self, chunk: JsonObject, at: int, deltas: list[AnyDelta]) -> bool:
        """Puts the chunk before its deltas, which begin `at`. True where it had to be mended for the client."""
        if not isinstance(chunk.get("choices"), list) and "usage" not in chunk:
            return False
        if self._ended and len(deltas) == at + 1:
            return False  # nothing but an error
        mended = mended_chunk(chunk, self._choices, deltas[at:], text_of(self._head.get("id")))
        deltas.insert(at, EventDelta("chat", "", encode_object(mended or chunk)))
        return mended is not None

    def _add(self, chunk: JsonObject, deltas: list[AnyDelta]) -> None:
        choices = chunk.get("choices")
        # Groq names the reason why a stream stopped early in `x_groq`.
        error = failure_in(chunk) or failure_in({"error": object_of(chunk.get("x_groq")).get("error")})
        for choice in objects_of(choices):
            self._choice_at(choice.get("index")).add(choice, deltas)
            error = error or failure_in(choice)
        if isinstance(choices, list) or "usage" in chunk:
            self._add_fields(chunk, deltas)
        if error is not None:
            self._fail(error, deltas)

    def _choice_at(self, index: object) -> ChoiceState:
        key = index if isinstance(index, int) and not isinstance(index, bool) else 0
        choice = self._choices.get(key)
        if choice is None:
            choice = self._choices[key] = ChoiceState(key, self._quirks)
        return choice

    def _add_fields(self, chunk: JsonObject, deltas: list[AnyDelta]) -> None:
        """Lists at the top (citations, search results) are complete in every chunk; all else is as in a choice."""
        head, fields = self._head, self._fields
        if not self._has_head:
            for field in _HEAD:
                if field in chunk and not head.get(field):
                    head[field] = chunk[field]
            self._has_head = all(map(head.get, _HEAD))
        for field in chunk:  # without `items` and `get`: each chunk comes by here, and most have no other field
            if field in _CHUNK_FIELDS:
                continue
            value = chunk[field]
            if isinstance(value, dict) and isinstance(old := fields.get(field), dict):
                assign_fields(old, value)
            elif value is not None or field not in fields:
                fields[field] = value.copy() if value.__class__ is dict else value  # it may grow, the chunk does not
        if "x_groq" in chunk and isinstance(chunk["x_groq"], dict):
            self._add_groq(chunk["x_groq"], deltas)
        if "usage" in chunk:
            if (usage := chunk["usage"]) is not None:
                self._add_usage(usage, deltas)
            elif "usage" not in fields:
                fields["usage"] = None

    def _add_groq(self, groq: JsonObject, deltas: list[AnyDelta]) -> None:
        own = {name: value for name, value in groq.items() if name not in _GROQ_HOISTED}
        if own:
            self._fields["x_groq"] = self._fields.get("x_groq", {}) | own
        if "usage_breakdown" in groq:
            self._fields["usage_breakdown"] = groq["usage_breakdown"]
        self._add_usage(groq.get("usage"), deltas)

    def _add_usage(self, raw: Any, deltas: list[AnyDelta]) -> None:
        """The last one wins; it is never a sum (A21)."""
        if not isinstance(raw, dict):
            self._fields.setdefault("usage", None)
            return
        if raw != self._raw_usage:
            self._raw_usage = raw
            deltas.append(UsageDelta(usage_of(raw), raw))

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    def _is_terminal(self, block: bytes) -> bool:
        """`[DONE]`, or the finish reason where the provider never sends `[DONE]`."""
        event = self._sse.parse(block)
        if event is None:
            return False
        if not self._quirks.ends_without_done:
            return event.data.strip() == b"[DONE]"
        try:
            chunk = decode_object(event.data)
        except PeerError:
            return event.data.strip() == b"[DONE]"
        return any(choice.get("finish_reason") for choice in objects_of(chunk.get("choices")))

    def _finish(self, deltas: list[AnyDelta]) -> None:
        if not self._choices and not self._fields and not self._head:
            self._fail(stream_cut("the stream ended without a single chunk of a chat completion"), deltas)
            return
        has_failed = False
        for choice in self._choices.values():
            if choice.tool_calls is None and choice.finish_reason == choice.sent_reason:
                continue  # the client has all of it
            has_failed = has_failed or choice.finish_reason == "error"
            at = len(deltas)
            if choice.tool_calls is not None:
                choice.tool_calls.flush(deltas)
            if self._keeps_events and (rest := last_chunk(choice, deltas[at:], text_of(self._head.get("id")))):
                deltas.insert(at, EventDelta("chat", "", encode_object(rest)))
        if has_failed:
            self._fail(failure("the provider ended the answer with finish_reason error"), deltas)
            return
        self._ended = self.complete = True

    # ── the fast path ────────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, block: bytes, chunk: JsonObject) -> None:
        """This chunk is the template of the next, where it did nothing but make one text longer."""
        if self._samples_left == 0 or chunk.get("usage") is not None or "x_groq" in chunk:
            return
        choices = chunk.get("choices")
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            return
        choice = choices[0]
        delta = choice.get("delta")
        if (
            not isinstance(delta, dict)
            or choice.get("finish_reason") is not None
            or choice.get("logprobs") is not None
            or any(isinstance(value, list) for value in choice.values())
        ):
            return
        target = self._growing(self._choice_at(choice.get("index")), delta)
        if target is None:
            return
        self._learn_text(block, *target)

    def _learn_text(self, block: bytes, path: Path, pieces: list[str], make_delta: Callable[[str], AnyDelta]) -> None:
        field = b'"%b":"' % str(path[-1]).encode()
        at = block.find(field)  # of JSON with blanks the next event decides nothing: any may follow
        self._sample = TemplateSample(block, at + len(field) if at >= 0 else 0, path, pieces, make_delta)

    def _from_sample(self, sample: TemplateSample) -> Template | None:
        try:
            chunk = decode_object(sample.block[6:])
        except PeerError:
            return None  # the event has other fields of SSE
        return learn(sample.block, chunk, sample.path, sample.pieces, sample.make_delta)

    def _growing(self, choice: ChoiceState, delta: JsonObject) -> tuple[Path, list[str], Any] | None:
        """The one text that this delta made longer: its path, the list of its pieces, the maker of its deltas."""
        growing = [
            field for field, value in delta.items() if value and (field in GROWING or isinstance(value, (list, dict)))
        ]
        if len(growing) != 1:
            return None
        field, value = growing[0], delta[growing[0]]
        if field == "content" and isinstance(value, str):
            return _TEXT, choice.content.text_pieces(), _text_delta_of(choice)
        if field in TEXT_FIELDS and isinstance(value, str) and choice.reasoning is not None:
            return (*_DELTA, field), choice.reasoning.pieces[field], partial(ReasoningDelta, choice=choice.index)
        if field == "tool_calls" and isinstance(value, list) and len(value) == 1:
            return self._growing_call(choice, value[0])
        return None

    def _growing_call(self, choice: ChoiceState, item: Any) -> tuple[Path, list[str], Any] | None:
        """Only for a call with an id whose piece has its index alone: other pieces need the rules of `ToolCalls`."""
        calls = choice.tool_calls
        call = calls.at(item.get("index")) if isinstance(item, dict) and calls is not None else None
        if call is None or not call.id or not call.announced:
            return None
        plain = {"index", "function"} | {name for name in ("id", "type") if not item.get(name)}
        function = item.get("function")
        if not item.keys() <= plain or not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
            return None
        if any(value for name, value in function.items() if name != "arguments"):
            return None
        make_delta = partial(_arguments, call.position, choice.index)
        return (*_DELTA, "tool_calls", 0, "function", "arguments"), call.pieces, make_delta


def _text_delta_of(choice: ChoiceState) -> Callable[[str], TextDelta]:
    return partial(TextDelta, choice=choice.index) if choice.index else TextDelta


def _arguments(position: int, choice: int, text: str) -> ToolCallDelta:
    return ToolCallDelta(position, "", "", text, choice)
