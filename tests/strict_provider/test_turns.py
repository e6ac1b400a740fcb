"""Scripted turns: the step follows from the tool results, chores and schemas are answered fittingly."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest
from proof.strict_provider import StrictProvider
from pydantic import BaseModel

from tailrace.testing.provider import FaultyProvider, call, reply, think

TURN = [
    reply(think("Both, then."), call("level", {"river": "Aare"}), call("level", {"river": "Rhine"})),
    reply(think("And the weather."), "One more.", call("weather", {"city": "Bern"})),
    reply("All is well."),
]
FORM: Any = {
    "type": "object",
    "properties": {"river": {"type": "string"}},
    "required": ["river"],
    "additionalProperties": False,
}
NAMES = ("level", "weather")


class Report(BaseModel):
    river: str
    metres: int


def strict_turns() -> StrictProvider:
    return StrictProvider(turns={"agentic": TURN}, returns_reasoning=True)


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_responses_loop(stream: bool, store: bool) -> None:
    tools: Any = [{"type": "function", "name": name, "parameters": FORM, "strict": True} for name in NAMES]
    asked: Any = {"model": "agentic", "tools": tools, "store": store, "include": ["reasoning.encrypted_content"]}
    told: list[Any] = [{"role": "user", "content": "How is it?"}]
    async with (
        strict_turns() as server,
        openai.AsyncOpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as client,
    ):
        for _ in TURN:
            if stream:
                async with client.responses.stream(input=told, **asked) as events:
                    response: Any = await events.get_final_response()
            else:
                response = await client.responses.create(input=told, **asked)
            told += response.output
            told += [
                {"type": "function_call_output", "call_id": item.call_id, "output": "fine"}
                for item in response.output
                if item.type == "function_call"
            ]
        assert (response.output_text, server.refusals) == ("All is well.", [])


@pytest.mark.parametrize("stream", [True, False])
async def test_a_chat_loop(stream: bool) -> None:
    tools: Any = [
        {"type": "function", "function": {"name": name, "parameters": FORM, "strict": True}} for name in NAMES
    ]
    told: list[Any] = [{"role": "user", "content": "How is it?"}]
    async with (
        strict_turns() as server,
        openai.AsyncOpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as client,
    ):
        for _ in TURN:
            if stream:
                async with client.chat.completions.stream(model="agentic", messages=told, tools=tools) as events:
                    said: Any = (await events.get_final_completion()).choices[0].message
            else:
                answer = await client.chat.completions.create(model="agentic", messages=told, tools=tools)
                said = answer.choices[0].message
            told.append(said.model_dump(exclude_none=True))
            told += [{"role": "tool", "tool_call_id": each.id, "content": "fine"} for each in said.tool_calls or ()]
        assert (said.content, server.refusals) == ("All is well.", [])


@pytest.mark.parametrize("stream", [True, False])
async def test_a_messages_loop(stream: bool) -> None:
    tools: Any = [{"name": name, "input_schema": FORM} for name in NAMES]
    told: list[Any] = [{"role": "user", "content": "How is it?"}]
    asked: Any = {"model": "agentic", "max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    async with (
        strict_turns() as server,
        anthropic.AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0) as client,
    ):
        for _ in TURN:
            if stream:
                async with client.messages.stream(messages=told, tools=tools, **asked) as events:
                    said: Any = await events.get_final_message()
            else:
                said = await client.messages.create(messages=told, tools=tools, **asked)
            told.append({"role": "assistant", "content": said.content})
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "fine"}
                for block in said.content
                if block.type == "tool_use"
            ]
            told.append({"role": "user", "content": results})
        assert (said.content[0].text, server.refusals) == ("All is well.", [])


async def test_chores_and_schemas() -> None:
    async with (
        strict_turns() as server,
        openai.AsyncOpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as client,
    ):
        title = await client.responses.create(model="agentic", input="Name this conversation.")
        assert title.output_text == "Noted."
        parsed = await client.responses.parse(model="agentic", input="Report.", text_format=Report)
        assert parsed.output_parsed == Report(river="text", metres=1)
        assert "agentic" in [model.id async for model in client.models.list()]


async def test_a_turn_takes_faults_beside_it() -> None:
    async with (
        strict_turns() as server,
        openai.AsyncOpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as client,
    ):
        with pytest.raises(openai.RateLimitError):
            await client.responses.create(model="agentic+status-429", input="Go.")
        assert server.requests[0].scenario == "agentic+status-429"


def test_a_turn_without_answers_is_refused() -> None:
    with pytest.raises(ValueError, match="the turn 'agentic' has no answers"):
        FaultyProvider(turns={"agentic": []})
