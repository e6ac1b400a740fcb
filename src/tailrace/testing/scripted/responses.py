"""A reply in the words of OpenAI Responses: the response object, and the events that add up to it.

Neighbouring texts and refusals are parts of one message item; each thought and each call is an item of its own. A
call of a custom tool is written with the one argument `input`, and of a tool in a namespace as `<namespace>__<name>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, assert_never

import msgspec

from tailrace.messages import JsonObject, Usage
from tailrace.testing.scripted.reply import (
    CallBlock,
    Citation,
    RefusalBlock,
    Reply,
    TextBlock,
    ThinkingBlock,
    pieces_of,
)
from tailrace.testing.scripted.request_reader import CREATED, ScriptedRequest, Sse, logprob

# What a response repeats of its request, and what it says where the request said nothing.
_ECHOED: JsonObject = msgspec.json.decode(Path(__file__).with_name("response_defaults.json").read_bytes())
_INCOMPLETE = {"length": "max_output_tokens", "filter": "content_filter"}

_Speech = tuple[TextBlock | RefusalBlock, ...]


def answer_body(reply: Reply, request: ScriptedRequest) -> JsonObject:
    reason = _INCOMPLETE.get(reply.stopped)
    output = [_item(blocks, request, index) for index, blocks in enumerate(_items(reply))]
    if reason and output and "status" in output[-1]:
        output[-1] = {**output[-1], "status": "incomplete"}
    return {
        **opening(request),
        "status": "incomplete" if reason else "completed",
        "completed_at": None if reason else CREATED + 1,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output,
        "service_tier": "default",
        "usage": _usage(reply.counted),
    }


def answer_events(reply: Reply, request: ScriptedRequest) -> list[Sse]:
    whole = answer_body(reply, request)
    sent: list[JsonObject] = [
        {"type": "response.created", "response": opening(request)},
        {"type": "response.in_progress", "response": opening(request)},
    ]
    for index, blocks in enumerate(_items(reply)):
        item = whole["output"][index]
        sent.append({"type": "response.output_item.added", "item": _blank(item), "output_index": index})
        sent += _item_events(blocks, item, {"item_id": item["id"], "output_index": index})
        sent.append({"type": "response.output_item.done", "item": item, "output_index": index})
    sent.append({"type": f"response.{whole['status']}", "response": whole})
    return numbered(sent, request)


def numbered(sent: Sequence[JsonObject], request: ScriptedRequest, *, start: int = 0) -> list[Sse]:
    """The events as they go out: in sequence, and the deltas padded."""
    return [
        Sse({**data, **_padding(data, request, number), "sequence_number": number}, str(data["type"]))
        for number, data in enumerate(sent, start)
    ]


def opening(request: ScriptedRequest) -> JsonObject:
    """The response object before anything was said."""
    echoed = {key: request.body.get(key, default) for key, default in _ECHOED.items()}
    echoed["tools"] = [_echoed_tool(tool) for tool in echoed["tools"] or ()]
    return {
        "id": request.id("resp_"),
        "object": "response",
        "created_at": CREATED,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "model": request.model,
        "output": [],
        "presence_penalty": 0.0,
        **echoed,
        "service_tier": "auto",
        "usage": None,
    }


def _usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _padding(data: JsonObject, request: ScriptedRequest, number: int) -> JsonObject:
    padded = str(data["type"]).endswith(("text.delta", "arguments.delta"))  # those of a refusal come bare
    return {"obfuscation": request.padding(number)} if padded else {}


def _items(reply: Reply) -> list[_Speech | ThinkingBlock | CallBlock]:
    items: list[_Speech | ThinkingBlock | CallBlock] = []
    for speech, blocks in groupby(reply.blocks, key=lambda block: isinstance(block, TextBlock | RefusalBlock)):
        if speech:
            items.append(tuple(block for block in blocks if isinstance(block, TextBlock | RefusalBlock)))
        else:
            items += [block for block in blocks if isinstance(block, ThinkingBlock | CallBlock)]
    return items


def _item(blocks: _Speech | ThinkingBlock | CallBlock, request: ScriptedRequest, index: int) -> JsonObject:
    match blocks:
        case tuple():
            return {
                "id": request.id("msg_", index),
                "type": "message",
                "status": "completed",
                "content": [_part(block) for block in blocks],
                "role": "assistant",
            }
        case ThinkingBlock():
            sealed = {"encrypted_content": blocks.signature} if blocks.signature else {}
            summary = [{"type": "summary_text", "text": blocks.text}]
            return {"id": request.id("rs_", index), "type": "reasoning", **sealed, "summary": summary}
        case CallBlock():
            return _call(blocks, request, index)
        case _:
            assert_never(blocks)


def _call(block: CallBlock, request: ScriptedRequest, index: int) -> JsonObject:
    item: JsonObject = {
        "id": request.id("fc_", index),
        "type": "function_call",
        "status": "completed",
        "arguments": block.arguments,
        "call_id": block.id or request.id("call_", index),
        "name": block.name,
    }
    tools = [tool for tool in request.body.get("tools") or () if isinstance(tool, dict)]
    if {"type": "custom", "name": block.name} in [_named(tool) for tool in tools]:
        del item["arguments"]
        text = msgspec.json.decode(block.arguments)["input"]
        return {**item, "id": request.id("ctc_", index), "type": "custom_tool_call", "input": text}
    namespace, apart, name = block.name.partition("__")
    if apart and {"type": "namespace", "name": namespace} in [_named(tool) for tool in tools]:
        item |= {"name": name, "namespace": namespace}
    return item


def _echoed_tool(tool: object) -> object:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {"description": None, "strict": True, **tool}


def _named(tool: dict[str, Any]) -> JsonObject:
    return {"type": tool.get("type"), "name": tool.get("name")}


def _blank(item: JsonObject) -> JsonObject:
    """The item as `output_item.added` announces it."""
    empty: JsonObject = {"content": [], "summary": [], "arguments": "", "input": "", "status": "in_progress"}
    return {key: empty.get(key, value) for key, value in item.items()}


def _part(block: TextBlock | RefusalBlock) -> JsonObject:
    if isinstance(block, RefusalBlock):
        return {"type": "refusal", "refusal": block.text}
    return {
        "type": "output_text",
        "annotations": [_annotation(citation) for citation in block.citations],
        "logprobs": [logprob(piece) for piece in block.pieces] if block.logprobs else [],
        "text": block.text,
    }


def _item_events(
    blocks: _Speech | ThinkingBlock | CallBlock, item: JsonObject, where: JsonObject
) -> Iterator[JsonObject]:
    match blocks:
        case tuple():
            for index, block in enumerate(blocks):
                yield from _part_events(block, {"content_index": index, **where})
        case ThinkingBlock():
            yield from _thinking_events(blocks, {**where, "summary_index": 0})
        case CallBlock() if "input" in item:
            kind, text = "response.custom_tool_call_input", item["input"]
            yield from ({"type": f"{kind}.delta", "delta": piece, **where} for piece in pieces_of(text))
            yield {"type": f"{kind}.done", "input": text, **where}
        case CallBlock():
            kind = "response.function_call_arguments"
            yield from ({"type": f"{kind}.delta", "delta": piece, **where} for piece in blocks.pieces)
            yield {"type": f"{kind}.done", "arguments": blocks.arguments, **where}
        case _:
            assert_never(blocks)


def _part_events(block: TextBlock | RefusalBlock, where: JsonObject) -> Iterator[JsonObject]:
    part = _part(block)
    blank = {**part, "text": "", "annotations": [], "logprobs": []} if part["type"] == "output_text" else None
    yield {"type": "response.content_part.added", **where, "part": blank or {**part, "refusal": ""}}
    if isinstance(block, RefusalBlock):
        yield from ({"type": "response.refusal.delta", "delta": piece, **where} for piece in block.pieces)
        yield {"type": "response.refusal.done", "refusal": block.text, **where}
    else:
        for piece in block.pieces:
            logprobs = _without_bytes([logprob(piece)]) if block.logprobs else []
            yield {"type": "response.output_text.delta", "delta": piece, "logprobs": logprobs, **where}
        for index, annotation in enumerate(part["annotations"]):
            added = "response.output_text.annotation.added"
            yield {"type": added, "annotation": annotation, "annotation_index": index, **where}
        logprobs = _without_bytes(part["logprobs"])
        yield {"type": "response.output_text.done", "text": block.text, "logprobs": logprobs, **where}
    yield {"type": "response.content_part.done", **where, "part": part}


def _without_bytes(logprobs: list[JsonObject]) -> list[JsonObject]:
    """As events carry them; only the part itself has a token's bytes too."""
    return [{key: value for key, value in each.items() if key != "bytes"} for each in logprobs]


def _thinking_events(block: ThinkingBlock, where: JsonObject) -> Iterator[JsonObject]:
    kind = "response.reasoning_summary"
    yield {"type": f"{kind}_part.added", **where, "part": {"type": "summary_text", "text": ""}}
    yield from ({"type": f"{kind}_text.delta", "delta": piece, **where} for piece in block.pieces)
    yield {"type": f"{kind}_text.done", "text": block.text, **where}
    yield {"type": f"{kind}_part.done", **where, "part": {"type": "summary_text", "text": block.text}}


def _annotation(citation: Citation) -> JsonObject:
    return {
        "type": "url_citation",
        "end_index": citation.end,
        "start_index": citation.start,
        "title": citation.title,
        "url": citation.url,
    }
