"""A `chat.completion` body, streamed or not, as a `Completion`. Never raises: a body with missing fields or fields of
another type gives a completion with less in it."""

from __future__ import annotations

from typing import Any

from tailrace import messages
from tailrace.messages import Completion, JsonObject, Native, Part, Reasoning, Refusal, Stop, Text, ToolCall, Usage
from tailrace.wire.chat import reasoning
from tailrace.wire.chat.tool_calls import CALL_FIELDS, arguments_text, function_of, made_call_id
from tailrace.wire.dialect import WireDialect
from tailrace.wire.peer_json import count_of, object_of, objects_of, text_of
from tailrace.wire.reasoning_seal import TEXT_FIELDS
from tailrace.wire.translation.citations import of_annotations

STOPS: dict[str, Stop] = {
    "stop": "end",
    "eos": "end",
    "end_turn": "end",
    "stop_sequence": "end",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral: the context is full
    "tool_calls": "tools",
    "tool_use": "tools",
    "function_call": "tools",
    "content_filter": "filter",
    "safety": "filter",
}
# The fields that make parts of a message, beside its content.
_BEYOND_CONTENT = frozenset(
    {*TEXT_FIELDS, reasoning.DETAILS, "refusal", "tool_calls", "function_call", "audio", "annotations"}
)
_TOTALS_ALONE = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})  # no detail has to be looked for


def completion_from_body(body: JsonObject) -> Completion:
    """The answer that the body of a chat completion gives: its first choice."""
    choices = objects_of(body.get("choices"))
    choice = choices[0] if choices else {}
    message = object_of(choice.get("message"))
    answer_id = text_of(body.get("id"))
    parts = _parts(message, answer_id)
    reason = text_of(choice.get("finish_reason"))
    return Completion(
        dialect="chat",
        body=body,
        message=messages.Message("assistant", parts),
        id=answer_id,
        model=text_of(body.get("model")),
        finish_reason=reason,
        stop=_stop(reason, called=ToolCall in map(type, parts)),
        usage=usage_of(body.get("usage")),
        refusal=(text_of(message["refusal"]) or None) if "refusal" in message else None,
        has_unnamed_call="tool_calls" in message
        and any(not text_of(function_of(call).get("name")) for call in objects_of(message["tool_calls"])),
    )


def finish_reason_for(reason: str | None, *, called: bool) -> str:
    """The finish reason that a client receives: calls outweigh a plain end, and an answer that ended has a reason."""
    stop = STOPS.get((reason or "stop").lower(), "unknown")
    return "tool_calls" if stop == "end" and called else reason or "stop"


def _stop(reason: str, *, called: bool) -> Stop:
    """Calls outweigh a plain `stop` (B36), and never a `length`: the last of them may be cut (B35)."""
    stop = STOPS[reason] if reason in STOPS else STOPS.get(reason.lower(), "unknown")
    if stop in ("end", "tools"):
        return "tools" if called else "end"
    return stop


def _parts(message: JsonObject, answer_id: str) -> tuple[Part, ...]:
    for field, value in message.items():
        if value and field in _BEYOND_CONTENT:
            break
    else:  # most messages: -50 calls of 890 a request
        return tuple(_content(message.get("content")))
    parts: list[Part] = []
    if thought := _reasoning(message):
        parts.append(thought)
    parts += _content(message.get("content"))
    if cited := of_annotations(message):
        parts.append(Native("responses", {"type": "output_text", "annotations": [each.annotation() for each in cited]}))
    if refusal := text_of(message.get("refusal")):
        parts.append(Refusal(refusal))
    calls = message.get("tool_calls")
    parts += _calls(calls if isinstance(calls, list) else [], answer_id)
    function = object_of(message.get("function_call"))
    if name := text_of(function.get("name")):
        parts.append(ToolCall(made_call_id(answer_id, 0), name, arguments_text(function.get("arguments")) or "{}"))
    if audio_id := text_of(object_of(message.get("audio")).get("id")):
        parts.append(Native("chat", {"audio": {"id": audio_id}}))  # the next request may refer to it by its id only
    return tuple(parts)


