"""Whole chat completions: made of an answer of any dialect, and taken apart into the chunks of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tailrace.messages import Completion, JsonObject, Stop
from tailrace.wire.chat.completion import finish_reason_for
from tailrace.wire.chat.tool_calls import arguments_text, made_call_id
from tailrace.wire.chat.usage import usage_body
from tailrace.wire.peer_json import objects_of, text_of
from tailrace.wire.relay import AnswerHeader
from tailrace.wire.translation.citations import citations_in

REASONS: dict[Stop, str] = {
    "end": "stop",
    "length": "length",
    "tools": "tool_calls",
    "filter": "content_filter",
    "pause": "stop",
    "unknown": "stop",
}
LEGACY_REASON = "function_call"


def encode_body(completion: Completion, header: AnswerHeader) -> JsonObject:
    """The answer as a non-streaming body. A provider's body of this dialect is kept, mended as its chunks are."""
    if completion.dialect == "chat" and completion.body:
        ours = {"id": header.id, "model": header.model}
        return {"created": header.created, **own_body(completion.body), **ours}
    refusal = completion.refusal or None  # some say that they refuse, and not in which words
    message: dict[str, Any] = {"role": "assistant", "content": completion.text or None, "refusal": refusal}
    if cited := [citation.chat_annotation() for citation in citations_in(completion.message)]:
        message["annotations"] = cited
    if completion.reasoning:
        message["reasoning_content"] = completion.reasoning
    reason = REASONS[completion.stop]
    if completion.tool_calls and header.legacy_calls:
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
        "id": header.id,
        "object": "chat.completion",
        "created": header.created,
        "model": header.model,
        "choices": [choice],
        "usage": usage_body(completion.usage, header.source),
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


def chunks_of_body(body: JsonObject) -> Iterator[JsonObject]:
    """A body of this dialect as a stream: one chunk with all but the usage, then the usage."""
    body = own_body(body)
    head = {name: value for name, value in body.items() if name not in ("choices", "usage")}
    choices = [
        {**{k: v for k, v in choice.items() if k != "message"}, "delta": _delta_of(choice.get("message"))}
        for choice in objects_of(body.get("choices"))
    ]
    yield {**head, "choices": choices}
    if isinstance(body.get("usage"), dict):
        yield {**head, "choices": [], "usage": body["usage"]}


def _delta_of(message: object) -> JsonObject:
    delta: JsonObject = dict(message) if isinstance(message, dict) else {}
    if calls := objects_of(delta.get("tool_calls")):
        delta["tool_calls"] = [{"index": index, **call, **_text_arguments(call)} for index, call in enumerate(calls)]
    return delta


def _text_arguments(call: JsonObject) -> JsonObject:
    function = call.get("function")
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str):
        return {}
    return {"function": {**function, "arguments": arguments_text(function.get("arguments"))}}
