"""One choice of a streamed answer: its deltas in, the whole `choice` of the non-streaming body out. Known text is
joined, lists are extended, objects are updated, and any other field has its last value that is not null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace import messages
from tailrace.config.quirks import WireQuirks
from tailrace.messages import AnyDelta, JsonObject, NativeDelta, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta
from tailrace.wire.chat.reasoning import DETAILS, GrowingObject, ReasoningState, text_of_thinking
from tailrace.wire.chat.tool_calls import GrowingCall, ToolCalls, arguments_text
from tailrace.wire.peer_json import assign_fields, text_of
from tailrace.wire.reasoning_seal import TEXT_FIELDS, USUAL_FIELD, field_delta
from tailrace.wire.templates import joined

CALL_REASONS = frozenset({"tool_calls", "function_call"})
# `message` repeats the whole message so far beside the delta (Perplexity, Writer), `text` the delta (Together).
_CHOICE_FIELDS = frozenset({"index", "delta", "message", "text", "finish_reason", "logprobs"})
GROWING = frozenset({"content", "refusal", "tool_calls", "function_call", "audio", *TEXT_FIELDS, DETAILS})
_DELTA_FIELDS = GROWING | {"role", "index", "token_id"}
_NEUTRAL_FIELDS = _DELTA_FIELDS - {"audio", DETAILS}  # fully covered by the neutral deltas
_THOUGHTS = frozenset({*TEXT_FIELDS, DETAILS})
_PLAIN_CHOICE_FIELDS = frozenset({"index", "delta", "finish_reason", "logprobs"})


class ChoiceState:
    """Everything that came for one choice so far. Rare fields are made when they first come."""

    __slots__ = (
        *("_audio", "_began", "_cumulative", "_fields", "_function_call", "_has_logprobs", "_logprobs", "_message"),
        *("_reasoning_field", "_refusal", "_role", "_shown", "content", "finish_reason", "index", "reasoning"),
        *("_name_in_pieces", "sent_reason", "sent_role", "tool_calls"),
    )

    def __init__(self, index: int, quirks: WireQuirks) -> None:
        self.index = index
        self.finish_reason: str | None = None
        self.content = Content()
        self.reasoning: ReasoningState | None = None
        self.tool_calls: ToolCalls | None = None
        self._name_in_pieces = quirks.name_in_pieces
        self._cumulative = quirks.cumulative_text
        self._shown = ""  # the text so far, kept only for a provider that repeats it
        self._role = ""
        self._reasoning_field = USUAL_FIELD
        self._refusal: list[str] | None = None
        self._function_call: GrowingCall | None = None
        self._audio: GrowingObject | None = None
        self._has_logprobs = False  # the field came, though it be null
        self._logprobs: JsonObject | None = None
        self._message: JsonObject | None = None  # the message's other fields, and nulls where the delta had them
        self._fields: JsonObject | None = None  # the choice's other fields
        self._began = False
        self.sent_role = False  # of the provider's own chunks: the client has the role, and this finish reason
        self.sent_reason = ""

    @property
    def calls(self) -> Sequence[GrowingCall]:
        """Its tool calls."""
        return self.tool_calls.calls if self.tool_calls is not None else ()

    def add(self, choice: JsonObject, deltas: list[AnyDelta]) -> None:
        """Takes in one element of a chunk's `choices`."""
        delta = choice.get("delta")
        if not isinstance(delta, dict) and not self._began:
            delta = choice.get("message")  # the complete answer in one event: a server that does not stream this model
        native: JsonObject = {}
        if isinstance(delta, dict) and delta:
            self._began = True
            native = self._native_in(delta)
            self._add_delta(delta, deltas)
        if "logprobs" in choice:
            self._has_logprobs = True
            if isinstance(logprobs := choice["logprobs"], dict):
                self._logprobs = grown(self._logprobs if self._logprobs is not None else {}, logprobs, frozenset())
                if any(logprobs.values()):
                    native["logprobs"] = logprobs
        if native:
            deltas.append(NativeDelta("chat", native, self.index))
        self._fields = grown(self._fields, choice, _CHOICE_FIELDS)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish(reason, deltas)

    def add_plain(self, choice: JsonObject, deltas: list[AnyDelta], *, relayed: bool) -> bool | None:
        """What `add` comes to for text, a role, a finish reason, and nulls. True where the text grew and goes on; None,
        with nothing taken in, where anything else is in it, or where it needs a mend and is `relayed`."""
        if "delta" not in choice or not _PLAIN_CHOICE_FIELDS.issuperset(choice) or self._cumulative:
            return None
        delta, reason = choice["delta"], choice.get("finish_reason")
        if delta.__class__ is not dict or ("logprobs" in choice and choice["logprobs"] is not None):
            return None
        if reason is not None and (
            reason.__class__ is not str or reason in ("", "error") or self.tool_calls is not None
        ):
            return None
        if (said := _plain_text(delta)) is None:
            return None
        content, role, has_nulls = said
        if relayed and not self.sent_role and not role:
            return None
        self.sent_role = True
        if delta:
            self._began = True
            self._role = self._role or role
            if has_nulls:
                self._keep_nulls(delta)
        if content:
            self.content.add_text(content)
            deltas.append(TextDelta(content, self.index))
        elif content is not None:
            self.content.seen = True
        if "logprobs" in choice:
            self._has_logprobs = True
        if reason is not None:
            self.sent_reason = reason
            self._finish(reason, deltas)
        return bool(content) and reason is None

    def rebuilt(self) -> JsonObject:
        """The choice as the non-streaming answer has it."""
        message: JsonObject = {"role": self._role or "assistant", "content": self.content.rebuilt()}
        if self._message:
            message |= copied(self._message)
        if self.reasoning is not None and self.reasoning.seen:
            message |= self.reasoning.rebuilt()
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self.tool_calls is not None and self.tool_calls.calls:
            message["tool_calls"] = self.tool_calls.rebuilt()
        if self._function_call is not None:
            message["function_call"] = self._function_call.rebuilt()["function"]
        if self._audio is not None and (audio := self._audio.rebuilt()):
            message["audio"] = audio
        choice: JsonObject = {"index": self.index, "message": message, "finish_reason": self.finish_reason}
        if self._has_logprobs:
            choice["logprobs"] = None if self._logprobs is None else copied(self._logprobs)
        if self._fields:
            choice |= copied(self._fields)
        return choice

    def _name_field(self, delta: JsonObject, deltas: list[AnyDelta]) -> None:
        """Says where the thoughts are, unless that is known."""
        field = next((field for field in TEXT_FIELDS if delta.get(field)), "")
        if field != self._reasoning_field:
            self._reasoning_field = field
            deltas.append(field_delta(field, self.index))

    def _add_delta(self, delta: JsonObject, deltas: list[AnyDelta]) -> None:
        choice = self.index
        thought = self._add_thoughts(delta)
        content, new = delta.get("content"), ""
        if isinstance(content, str):
            new = self._new_end(content) if self._cumulative else content
            self.content.add_text(new)
        elif isinstance(content, list):
            new, thought_in_parts = self.content.add_parts(content)
            thought = thought or thought_in_parts
        if thought:
            self._name_field(delta, deltas)
            deltas.append(ReasoningDelta(thought, choice))
        if new:
            deltas.append(TextDelta(new, choice))
        self._role = self._role or text_of(delta.get("role"))
        if isinstance(delta.get("refusal"), str):
            self._add_refusal(delta["refusal"], deltas)
        calls = delta.get("tool_calls")
        if isinstance(calls, list) and calls:
            if self.tool_calls is None:
                self.tool_calls = ToolCalls(choice=choice, name_in_pieces=self._name_in_pieces)
            self.tool_calls.add(calls, deltas)
        if isinstance(delta.get("function_call"), dict):
            self._add_function_call(delta["function_call"], deltas)
        if isinstance(delta.get("audio"), dict):
            self._audio = self._audio or GrowingObject("data", "transcript")
            self._audio.add(delta["audio"])
        self._keep_nulls(delta)
        self._message = grown(self._message, delta, _DELTA_FIELDS)

    def _add_thoughts(self, delta: JsonObject) -> str:
        """Returns the new ones."""
        if self.reasoning is None:
            if _THOUGHTS.isdisjoint(delta):
                return ""
            self.reasoning = ReasoningState()
        return self.reasoning.add(delta)

    def _add_refusal(self, refusal: str, deltas: list[AnyDelta]) -> None:
        if self._refusal is None:
            self._refusal = []
        self._refusal.append(refusal)
        if refusal:
            deltas.append(RefusalDelta(refusal, self.index))

    def _keep_nulls(self, delta: JsonObject) -> None:
        for field, value in delta.items():
            if value is None and field != "content" and field in GROWING:
                if self._message is None:
                    self._message = {}
                self._message.setdefault(field, None)

    def _native_in(self, delta: JsonObject) -> JsonObject:
        """The fields that only this dialect has, where their value is new: a server may repeat it in every chunk."""
        known = self._message or {}
        fields = {
            name: value
            for name, value in delta.items()
            if name not in _NEUTRAL_FIELDS and value and (isinstance(value, list) or known.get(name) != value)
        }
        return {"delta": fields} if fields else {}

    def _new_end(self, content: str) -> str:
        """The new end of a text that repeats all text before it (A17)."""
        if not content.startswith(self._shown):
            return content
        new, self._shown = content[len(self._shown) :], content
        return new

    def _add_function_call(self, function: JsonObject, deltas: list[AnyDelta]) -> None:
        """The predecessor of `tool_calls`: one call, no id."""
        call = self._function_call
        if call is None:
            call = self._function_call = GrowingCall(len(self.calls))
        call.name = text_of(function.get("name")) or call.name
        arguments = arguments_text(function.get("arguments"))
        call.pieces.append(arguments)
        if call.announced:
            if arguments:
                deltas.append(ToolCallDelta(call.position, arguments=arguments, choice=self.index))
        elif call.name:
            call.announced = True
            deltas.append(ToolCallDelta(call.position, "", call.name, "".join(call.pieces), self.index))

    def _finish(self, reason: str, deltas: list[AnyDelta]) -> None:
        """A second reason replaces the first unless the first is a tool call (B36)."""
        if self.tool_calls is not None:
            self.tool_calls.flush(deltas)
        if reason != self.finish_reason and self.finish_reason not in CALL_REASONS:
            self.finish_reason = reason
            deltas.append(messages.FinishDelta(reason, self.index))