def _reasoning(message: JsonObject) -> Reasoning | None:
    """Its native form is the message's own fields: a server that sent them wants them back with its tool calls."""
    native = {
        field: value
        for field in (*TEXT_FIELDS, reasoning.DETAILS)
        if isinstance(value := message.get(field), (str, list)) and value
    }
    return Reasoning(reasoning.text_of_message(message), "chat", native) if native else None


def _content(content: Any) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    parts: list[Part] = []
    for item in content if isinstance(content, list) else []:
        if isinstance(item, str):
            parts.append(Text(item))
        elif isinstance(item, dict):
            parts.append(_content_part(item))
    return parts


def _content_part(item: JsonObject) -> Part:
    match item:
        case {"type": "text", "text": str(words)}:
            return Text(words)
        case {"type": "refusal", "refusal": str(words)}:
            return Refusal(words)
        case {"type": "thinking"}:
            return Reasoning(reasoning.text_of_thinking(item), "chat", {"content": [item]})
        case _:
            return Native("chat", {"content": [item]})


def _calls(items: list[Any], answer_id: str) -> list[Part]:
    """The calls that can be made: one that never got a name is in the body alone. Fields that a server wants back
    with a call (Gemini's `extra_content`) go along in one native item, by the call's id."""
    parts: list[Part] = []
    extras: list[JsonObject] = []
    for position, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        function = function_of(item)
        if not (name := text_of(function.get("name"))):
            continue
        call_id = text_of(item.get("id")) or made_call_id(answer_id, position)
        arguments = arguments_text(function.get("arguments", function.get("input")))
        parts.append(ToolCall(call_id, name, arguments if arguments.strip() else "{}"))
        if extra := {k: v for k, v in item.items() if k not in CALL_FIELDS and v is not None}:
            extras.append({"id": call_id} | extra)
    if extras:
        parts.append(Native("chat", {"tool_calls": extras}))
    return parts


# ── tokens: servers disagree on where the cached ones stand, and all places are read ─────────────────────────


def usage_of(value: object) -> Usage:
    """The `usage` object as a value; whatever is absent, null or not a count is 0."""
    if value is None:
        return Usage()
    raw = object_of(value)
    if raw.keys() <= _TOTALS_ALONE:
        return Usage(count_of(raw.get("prompt_tokens")), count_of(raw.get("completion_tokens")))
    prompt, answer = object_of(raw.get("prompt_tokens_details")), object_of(raw.get("completion_tokens_details"))
    return Usage(
        input_tokens=count_of(raw.get("prompt_tokens")),
        output_tokens=count_of(raw.get("completion_tokens")),
        cache_read_tokens=_first(
            prompt.get("cached_tokens"),
            raw.get("prompt_cache_hit_tokens"),  # DeepSeek
            raw.get("cache_read_input_tokens"),  # Databricks, Z.ai and other hosts of Anthropic's models
            raw.get("cached_tokens"),  # Moonshot
            raw.get("num_cached_tokens"),  # Mistral
        ),
        cache_write_tokens=_first(prompt.get("cache_write_tokens"), raw.get("cache_creation_input_tokens")),
        reasoning_tokens=_first(answer.get("reasoning_tokens"), raw.get("reasoning_tokens")),
    )


def usage_body(usage: Usage, source: WireDialect) -> JsonObject:
    """The value, as `source` counts it, as a `usage` object: here the prompt's tokens include the cached ones."""
    prompt = source.usage_with_cached(usage).input_tokens
    body: JsonObject = {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
    }
    if usage.cache_read_tokens or usage.cache_write_tokens:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cache_read_tokens}
        if usage.cache_write_tokens:
            body["prompt_tokens_details"]["cache_write_tokens"] = usage.cache_write_tokens
    if usage.reasoning_tokens:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return body


def _first(*values: object) -> int:
    for value in values:
        if value and (count := count_of(value)):
            return count
    return 0
