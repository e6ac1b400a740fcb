"""A reply in the words of Anthropic Messages: the body, and the events that add up to it.

There is no refusal block here: a refusal is text, and the stop reason says what it was. Log probabilities do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from tailrace.messages import JsonObject, Stop, Usage
from tailrace.testing.scripted.reply import Block, CallBlock, Citation, RefusalBlock, Reply, TextBlock, ThinkingBlock
from tailrace.testing.scripted.request_reader import ScriptedRequest, Sse

STOP: dict[Stop, str] = {
    "end": "end_turn",
    "length": "max_tokens",
    "tools": "tool_use",
    "filter": "refusal",
    "pause": "pause_turn",
    "unknown": "end_turn",
}


def answer_body(reply: Reply, request: ScriptedRequest) -> JsonObject:
    return {
        **_message(request),
        "content": [{**_blank(block, request, index), **_whole(block)} for index, block in enumerate(reply.blocks)],
        "stop_reason": _stop_reason(reply),
        "stop_sequence": reply.stop_sequence or None,
        "usage": {**_usage_at_start(reply.counted), **_usage_at_end(reply.counted)},
    }


def answer_events(reply: Reply, request: ScriptedRequest) -> list[Sse]:
    start = {**_message(request), "usage": _usage_at_start(reply.counted)}
    sent: list[JsonObject] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(reply.blocks):
        sent.append({"type": "content_block_start", "index": index, "content_block": _blank(block, request, index)})
        if index == 0:
            sent.append({"type": "ping"})
        sent += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in _deltas(block)]
        sent.append({"type": "content_block_stop", "index": index})
    sent.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": _stop_reason(reply), "stop_sequence": reply.stop_sequence or None},
            "usage": _usage_at_end(reply.counted),
        }
    )
    sent.append({"type": "message_stop"})
    return [Sse(data, str(data["type"])) for data in sent]


def _message(request: ScriptedRequest) -> JsonObject:
    return {
        "model": request.model,
        "id": request.id("msg_01"),
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _stop_reason(reply: Reply) -> str:
    if reply.stop_sequence:
        return "stop_sequence"
    return "refusal" if reply.refused and reply.stop is None else STOP[reply.stopped]


def _usage_at_start(usage: Usage) -> JsonObject:
    lasting = {"ephemeral_5m_input_tokens": usage.cache_write_tokens, "ephemeral_1h_input_tokens": 0}
    return {**_usage_at_end(usage), "output_tokens": 1, "cache_creation": lasting, "service_tier": "standard"}


def _usage_at_end(usage: Usage) -> JsonObject:
    """Cumulative: it replaces what the start said."""
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }


def _blank(block: Block, request: ScriptedRequest, index: int) -> JsonObject:
    """The block as `content_block_start` announces it."""
    match block:
        case TextBlock(citations=citations) if citations:
            return {"citations": [], "type": "text", "text": ""}
        case TextBlock() | RefusalBlock():
            return {"type": "text", "text": ""}
        case ThinkingBlock():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case CallBlock():
            return {
                "type": "tool_use",
                "id": block.id or request.id("toolu_01", index),
                "name": block.name,
                "input": {},
            }
        case _:
            assert_never(block)


def _whole(block: Block) -> JsonObject:
    """What the block's deltas make of it."""
    match block:
        case TextBlock(citations=citations) if citations:
            return {"citations": [_citation(citation, block.text) for citation in citations], "text": block.text}
        case TextBlock() | RefusalBlock():
            return {"text": block.text}
        case ThinkingBlock():
            return {"thinking": block.text, "signature": block.signature}
        case CallBlock():
            return {"input": msgspec.json.decode(block.arguments or "{}")}
        case _:
            assert_never(block)


def _deltas(block: Block) -> Iterator[JsonObject]:
    match block:
        case TextBlock():
            for citation in block.citations:
                yield {"type": "citations_delta", "citation": _citation(citation, block.text)}
            yield from ({"type": "text_delta", "text": piece} for piece in block.pieces)
        case RefusalBlock():
            yield from ({"type": "text_delta", "text": piece} for piece in block.pieces)
        case ThinkingBlock():
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in block.pieces)
            if block.signature:
                yield {"type": "signature_delta", "signature": block.signature}
        case CallBlock():
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *block.pieces))
        case _:
            assert_never(block)


def _citation(citation: Citation, text: str) -> JsonObject:
    return {
        "type": "web_search_result_location",
        "cited_text": text[citation.start : citation.end],
        "url": citation.url,
        "title": citation.title,
        "encrypted_index": "",
    }