def _plain_text(delta: JsonObject) -> tuple[str | None, str, bool] | None:
    """The content, the role, and whether there are nulls; None where the delta has anything else."""
    content, role, has_nulls = None, "", False
    for field in delta:
        if (value := delta[field]) is None:
            if field not in _DELTA_FIELDS:
                return None
            has_nulls = True
        elif value.__class__ is not str:
            return None
        elif field == "content":
            content = value
        elif field == "role":
            role = value
        else:
            return None
    return content, role, has_nulls


def grown(kept: JsonObject | None, new: JsonObject, known: frozenset[str]) -> JsonObject | None:
    """The fields that are kept, and of the new ones those that are not `known`: lists are extended (entries with an
    `index` updated in place), objects updated, anything else replaced; null replaces nothing."""
    for field, value in new.items():
        if field in known:
            continue
        if kept is None:
            kept = {}
        old = kept.get(field)
        if isinstance(value, list):
            kept[field] = _grow_list(old if isinstance(old, list) else [], value)
        elif isinstance(value, dict) and isinstance(old, dict):
            assign_fields(old, value)
        elif value is not None or field not in kept:
            kept[field] = value
    return kept


def _grow_list(old: list[Any], new: list[Any]) -> list[Any]:
    for item in new:
        index = item.get("index") if isinstance(item, dict) else None
        if isinstance(index, int) and 0 <= index < len(old) and isinstance(old[index], dict):
            assign_fields(old[index], item)
        else:
            old.append(item)
    return old


