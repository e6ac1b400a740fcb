"""A non-streaming body of this dialect as the events in which its provider would have streamed it, with every field."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.messages import JsonObject
from tailrace.wire.anthropic.completion import arguments_of
from tailrace.wire.anthropic.encode import own_body
from tailrace.wire.peer_json import objects_of


def events_of_body(body: JsonObject) -> Iterator[JsonObject]:
    body = own_body(body)
    ends = {name: body.get(name) for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_start", "message": {**body, "content": [], **dict.fromkeys(ends)}}
    for index, block in enumerate(objects_of(body.get("content"))):
        start, deltas = _opened(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": ends, "usage": body.get("usage")}
    yield {"type": "message_stop"}


def _opened(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """The block as it begins, and the deltas that complete it."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {**block, "text": ""}, [{"type": "text_delta", "text": text}]
        case {"type": "thinking", "thinking": str(text)}:
            signature = {"type": "signature_delta", "signature": block.get("signature", "")}
            return {**block, "thinking": "", "signature": ""}, [{"type": "thinking_delta", "thinking": text}, signature]
        case {"type": str(kind), "input": dict(given)} if kind.endswith("tool_use"):
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments_of(given)}]
        case _:
            return block, []
