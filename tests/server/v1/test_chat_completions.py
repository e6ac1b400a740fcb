"""Chat Completions: the grammar of the stream, the agent behind it, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from parked_turns import REASON, park_turn
from server.dialect_api import WATER_LEVEL, dialect_server
from tailrace.messages import JsonObject
from tailrace.testing.provider import call, reply, say, think

PATH = "/v1/chat/completions"
OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def ask(model: str, text: str = "Where does the water go?", **fields: Any) -> JsonObject:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


def text_of(chunks: list[Any]) -> str:
    deltas = [choice["delta"] for chunk in chunks if chunk != "[DONE]" for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.parametrize("model", ["up-chat/ok", "tailrace"])
async def test_the_stream_has_a_role_a_text_a_finish_and_done(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        chunks = await server.data(PATH, ask(model, stream=True))
    assert chunks.pop() == "[DONE]"
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert text_of(chunks) == OK
    assert len(chunks) > 5  # token by token, not in one piece
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert not any("usage" in chunk for chunk in chunks)


@pytest.mark.parametrize("model", ["up-chat/ok", "tailrace"])
async def test_H93_the_usage_comes_last_with_no_choices_and_only_when_asked_for(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        chunks = await server.data(PATH, ask(model, stream=True, stream_options={"include_usage": True}))
    *before, last, done = chunks
    assert done == "[DONE]"
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 42)
    assert all(chunk["usage"] is None for chunk in before)


@pytest.mark.parametrize("model", ["up-chat/ok", "tailrace"])
async def test_H96_without_stream_the_answer_is_json(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(PATH, ask(model))
    assert status == 200
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"] == OK
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["total_tokens"] == 42


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["up-chat/status-401", "up-chat/first-error-auth"])
async def test_D52_an_error_before_the_first_event_is_a_real_status(tmp_path: Path, model: str, stream: bool) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(PATH, ask(model, stream=stream))
    assert status == 401
    assert body["error"]["type"] == "authentication_error"


@pytest.mark.parametrize("stream", [False, True])
async def test_D52_the_agent_s_client_gets_the_provider_s_status_too(tmp_path: Path, stream: bool) -> None:
    sections = {"model": {"provider": "up-chat", "name": "status-429"}}
    async with dialect_server(tmp_path, sections=sections) as server:
        status, body = await server.post(PATH, ask("tailrace", stream=stream))
    assert status == 429
    assert body["error"]["type"] == "rate_limit_error"


async def test_an_unknown_provider_is_404_and_names_the_field(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(PATH, ask("nobody/model"))
    assert status == 404
    assert (body["error"]["param"], body["error"]["code"]) == ("model", "model_not_found")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [3]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": "hello"}, "messages"),
        ({"temperature": "hot"}, "temperature"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"response_format": {}}, "response_format"),
    ],
)
async def test_a_request_that_makes_no_sense_names_the_field(tmp_path: Path, fields: JsonObject, param: str) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(PATH, {**ask("up-chat/ok"), **fields})
        assert not server.provider.requests
    assert status == 400, body
    assert body["error"]["param"] == param


@pytest.mark.parametrize("content", ["", " \n", [{"type": "text", "text": ""}]])
async def test_an_agent_that_is_asked_nothing_says_so(tmp_path: Path, content: Any) -> None:
    """As `POST /runs` and the command line do. What a raw model makes of it is its provider's affair."""
    async with dialect_server(tmp_path) as server:
        messages = [{"role": "user", "content": content}]
        status, body = await server.post(PATH, {"model": "tailrace", "messages": messages})
        assert not server.provider.requests
        assert (await server.post(PATH, {"model": "up-chat/ok", "messages": messages}))[0] == 200
    assert (status, body["error"]["param"]) == (400, "messages")
    assert body["error"]["message"] == "nothing was asked: the last message is empty"


# ── the agent ────────────────────────────────────────────────────────────────────────────────────────────────


TOOL_TURN = [reply("Let me look.", call("water_level", {"river": "Aare"})), reply("It is at 3.2 m.")]
BOTH_TEXTS = "Let me look.\n\nIt is at 3.2 m."


async def test_our_tools_run_here_and_show_as_comments(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, TOOL_TURN, tools=[WATER_LEVEL]) as server:
        async with server.session.post(server.url + PATH, json=ask("tailrace", stream=True)) as response:
            raw = await response.text()
        assert ": tool water_level" in raw
        assert "3.2 m" in raw
        assert "tool_calls" not in raw
        sent = server.provider.requests[1].json()["messages"][-1]
    assert (sent["role"], sent["content"]) == ("tool", "Aare is at 3.2 m")


@pytest.mark.parametrize("stream", [False, True])
async def test_I102_a_client_is_told_when_its_turn_is_set_aside(tmp_path: Path, stream: bool) -> None:
    async with dialect_server(tmp_path, ["silence"]) as server:
        asking = asyncio.create_task(server.post(PATH, ask("tailrace", stream=stream)))
        await server.provider.request(0)
        await park_turn(server.app)
        status, body = await asking
    assert (status, REASON in body["error"]["message"]) == (409, True)


async def test_streamed_and_whole_the_agent_says_the_same(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, [*TOOL_TURN, *TOOL_TURN], tools=[WATER_LEVEL]) as server:
        chunks = await server.data(PATH, ask("tailrace", stream=True))
        _, body = await server.post(PATH, ask("tailrace"))
    assert text_of(chunks) == body["choices"][0]["message"]["content"] == BOTH_TEXTS