def copied(fields: JsonObject) -> JsonObject:
    """A copy that later growth of the original does not change: lists and objects one level down are what grows."""
    return {field: value.copy() if isinstance(value, (dict, list)) else value for field, value in fields.items()}


# ── a message's `content`: one text, or typed parts (Mistral's thinking and text) ────────────────────────────


class Content:
    """Text is joined once, in `rebuilt`. A string after parts continues as a text part."""

    __slots__ = ("_parts", "_text", "seen")

    def __init__(self) -> None:
        self.seen = False  # a string or parts came: the body has "" rather than null
        self._text: list[str] = []
        self._parts: list[_Part] | None = None  # once parts came: the body is a list

    def text_pieces(self) -> list[str]:
        """Where the next piece of plain text belongs."""
        return self._text if self._parts is None else _last_part(self._parts, "text").pieces

    def add_text(self, text: str) -> None:
        self.seen = True
        if text:
            (self._text if self._parts is None else self.text_pieces()).append(text)

    def add_parts(self, items: list[Any]) -> tuple[str, str]:
        """Takes in typed parts; returns the text and the thoughts that are new."""
        self.seen = True
        parts = self._parts
        if parts is None:
            parts = self._parts = []
            if self._text:
                _begun(parts, "text").pieces.extend(self._text)
        texts: list[str] = []
        thoughts: list[str] = []
        for item in items:
            if isinstance(item, str):
                _last_part(parts, "text").pieces.append(item)
                texts.append(item)
            elif isinstance(item, dict):
                text, thought = _add_part(parts, item)
                texts.append(text)
                thoughts.append(thought)
        return "".join(texts), "".join(thoughts)

    def rebuilt(self) -> str | list[JsonObject] | None:
        if self._parts is not None:
            return [part.rebuilt() for part in self._parts]
        return joined(self._text) if self.seen else None


