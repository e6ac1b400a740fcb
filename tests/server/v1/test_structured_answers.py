"""The agent's answer to a client that asked for JSON: its last message alone (K134)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from server.dialect_api import WATER_LEVEL, dialect_server
from tailrace.messages import JsonObject
from tailrace.testing.provider import call, reply

QUESTION: Any = [{"role": "user", "content": "How high is the Aare?"}]
ANSWER = '{"river":"Aare","metres":3.2}'
LOOKED = [
    reply("Let me look.", call("water_level", {"river": "Aare"})),
    reply("Once more.", call("water_level", {"river": "Aare"})),
    reply(ANSWER),
]
JSON_MODE: JsonObject = {"response_format": {"type": "json_object"}}
CLIENTS_TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


class Level(BaseModel):
    river: str
    metres: float


LEVEL = Level(river="Aare", metres=3.2)


async def test_K134_openai_chat_parses_the_agent_s_last_message(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, LOOKED * 2, tools=[WATER_LEVEL]) as server, server.openai() as client:
        completions = client.chat.completions
        whole = await completions.parse(model="tailrace", messages=QUESTION, response_format=Level)
        async with completions.stream(model="tailrace", messages=QUESTION, response_format=Level) as stream:
            streamed = await stream.get_final_completion()
    assert whole.choices[0].message.parsed == streamed.choices[0].message.parsed == LEVEL


async def test_K134_openai_responses_parses_the_agent_s_last_message(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, LOOKED * 3, tools=[WATER_LEVEL]) as server, server.openai() as client:
        stored = await client.responses.parse(model="tailrace", input="How high?", text_format=Level)
        plain = await client.responses.parse(model="tailrace", input="How high?", text_format=Level, store=False)
        async with client.responses.stream(model="tailrace", input="How high?", text_format=Level) as stream:
            streamed = await stream.get_final_response()
        again = await client.responses.retrieve(streamed.id)
    assert stored.output_parsed == plain.output_parsed == streamed.output_parsed == LEVEL
    assert again.output_text == ANSWER


async def test_K134_anthropic_parses_the_agent_s_last_message(tmp_path: Path) -> None:
    asked: Any = {"model": "tailrace", "max_tokens": 999, "messages": QUESTION}
    async with dialect_server(tmp_path, LOOKED * 2, tools=[WATER_LEVEL]) as server, server.anthropic() as client:
        whole = await client.messages.parse(**asked, output_format=Level)
        async with client.messages.stream(**asked, output_format=Level) as stream:
            streamed = await stream.get_final_message()
    assert whole.parsed_output == streamed.parsed_output == LEVEL


async def test_K134_a_chat_client_gets_it_streamed_and_whole(tmp_path: Path) -> None:
    asked = {"model": "tailrace", "messages": QUESTION, **JSON_MODE}
    async with dialect_server(tmp_path, LOOKED * 2, tools=[WATER_LEVEL]) as server:
        chunks = await server.data("/v1/chat/completions", {**asked, "stream": True})
        _, whole = await server.post("/v1/chat/completions", asked)
    said = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1] if chunk["choices"]]
    assert "".join(said) == whole["choices"][0]["message"]["content"] == ANSWER


async def test_K134_what_is_said_beside_a_call_of_the_client_s_tool_is_not_the_answer(tmp_path: Path) -> None:
    script = [reply("Let me look.", call("get_weather", {"city": "Bern"}))]
    async with dialect_server(tmp_path, script) as server, server.openai() as client:
        called = await client.chat.completions.create(
            model="tailrace", messages=QUESTION, tools=[CLIENTS_TOOL], response_format={"type": "json_object"}
        )
    message = called.choices[0].message
    assert not message.content
    assert [tool.type for tool in message.tool_calls or ()] == ["function"]


async def test_K134_without_tools_the_json_streams_as_it_comes(tmp_path: Path) -> None:
    task = [{"role": "user", "content": "### Task:\nA title.\n<chat_history>\nHello\n</chat_history>"}]
    asked = {"model": "tailrace", "messages": task, "stream": True, **JSON_MODE}
    async with dialect_server(tmp_path, [reply('{"title": "A day at the mill"}')]) as server:
        chunks = await server.data("/v1/chat/completions", asked)
    assert len([chunk for chunk in chunks[:-1] if chunk["choices"][0]["delta"].get("content")]) > 2


async def test_K134_text_alone_still_has_what_was_said_before_the_tools(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, LOOKED, tools=[WATER_LEVEL]) as server:
        _, whole = await server.post("/v1/chat/completions", {"model": "tailrace", "messages": QUESTION})
    assert whole["choices"][0]["message"]["content"] == f"Let me look.\n\nOnce more.\n\n{ANSWER}"


async def test_K134_an_agent_that_needs_no_tool_streams_its_json_too(tmp_path: Path) -> None:
    script = [reply(ANSWER)] * 3
    async with dialect_server(tmp_path, script, tools=[WATER_LEVEL]) as server:
        async with server.openai() as client:
            asked: Any = {"model": "tailrace", "response_format": Level}
            async with client.chat.completions.stream(messages=QUESTION, **asked) as chat:
                completion = await chat.get_final_completion()
            told: Any = {"model": "tailrace", "input": "How high?", "store": False}
            async with client.responses.stream(**told, text_format=Level) as stream:
                response = await stream.get_final_response()
        async with server.anthropic() as client:
            said: Any = {"model": "tailrace", "max_tokens": 999, "messages": QUESTION}
            async with client.messages.stream(**said, output_format=Level) as messages:
                message = await messages.get_final_message()
    assert completion.choices[0].message.role == "assistant"
    assert [completion.choices[0].message.parsed, response.output_parsed, message.parsed_output] == [LEVEL] * 3


async def test_the_format_of_a_stored_response_has_a_description(tmp_path: Path) -> None:
    """The schema of the Responses API requires the field, null where the client gave none."""
    schema = {"type": "json_schema", "name": "level", "schema": {"type": "object"}}
    async with dialect_server(tmp_path, [reply("{}")]) as server:
        _, made = await server.post(
            "/v1/responses", {"model": "up-chat/ok", "input": "How high?", "text": {"format": schema}}
        )
        _, stored = await server.get(f"/v1/responses/{made['id']}")
    assert made["text"] == stored["text"] == {"format": {**schema, "description": None}}
