"""`stop` towards a provider whose API has no such word: the answer is cut here, at every split the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from server.dialect_api import dialect_server
from server.v1.test_between_dialects import CHAT, MESSAGES, RESPONSES, ask
from tailrace.messages import JsonObject
from tailrace.testing.provider import Reply, call, reply, say, think
from tailrace.testing.scripted.reply import TextBlock
from wire.responses.responses_streams import created, text_delta

TEXT = "One, two.\nOBS three"
STOPS: dict[str, JsonObject] = {CHAT: {"stop": ["\nOBS", "never"]}, MESSAGES: {"stop_sequences": ["\nOBS", "never"]}}


def in_pieces(*pieces: str) -> Reply:
    return reply(TextBlock(tuple(piece for piece in pieces if piece)))


def streamed_text(path: str, events: list[Any]) -> str:
    if path == CHAT:
        deltas = [event["choices"][0]["delta"] for event in events[:-1] if event["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)
    return "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_every_split_gives_the_same_answer_streamed_and_whole(tmp_path: Path, path: str) -> None:
    splits = [(TEXT[:at], TEXT[at:]) for at in range(len(TEXT) + 1)] + [tuple(TEXT)]
    script = [in_pieces(*pieces) for pieces in splits for _ in range(2)]
    async with dialect_server(tmp_path, script) as server:
        body = ask(path, "up-responses/m", **STOPS[path])
        answers: list[Any] = []
        for _ in splits:
            answers.append(await server.data(path, {**body, "stream": True}))
            _, whole = await server.post(path, body)
            answers.append(whole)
        assert all("stop" not in request.json() for request in server.provider.requests)
    for streamed, whole in zip(answers[::2], answers[1::2], strict=True):
        assert streamed_text(path, streamed) == "One, two."
        if path == CHAT:
            assert whole["choices"][0]["message"]["content"] == "One, two."
            assert [whole["choices"][0]["finish_reason"], streamed[-2]["choices"][0]["finish_reason"]] == ["stop"] * 2
        else:
            assert [block["text"] for block in whole["content"]] == ["One, two."]
            ended = {"stop_reason": "stop_sequence", "stop_sequence": "\nOBS"}
            assert {name: whole[name] for name in ended} == streamed[-2]["delta"] == ended
            assert whole["usage"] == streamed[-2]["usage"]
            assert whole["usage"]["output_tokens"] > 0


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_nothing_before_the_stop_string_is_lost_and_nothing_after_it_is_made(tmp_path: Path, path: str) -> None:
    """Thoughts before it stay; a call after it is not in the answer. A stop string in a thought stops nothing."""
    answer = reply(think("I may say\nOBS here."), say(TEXT), call("look", {"at": "it"}))
    async with dialect_server(tmp_path, [answer, answer]) as server:
        body = ask(path, "up-responses/m", **STOPS[path])
        events = await server.data(path, {**body, "stream": True})
        _, whole = await server.post(path, body)
    if path == CHAT:
        message = whole["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("I may say\nOBS here.", "One, two.")
        assert "tool_calls" not in message
        assert not any("tool_calls" in event["choices"][0]["delta"] for event in events[:-1])
    else:
        assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
        assert [e["content_block"]["type"] for e in events if e["type"] == "content_block_start"] == [
            "thinking",
            "text",
        ]


async def test_a_text_that_only_begins_like_a_stop_string_is_whole(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, [in_pieces("It ends in\nOB"), in_pieces("It ends in\nO", "B")]) as server:
        body = ask(CHAT, "up-responses/m", stop="\nOBS")
        _, whole = await server.post(CHAT, body)
        events = await server.data(CHAT, {**body, "stream": True})
    assert whole["choices"][0]["message"]["content"] == streamed_text(CHAT, events) == "It ends in\nOB"
    assert whole["usage"]["prompt_tokens"] == 25  # the provider's own count


async def test_an_answer_that_breaks_off_before_a_stop_string_goes_on_to_it(tmp_path: Path) -> None:
    """What may be a stop string was not shown when the stream broke: the next attempt says it again."""
    cut = created() + text_delta("One, two.\nOB")
    async with endless_provider(tmp_path, cut) as (url, session, asked):
        response = await session.post(url + CHAT, json=ask(CHAT, "up/m", stop="\nOBS", stream=True))
        text = await response.text()
    assert "OB" not in text
    assert "[DONE]" in text
    assert len(asked) == 2


async def test_the_call_is_ended_at_the_stop_string(tmp_path: Path) -> None:
    async with endless_provider(tmp_path) as (url, session, asked):
        response = await session.post(url + CHAT, json=ask(CHAT, "up/m", stop="\nOBS", stream=True))
        text = await response.text()
        async with asyncio.timeout(10):
            await asked[0].wait()
    assert '"content":"One, two."' in text
    assert "[DONE]" in text


async def test_the_agent_stops_too(tmp_path: Path) -> None:
    model = {"model": {"provider": "up-responses", "name": "m"}}
    async with dialect_server(tmp_path, [in_pieces("One, two.\n", "OBS three")], sections=model) as server:
        _, whole = await server.post(CHAT, ask(CHAT, "tailrace", **STOPS[CHAT]))
    assert whole["choices"][0]["message"]["content"] == "One, two."


@pytest.mark.parametrize("provider", ["up-responses", "up-anthropic"])
async def test_of_the_agents_message_the_stop_string_is_named(tmp_path: Path, provider: str) -> None:
    sections: JsonObject = {"model": {"provider": provider, "name": "m"}}
    said = in_pieces(TEXT) if provider == "up-responses" else Reply((TextBlock(("One, two.",)),), stop_sequence="\nOBS")
    async with dialect_server(tmp_path, [said, said, reply("Three.")], sections=sections) as server:
        body = ask(MESSAGES, "tailrace", **STOPS[MESSAGES])
        _, whole = await server.post(MESSAGES, body)
        events = await server.data(MESSAGES, {**body, "stream": True})
        _, other = await server.post(MESSAGES, body)
    ended = {"stop_reason": "stop_sequence", "stop_sequence": "\nOBS"}
    assert {name: whole[name] for name in ended} == events[-2]["delta"] == ended
    assert (other["stop_reason"], other["stop_sequence"]) == ("end_turn", None)


async def test_an_endless_list_of_stop_strings_is_refused(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(CHAT, ask(CHAT, "up-responses/m", stop=["x" * 70_000]))
        assert not server.provider.requests
    assert (status, body["error"]["param"]) == (400, "stop")


async def test_responses_clients_have_no_stop_and_their_field_passes(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, [in_pieces(TEXT)]) as server:
        _, whole = await server.post(RESPONSES, ask(RESPONSES, "up-responses/m", stop=["\nOBS"], store=False))
        assert server.provider.requests[0].json()["stop"] == ["\nOBS"]
    assert whole["output"][0]["content"][0]["text"] == TEXT


@asynccontextmanager
async def endless_provider(
    home: Path, first: bytes = b""
) -> AsyncGenerator[tuple[str, aiohttp.ClientSession, list[asyncio.Event]], None]:
    """Our server before a Responses provider that gives `first` and breaks off, then streams up to the stop string and
    goes on for ever. With an event for each request: its connection was closed by us."""
    asked: list[asyncio.Event] = []
    breaks = [first] if first else []

    async def answer(request: web.Request) -> web.StreamResponse:
        gone = asyncio.Event()
        asked.append(gone)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        if breaks:
            await response.write(breaks.pop())
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(created() + text_delta("One, two.\nO") + text_delta("BS and"))
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return response

    application = web.Application()
    application.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        endpoint = {"dialect": "responses", "base_url": f"http://127.0.0.1:{runner.addresses[0][1]}/v1"}
        async with dialect_server(home, sections={"providers": {"up": endpoint}}) as server:
            yield server.url, server.session, asked
    finally:
        await runner.cleanup()
