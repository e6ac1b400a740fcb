"""Builds streams of the Messages API event by event, and decodes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tailrace.config.quirks import NONE, WireQuirks
from tailrace.messages import AnyDelta, JsonObject
from tailrace.wire.anthropic.decode import AnthropicDecoder


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def message_start(**fields: Any) -> bytes:
    message: JsonObject = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 1},
    }
    return event("message_start", message={**message, **fields})


def block_start(index: int, **block: Any) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def block_delta(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def block_stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def message_end(stop_reason: str = "end_turn", **usage: Any) -> bytes:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage=usage or {"output_tokens": 5}) + event("message_stop")


def text_block(index: int, *pieces: str) -> bytes:
    deltas = b"".join(block_delta(index, "text_delta", text=piece) for piece in pieces)
    return block_start(index, type="text", text="") + deltas + block_stop(index)


def tool_start(index: int, name: str = "get_weather", **fields: Any) -> bytes:
    return block_start(index, **{"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}, **fields})


def json_piece(index: int, text: str) -> bytes:
    return block_delta(index, "input_json_delta", partial_json=text)


def decode(
    pieces: bytes | Iterable[bytes], quirks: WireQuirks = NONE, *, cut: bool = False
) -> tuple[list[AnyDelta], JsonObject, AnthropicDecoder]:
    """The deltas, the rebuilt body, and the decoder for what else is asked of it."""
    decoder = AnthropicDecoder(quirks)
    fed = [pieces] if isinstance(pieces, bytes) else pieces
    deltas = [delta for piece in fed for delta in decoder.feed(piece)]
    deltas += decoder.close(cut=cut)
    return deltas, decoder.rebuilt_body(), decoder