class _Part:
    __slots__ = ("fields", "kind", "pieces")

    def __init__(self, kind: str) -> None:
        self.kind = kind  # "text" and "thinking" grow; "" is complete as it came
        self.pieces: list[str] = []
        self.fields: JsonObject = {}

    def rebuilt(self) -> JsonObject:
        match self.kind:
            case "text":
                return {"type": "text", "text": joined(self.pieces)} | self.fields
            case "thinking":
                thoughts = [{"type": "text", "text": "".join(self.pieces)}]
                return {"type": "thinking", "thinking": thoughts} | self.fields
            case _:
                return self.fields


def _add_part(parts: list[_Part], item: JsonObject) -> tuple[str, str]:
    """Takes in one part; returns its text and its thoughts."""
    kind = item.get("type")
    text = item.get("text") if kind == "text" else text_of_thinking(item)
    if kind not in ("text", "thinking") or not isinstance(text, str):
        _begun(parts, "").fields = item  # a part of an unknown kind is complete
        return "", ""
    part = _last_part(parts, kind)
    part.pieces.append(text)
    part.fields |= {field: value for field, value in item.items() if field not in ("type", "text", "thinking")}
    return (text, "") if kind == "text" else ("", text)


def _last_part(parts: list[_Part], kind: str) -> _Part:
    """The part that a piece of this kind continues: the last one, or a new one."""
    return parts[-1] if parts and parts[-1].kind == kind else _begun(parts, kind)


def _begun(parts: list[_Part], kind: str) -> _Part:
    part = _Part(kind)
    parts.append(part)
    return part