@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_s_tools_are_the_client_s_to_run(tmp_path: Path, stream: bool) -> None:
    script = [reply(call("get_weather", {"city": "Bern"}))]
    async with dialect_server(tmp_path, script, tools=[WATER_LEVEL]) as server:
        request = ask("tailrace", tools=[WEATHER], stream=stream)
        if stream:
            chunks = await server.data(PATH, request)
            calls = [c for chunk in chunks[:-1] for c in chunk["choices"][0]["delta"].get("tool_calls", ())]
            reason = chunks[-2]["choices"][0]["finish_reason"]
        else:
            _, body = await server.post(PATH, request)
            calls = body["choices"][0]["message"]["tool_calls"]
            reason = body["choices"][0]["finish_reason"]
        offered = {tool["function"]["name"] for tool in server.provider.requests[0].json()["tools"]}
    assert [(c["function"]["name"], c["function"]["arguments"]) for c in calls] == [("get_weather", '{"city":"Bern"}')]
    assert reason == "tool_calls"
    assert offered >= {"get_weather", "water_level"}


async def test_the_client_s_result_goes_back_to_the_model(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, [reply("Sunny, then.")]) as server:
        called = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How is it?"},
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ]
        status, body = await server.post(PATH, {"model": "tailrace", "messages": messages, "tools": [WEATHER]})
        system, *sent = server.provider.requests[0].json()["messages"]
    assert (status, body["choices"][0]["message"]["content"]) == (200, "Sunny, then.")
    assert system["content"].endswith("Be brief.")
    assert sent == [
        {"role": "user", "content": "How is it?"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]


async def test_a_tool_of_the_client_s_stands_before_ours_of_the_same_name(tmp_path: Path) -> None:
    theirs = {"type": "function", "function": {"name": "water_level", "parameters": {"type": "object"}}}
    script = [reply(call("water_level", {"river": "Aare"}))]
    async with dialect_server(tmp_path, script, tools=[WATER_LEVEL]) as server:
        _, body = await server.post(PATH, ask("tailrace", tools=[theirs]))
        offered = [tool["function"]["name"] for tool in server.provider.requests[0].json()["tools"]]
    assert body["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "water_level"
    assert offered.count("water_level") == 1


async def test_sampling_reaches_the_model_behind_the_agent(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "Water", "schema": schema}}
    fields: JsonObject = {
        "temperature": 0.3,
        "top_p": 0.9,
        "max_tokens": 7,
        "seed": 4,
        "stop": ["END"],
        "response_format": form,
    }
    async with dialect_server(tmp_path) as server:
        await server.post(PATH, ask("tailrace", **fields))
        sent = server.provider.requests[0].json()
    assert {name: sent[name] for name in ("temperature", "top_p", "max_tokens", "seed", "stop")} == {
        **{name: fields[name] for name in ("temperature", "top_p", "max_tokens", "seed")},
        "stop": ["END"],
    }
    assert sent["response_format"]["json_schema"]["name"] == "Water"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": [{"role": "assistant", "content": "I"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}, "messages[0].content[0]"),
    ],
)
async def test_what_an_agent_cannot_honour_is_refused(tmp_path: Path, fields: JsonObject, param: str) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(PATH, {**ask("tailrace"), **fields})
        assert not server.provider.requests
    assert (status, body["error"]["param"]) == (400, param)


async def test_a_field_at_its_default_asks_for_nothing(tmp_path: Path) -> None:
    fields: JsonObject = {
        "n": 1,
        "logprobs": False,
        "frequency_penalty": 0,
        "user": "anna",
        "metadata": {"a": "b"},
        "seed": None,
    }
    async with dialect_server(tmp_path) as server:
        status, _ = await server.post(PATH, ask("tailrace", **fields))
    assert status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_cut_for_good_is_the_agent_s_text_and_length(tmp_path: Path, stream: bool) -> None:
    sections = {"model": {"provider": "up-chat", "name": "text-and-tools+cut@70%"}}
    async with dialect_server(tmp_path, sections=sections) as server:
        request = ask("tailrace", stream=stream)
        if stream:
            chunks = await server.data(PATH, request)
            assert chunks[-1] == "[DONE]"
            text, reason = text_of(chunks), chunks[-2]["choices"][0]["finish_reason"]
        else:
            status, body = await server.post(PATH, request)
            assert status == 200
            text, reason = body["choices"][0]["message"]["content"], body["choices"][0]["finish_reason"]
    assert reason == "length"
    assert text.startswith("Let me look that up.")
    assert "⚠ Stream stalled mid tool-call (get_" in text


@pytest.mark.parametrize("shown", [False, True])
async def test_the_agent_s_thoughts_are_shown_where_the_config_says_so(tmp_path: Path, shown: bool) -> None:
    sections = {"agent": {"show_reasoning": shown}}
    async with dialect_server(tmp_path, [reply(think("Downhill."), say("Down."))], sections=sections) as server:
        chunks = await server.data(PATH, ask("tailrace", stream=True))
    thoughts = [chunk["choices"][0]["delta"].get("reasoning_content") or "" for chunk in chunks[:-1]]
    assert "".join(thoughts) == ("Downhill." if shown else "")
    assert text_of(chunks) == "Down."


async def test_a_front_end_s_request_for_a_title_is_one_plain_call(tmp_path: Path) -> None:
    chore = "### Task:\nGenerate a title.\n### Chat History:\n<chat_history>USER: hi</chat_history>"
    async with dialect_server(tmp_path, tools=[WATER_LEVEL]) as server:
        status, _ = await server.post(PATH, ask("tailrace", chore))
        assert len(server.provider.requests) == 1
        assert "tools" not in server.provider.requests[0].json()
    assert status == 200
