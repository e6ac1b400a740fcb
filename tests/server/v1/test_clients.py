"""The official SDKs as clients, unchanged: text, tools, streams, errors, cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from server.dialect_api import DialectServer, dialect_server
from tailrace.testing.provider import call, reply

OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."
MODELS = ["up-chat/ok", "up-responses/ok", "up-anthropic/ok", "tailrace"]
QUESTION: Any = [{"role": "user", "content": "Where does the water go?"}]
CHAT_TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
RESPONSES_TOOL: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}
ANTHROPIC_TOOL: Any = {"name": "get_weather", "input_schema": {"type": "object"}}
CALLED = [reply("Let me look.", call("get_weather", {"city": "Bern"}))]


@asynccontextmanager
async def gone(server: DialectServer) -> AsyncIterator[None]:
    """Leaving the block, the provider, which would be silent for ever, sees that nobody waits for it any more."""
    yield
    async with asyncio.timeout(30):
        await server.provider.requests[-1].over.wait()
    assert server.provider.requests[-1].disconnected_at is not None


# ── OpenAI, chat ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("model", MODELS)
async def test_openai_chat_text(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server, server.openai() as client:
        whole = await client.chat.completions.create(model=model, messages=QUESTION)
        stream = await client.chat.completions.create(
            model=model, messages=QUESTION, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content == OK
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 42
    assert chunks[-1].usage == whole.usage


@pytest.mark.parametrize("model", MODELS)
async def test_openai_chat_tools(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path, CALLED * 2) as server, server.openai() as client:
        async with client.chat.completions.stream(model=model, messages=QUESTION, tools=[CHAT_TOOL]) as stream:
            streamed = await stream.get_final_completion()
        whole = await client.chat.completions.create(model=model, messages=QUESTION, tools=[CHAT_TOOL])
    for message in (streamed.choices[0].message, whole.choices[0].message):
        assert message.content == "Let me look."
        assert [c.function.arguments for c in message.tool_calls or () if c.type == "function"] == ['{"city":"Bern"}']
    assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason == "tool_calls"


async def test_openai_chat_errors(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server, server.openai() as client:
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(model="up-chat/status-401", messages=QUESTION)
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="up-chat/status-429", messages=QUESTION, stream=True)
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="nobody/model", messages=QUESTION)
        stream = await client.chat.completions.create(model="up-chat/cut@60%", messages=QUESTION, stream=True)
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass


async def test_F68_openai_chat_cancel(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server, server.openai() as client, gone(server):
        stream = await client.chat.completions.create(model="up-chat/stall@50%", messages=QUESTION, stream=True)
        await anext(aiter(stream))
        await stream.close()


# ── OpenAI, responses ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("model", MODELS)
async def test_openai_responses_text(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server, server.openai() as client:
        whole = await client.responses.create(model=model, input="Go.")
        async with client.responses.stream(model=model, input="Go.") as stream:
            streamed = await stream.get_final_response()
        again = await client.responses.retrieve(streamed.id)
    assert whole.output_text == streamed.output_text == again.output_text == OK
    assert streamed.usage is not None
    assert streamed.usage.total_tokens == 42
    assert streamed.usage == whole.usage


@pytest.mark.parametrize("model", MODELS)
async def test_openai_responses_tools(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path, CALLED * 2) as server, server.openai() as client:
        whole = await client.responses.create(model=model, input="Go.", tools=[RESPONSES_TOOL])
        async with client.responses.stream(model=model, input="Go.", tools=[RESPONSES_TOOL]) as stream:
            streamed = await stream.get_final_response()
    for response in (whole, streamed):
        calls = [item for item in response.output if item.type == "function_call"]
        assert [(item.name, item.arguments) for item in calls] == [("get_weather", '{"city":"Bern"}')]
        assert response.output_text == "Let me look."


async def test_openai_responses_errors(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server, server.openai() as client:
        with pytest.raises(openai.AuthenticationError):
            await client.responses.create(model="up-chat/status-401", input="Go.")
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve("resp_0")
        stream = await client.responses.create(model="up-chat/cut@60%", input="Go.", stream=True)
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass


async def test_openai_responses_background_resume_and_cancel(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server, server.openai() as client:
        stream = await client.responses.create(model="up-chat/stall@50%", input="Go.", background=True, stream=True)
        seen = []
        async for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        first = seen[0]
        assert first.type == "response.created"
        resumed = await client.responses.retrieve(
            first.response.id, stream=True, starting_after=seen[-1].sequence_number
        )
        following = await anext(aiter(resumed))
        await resumed.close()
        assert following.sequence_number == seen[-1].sequence_number + 1
        async with gone(server):
            cancelled = await client.responses.cancel(first.response.id)
    assert cancelled.status == "cancelled"


# ── Anthropic ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("model", MODELS)
async def test_anthropic_text(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server, server.anthropic() as client:
        whole = await client.messages.create(model=model, max_tokens=99, messages=QUESTION)
        async with client.messages.stream(model=model, max_tokens=99, messages=QUESTION) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            streamed = await stream.get_final_message()
    assert whole.content[0].type == "text"
    assert text == whole.content[0].text == OK
    assert streamed.stop_reason == whole.stop_reason == "end_turn"
    assert streamed.usage.output_tokens == 17


@pytest.mark.parametrize("model", MODELS)
async def test_anthropic_tools(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path, CALLED * 2) as server, server.anthropic() as client:
        whole = await client.messages.create(model=model, max_tokens=9, messages=QUESTION, tools=[ANTHROPIC_TOOL])
        async with client.messages.stream(
            model=model, max_tokens=9, messages=QUESTION, tools=[ANTHROPIC_TOOL]
        ) as stream:
            streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert [block.type for block in message.content] == ["text", "tool_use"]
        last = message.content[1]
        assert last.type == "tool_use"
        assert (last.name, last.input) == ("get_weather", {"city": "Bern"})
        assert message.stop_reason == "tool_use"


async def test_anthropic_errors(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server, server.anthropic() as client:
        with pytest.raises(anthropic.AuthenticationError):
            await client.messages.create(model="up-anthropic/status-401", max_tokens=9, messages=QUESTION)
        with pytest.raises(anthropic.RateLimitError):
            await client.messages.create(model="up-anthropic/status-429", max_tokens=9, messages=QUESTION)
        with pytest.raises(anthropic.APIStatusError):
            async with client.messages.stream(model="up-chat/cut@60%", max_tokens=9, messages=QUESTION) as stream:
                await stream.get_final_message()


async def test_F68_anthropic_cancel(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server, server.anthropic() as client, gone(server):
        stream = await client.messages.create(
            model="up-anthropic/stall@50%", max_tokens=9, messages=QUESTION, stream=True
        )
        await anext(aiter(stream))
        await stream.close()
