"""Pieces of Responses streams, for tests that put one together."""

from __future__ import annotations

import json
from typing import Any

from tailrace.config.quirks import NONE, WireQuirks
from tailrace.messages import AnyDelta, JsonObject
from tailrace.wire.responses.decode import ResponsesDecoder
from tailrace.wire.sse import encode_event

USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 16,
}


def event(kind: str, **fields: Any) -> bytes:
    return encode_event(json.dumps({"type": kind, **fields}), event=kind)


def created() -> bytes:
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": []}
    return event("response.created", response=response)


def completed(*output: JsonObject, status: str = "completed", **fields: Any) -> bytes:
    response = {"id": "resp_1", "object": "response", "status": status, "model": "m", "output": list(output), **fields}
    return event(f"response.{status}", response=response)


def text_delta(text: str, **fields: Any) -> bytes:
    keys = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return event("response.output_text.delta", **{**keys, **fields}, delta=text)


def call_delta(arguments: Any, index: int = 0, **fields: Any) -> bytes:
    keys = {"item_id": f"fc_{index}", "output_index": index}
    return event("response.function_call_arguments.delta", **{**keys, **fields}, delta=arguments)


def call_item(index: int = 0, arguments: Any = "", **fields: Any) -> JsonObject:
    item = {"id": f"fc_{index}", "type": "function_call", "call_id": f"call_{index}", "name": "look"}
    return {**item, "arguments": arguments, "status": "completed", **fields}


def message(*texts: str, **fields: Any) -> JsonObject:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": content, "status": "completed", **fields}


def run(*raw: bytes, quirks: WireQuirks = NONE, cut: bool = False) -> tuple[list[AnyDelta], ResponsesDecoder]:
    decoder = ResponsesDecoder(quirks)
    return [delta for piece in raw for delta in decoder.feed(piece)] + decoder.close(cut=cut), decoder
