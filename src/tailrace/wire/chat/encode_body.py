"""An answer of any dialect as a whole chat completion, for clients of our own server."""

from __future__ import annotations

from typing import Any

from tailrace.messages import Completion, JsonObject, Stop
from tailrace.wire.chat.completion import finish_reason_for
from tailrace.wire.chat.tool_calls import made_call_id
from tailrace.wire.chat.usage import usage_body
from tailrace.wire.peer_json import objects_of, text_of
from tailrace.wire.translation.citations import citations_in

REASONS: dict[Stop, str] = {
    "end": "stop",
    "length": "length",
    "tools": "tool_calls",
    "filter": "content_filter",
    "pause": "stop",
    "unknown": "stop",
}
# The finish reasons of other dialects in this one; a reason that is not here is kept.
FOREIGN_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "completed": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "incomplete": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
LEGACY_REASON = "function_call"


def encode_body(
    completion: Completion,
    *,
    id: str = "",  # noqa: A002 - the field's name
    model: str = "",
    created: int = 0,
    legacy_calls: bool = False,
) -> JsonObject:
    """The answer as a non-streaming body. An answer of this dialect keeps its own body, mended as its chunks are.
    `legacy_calls` as in `StreamEncoder`."""
    if completion.dialect == "chat":
        return {"created": created, **own_body(completion.body)}
    refusal = completion.refusal or None  # some say that they refuse, and not in which words
    message: dict[str, Any] = {"role": "assistant", "content": completion.text or None, "refusal": refusal}
    if cited := [citation.chat_annotation() for citation in citations_in(completion.message)]:
        message["annotations"] = cited
    if completion.reasoning:
        message["reasoning_content"] = completion.reasoning
    reason = REASONS[completion.stop]
    if completion.tool_calls and legacy_calls:
        first = completion.tool_calls[0]
        message["function_call"] = {"name": first.name, "arguments": first.arguments}
        reason = LEGACY_REASON if reason == "tool_calls" else reason
    elif completion.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in completion.tool_calls
        ]
    elif message["content"] is None and refusal is None:
        message["content"] = ""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {
        "id": id or completion.id,
        "object": "chat.completion",
        "created": created,
        "model": model or completion.model,
        "choices": [choice],
        "usage": usage_body(completion.usage, completion.dialect),
    }


def own_body(body: JsonObject) -> JsonObject:
    """A body of this dialect, mended as a provider's chunks are."""
    choices = [_own_choice(choice, text_of(body.get("id"))) for choice in objects_of(body.get("choices"))]
    return {**body, "object": "chat.completion", "choices": choices}


def _own_choice(choice: JsonObject, answer_id: str) -> JsonObject:
    if not isinstance(message := choice.get("message"), dict):
        return choice
    message = {"content": None, "refusal": None, **message}
    if calls := objects_of(message.get("tool_calls")):
        message["tool_calls"] = [
            call if call.get("id") else {**call, "id": made_call_id(answer_id, position)}
            for position, call in enumerate(calls)
        ]
    reason = finish_reason_for(text_of(choice.get("finish_reason")), called=bool(calls))
    return {**choice, "message": message, "finish_reason": reason}
