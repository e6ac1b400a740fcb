"""A reply in the words of OpenAI Chat Completions: the body, and the chunks that add up to it.

Chat has one text per message, so several text blocks become one. Reasoning travels as `reasoning_content`, the
field most compatible services use; OpenAI itself sends none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

from tailrace.messages import JsonObject, Stop, Usage
from tailrace.testing.scripted.reply import CallBlock, Citation, RefusalBlock, Reply, TextBlock, ThinkingBlock
from tailrace.testing.scripted.request_reader import CREATED, ScriptedRequest, Sse, logprob

FINISH: dict[Stop, str] = {
    "end": "stop",
    "length": "length",
    "tools": "tool_calls",
    "filter": "content_filter",
    "pause": "stop",
    "unknown": "stop",
}
DONE = "[DONE]"


def answer_body(reply: Reply, request: ScriptedRequest) -> JsonObject:
    return {
        "id": request.id("chatcmpl-"),
        "object": "chat.completion",
        "created": CREATED,
        "model": request.model,
        "choices": [
            {
                "index": index,
                "message": _message(reply, request),
                "logprobs": _all_logprobs(reply),
                "finish_reason": FINISH[reply.stopped],
            }
            for index in range(request.choices)
        ],
        "usage": usage_of(reply.counted),
        "service_tier": "default",
        "system_fingerprint": "fp_" + request.digest[:10],
    }


def answer_events(reply: Reply, request: ScriptedRequest) -> list[Sse]:
    sent = [
        Sse(_chunk(request, [_choice(index, delta, logprobs)]))
        for delta, logprobs in _deltas(reply, request)
        for index in range(request.choices)
    ]
    finish = FINISH[reply.stopped]
    sent += [Sse(_chunk(request, [_choice(index, {}, None, finish)])) for index in range(request.choices)]
    if request.wants_usage:
        sent.append(Sse({**_chunk(request, []), "usage": usage_of(reply.counted)}))
    padded = [Sse({**event.data, "obfuscation": request.padding(at)}) for at, event in enumerate(sent)]  # type: ignore[dict-item]
    return [*padded, Sse(DONE)]


def usage_of(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _message(reply: Reply, request: ScriptedRequest) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": _opening_content(reply), "refusal": None}
    if reply.text:
        message["content"] = reply.text
    for block in reply.blocks:
        match block:
            case ThinkingBlock():
                message["reasoning_content"] = message.get("reasoning_content", "") + block.text
            case RefusalBlock():
                message["refusal"] = (message["refusal"] or "") + block.text
            case TextBlock(citations=citations) if citations:
                message["annotations"] = [*message.get("annotations", []), *map(_annotation, citations)]
            case TextBlock() | CallBlock():
                pass
            case _:
                assert_never(block)
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call_id(request, block, index),
                "type": "function",
                "function": {"name": block.name, "arguments": block.arguments},
            }
            for index, block in enumerate(reply.calls)
        ]
    return message


def _opening_content(reply: Reply) -> str | None:
    """OpenAI opens with an empty text, or with null where no text will come."""
    speaks = any(isinstance(block, TextBlock) for block in reply.blocks) or not reply.blocks
    return "" if speaks else None


def _deltas(reply: Reply, request: ScriptedRequest) -> Iterator[tuple[JsonObject, JsonObject | None]]:
    opened: JsonObject | None = {"content": [], "refusal": None} if _all_logprobs(reply) else None
    yield {"role": "assistant", "content": _opening_content(reply), "refusal": None}, opened
    index = 0
    for block in reply.blocks:
        match block:
            case TextBlock():
                for piece in block.pieces:
                    logprobs: JsonObject = {"content": [logprob(piece)], "refusal": None}
                    yield {"content": piece}, logprobs if block.logprobs else None
                if block.citations:
                    yield {"annotations": [_annotation(citation) for citation in block.citations]}, None
            case ThinkingBlock():
                yield from (({"reasoning_content": piece}, None) for piece in block.pieces)
            case RefusalBlock():
                yield from (({"refusal": piece}, None) for piece in block.pieces)
            case CallBlock():
                yield from ((delta, None) for delta in _call_deltas(block, call_id(request, block, index), index))
                index += 1
            case _:
                assert_never(block)


def _call_deltas(block: CallBlock, call_id: str, index: int) -> Iterator[JsonObject]:
    function = {"name": block.name, "arguments": ""}
    yield {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
    for piece in block.pieces:
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def call_id(request: ScriptedRequest, block: CallBlock, index: int) -> str:
    return block.id or request.id("call_", index)


def _all_logprobs(reply: Reply) -> JsonObject | None:
    counted = [block for block in reply.blocks if isinstance(block, TextBlock) and block.logprobs]
    if not counted:
        return None
    return {"content": [logprob(piece) for block in counted for piece in block.pieces], "refusal": None}


def _annotation(citation: Citation) -> JsonObject:
    place = {"end_index": citation.end, "start_index": citation.start, "title": citation.title, "url": citation.url}
    return {"type": "url_citation", "url_citation": place}


def _choice(index: int, delta: JsonObject, logprobs: JsonObject | None, finish: str | None = None) -> JsonObject:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


def _chunk(request: ScriptedRequest, choices: list[JsonObject]) -> JsonObject:
    chunk: dict[str, Any] = {
        "id": request.id("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": request.model,
        "service_tier": "default",
        "system_fingerprint": "fp_" + request.digest[:10],
        "choices": choices,
    }
    return {**chunk, "usage": None} if request.wants_usage else chunk
