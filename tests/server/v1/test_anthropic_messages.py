"""Anthropic's Messages: the grammar of the stream, thinking and tools, versions, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anthropic
import pytest

from server.dialect_api import dialect_server
from tailrace.messages import JsonObject
from tailrace.server.http.sse_stream import StreamTiming
from tailrace.testing.provider import call, reply
from tailrace.wire.sse import SseDecoder

PATH = "/v1/messages"
OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."


def ask(model: str, **fields: Any) -> JsonObject:
    return {"model": model, "max_tokens": 99, "messages": [{"role": "user", "content": "Go."}], **fields}


@pytest.mark.parametrize("model", ["up-anthropic/ok", "up-chat/ok", "tailrace"])
async def test_the_stream_has_one_message_and_ends_with_its_stop(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        events = await server.events(PATH, ask(model, stream=True))
        data = await server.data(PATH, ask(model, stream=True))
    assert [event.event for event in events] == [event["type"] for event in data]
    kinds = [event.event for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert "".join(event["delta"]["text"] for event in data if event["type"] == "content_block_delta") == OK
    assert data[-2]["delta"]["stop_reason"] == "end_turn"
    assert data[-2]["usage"]["output_tokens"] == 17


@pytest.mark.parametrize("model", ["up-anthropic/ok", "up-chat/ok", "up-responses/ok", "tailrace"])
async def test_N163_a_silent_stream_has_the_dialect_s_own_pings(tmp_path: Path, model: str) -> None:
    timing = StreamTiming(ping_s=0.02)
    async with dialect_server(tmp_path, timing=timing) as server, asyncio.timeout(30):
        server.provider.flowing.clear()
        async with server.session.post(server.url + PATH, json=ask(model, stream=True)) as response:
            first = await response.content.readuntil(b"\n\n")
            server.provider.flowing.set()
            rest = SseDecoder().feed(await response.read())
        server.provider.flowing.clear()
        async with server.anthropic() as client, client.messages.stream(**ask(model)) as stream:
            server.provider.flowing.set()
            text = await stream.get_final_text()
    assert first == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert rest[-1].event == "message_stop"
    assert text == OK


@pytest.mark.parametrize("up", ["anthropic", "chat", "responses"])
async def test_thinking_and_tool_use_are_blocks_of_their_own(tmp_path: Path, up: str) -> None:
    async with dialect_server(tmp_path) as server:
        data = await server.data(PATH, ask(f"up-{up}/reasoning-tools", stream=True))
        _, whole = await server.post(PATH, ask(f"up-{up}/reasoning-tools"))
    blocks = [event["content_block"]["type"] for event in data if event["type"] == "content_block_start"]
    assert blocks == [block["type"] for block in whole["content"]] == ["thinking", "tool_use"]
    assert whole["stop_reason"] == data[-2]["delta"]["stop_reason"] == "tool_use"
    assert whole["content"][1]["input"] == {"city": "Zürich", "unit": "celsius"}


async def test_C45_the_signature_reaches_the_client_that_must_send_it_back(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        data = await server.data(PATH, ask("up-anthropic/reasoning-tools", stream=True))
    signed = [event["delta"] for event in data if event.get("delta", {}).get("type") == "signature_delta"]
    assert signed == [{"type": "signature_delta", "signature": "c2lnbmVk"}]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_agent_gives_a_client_s_tool_to_the_client(tmp_path: Path, stream: bool) -> None:
    tools = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {}}}]
    async with dialect_server(tmp_path, [reply(call("get_weather", {"city": "Bern"}))]) as server:
        request = ask("tailrace", tools=tools, stream=stream)
        if stream:
            data = await server.data(PATH, request)
            block = next(e["content_block"] for e in data if e["type"] == "content_block_start")
            reason = data[-2]["delta"]["stop_reason"]
        else:
            _, body = await server.post(PATH, request)
            block, reason = body["content"][0], body["stop_reason"]
    assert (block["type"], block["name"], reason) == ("tool_use", "get_weather", "tool_use")


async def test_a_cut_answer_of_the_agent_s_is_max_tokens(tmp_path: Path) -> None:
    sections = {"model": {"provider": "up-chat", "name": "cut@60%"}}
    async with dialect_server(tmp_path, sections=sections) as server:
        status, body = await server.post(PATH, ask("tailrace"))
    assert (status, body["stop_reason"]) == (200, "max_tokens")


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21", None])
async def test_both_versions_that_the_sdks_send_are_served_and_so_is_none(tmp_path: Path, version: str | None) -> None:
    headers = {"anthropic-version": version} if version else {}
    async with dialect_server(tmp_path) as server:
        status, _ = await server.post(PATH, ask("up-anthropic/ok"), **headers)
    assert status == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0]"),
        ({"tools": [{"name": "f"}]}, "tools[0]"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice"),
        ({"thinking": {"type": "loud"}}, "thinking"),
        ({"system": [{"type": "image"}]}, "system"),
    ],
)
async def test_a_request_that_makes_no_sense_names_the_field(tmp_path: Path, fields: JsonObject, param: str) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(PATH, {**ask("up-anthropic/ok"), **fields})
        assert not server.provider.requests
    assert status == 400
    assert param in body["error"]["message"]


async def test_anthropic_s_sdk_knows_the_id_of_its_request(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server, server.anthropic() as client:
        asked: Any = ask("up-chat/ok")
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            await stream.get_final_message()
        with pytest.raises(anthropic.NotFoundError) as refused:
            await client.messages.create(**{**asked, "model": "nosuch/model"})
    ids = [whole._request_id, stream.request_id, refused.value.request_id]
    assert all(request_id and request_id.startswith("req_") for request_id in ids), ids
