"""The answer of a provider of another dialect as a Chat message: the stream adds up to the whole one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.dialect_api import DialectServer, dialect_server
from server.v1.replaying_provider import replaying
from tailrace.messages import Dialect, JsonObject
from tailrace.testing.provider.replies import REPLIES
from tailrace.wire.peer_json import encode_object
from tailrace.wire.sse import SseDecoder, encode_event

PATH = "/v1/chat/completions"
OTHERS: tuple[Dialect, ...] = ("responses", "anthropic")


def added_up(chunks: list[Any]) -> JsonObject:
    """As OpenAI's SDKs do it: what was null is replaced, texts grow, and so does each call."""
    message: JsonObject = {"refusal": None}
    for chunk in chunks[:-1]:
        for name, value in chunk["choices"][0]["delta"].items():
            if name == "tool_calls":
                for piece in value:
                    _add_call(message.setdefault("tool_calls", []), dict(piece))
            elif message.get(name) is None or value is None:
                message[name] = value
            else:
                message[name] += value
    return message


def _add_call(calls: list[JsonObject], piece: JsonObject) -> None:
    if piece.pop("index") == len(calls):
        calls.append(piece)
    else:
        calls[-1]["function"]["arguments"] += piece["function"]["arguments"]


async def both_messages(server: DialectServer, model: str) -> tuple[JsonObject, JsonObject]:
    """Streamed, and whole."""
    asked: JsonObject = {"model": model, "messages": [{"role": "user", "content": "Go."}]}
    streamed = added_up(await server.data(PATH, {**asked, "stream": True}))
    status, whole = await server.post(PATH, asked)
    assert status == 200, whole
    return streamed, whole["choices"][0]["message"]


@pytest.mark.parametrize("up", OTHERS)
async def test_streamed_and_whole_the_message_has_the_same_fields(tmp_path: Path, up: Dialect) -> None:
    async with dialect_server(tmp_path) as server:
        for name in REPLIES:
            streamed, whole = await both_messages(server, f"up-{up}/{name}")
            assert streamed == whole, name


@pytest.mark.parametrize("up", OTHERS)
async def test_calls_alone_have_no_content(tmp_path: Path, up: Dialect) -> None:
    async with dialect_server(tmp_path) as server:
        for name in ("tools", "reasoning-tools"):
            streamed, whole = await both_messages(server, f"up-{up}/{name}")
            assert streamed == whole
            assert whole["content"] is None


EXPLAINED: JsonObject = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [{"type": "text", "text": "No."}],
    "stop_reason": "refusal",
    "stop_sequence": None,
    "stop_details": {"type": "refusal", "category": "cyber", "explanation": "No malware."},
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
ENDS = ("stop_reason", "stop_sequence", "stop_details")
EVENTS: list[JsonObject] = [
    {"type": "message_start", "message": {**EXPLAINED, "content": [], **dict.fromkeys(ENDS)}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "No."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {name: EXPLAINED[name] for name in ENDS}, "usage": EXPLAINED["usage"]},
    {"type": "message_stop"},
]
STREAMED = b"".join(encode_event(encode_object(event), event=event["type"]) for event in EVENTS)


@pytest.mark.parametrize("provided", [encode_object(EXPLAINED), STREAMED], ids=["whole", "streamed"])
async def test_why_claude_refuses_is_told_streamed_and_whole(tmp_path: Path, provided: bytes) -> None:
    async with replaying(tmp_path, provided) as server:
        status, whole = await server.whole("chat", "anthropic")
        raw = await server.streamed("chat", "anthropic", stream_options=None)
    assert status == 200, whole
    chunks = [msgspec.json.decode(event.data) for event in SseDecoder().feed(raw)[:-1]]
    told = {"role": "assistant", "content": "No.", "refusal": "No malware."}
    assert added_up([*chunks, "[DONE]"]) == whole["choices"][0]["message"] == told


async def test_a_refusal_in_no_words_of_its_own_is_null(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        for message in await both_messages(server, "up-anthropic/refusal"):
            assert (message["content"], message["refusal"]) == ("I'm sorry, I can't help with that.", None)
