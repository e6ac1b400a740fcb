"""The agent goes on after a call that its client ran, with all that it did and thought before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from proof.strict_provider import StrictProvider

from server.dialect_api import DIALECTS, WATER_LEVEL, DialectServer, dialect_server
from tailrace.messages import Dialect, JsonObject
from tailrace.testing.provider import Reply, call, reply, think

FORM: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}}
OWN, CLIENT = call("water_level", {"river": "Aare"}), call("weather", {"city": "Bern"})
DONE = reply(think("Enough."), "High water.")
IN_TURN = [reply(think("The river."), "Let me look.", OWN), reply(think("The weather."), "And there.", CLIENT), DONE]
AT_ONCE = [reply(think("Both."), OWN, CLIENT), DONE]
TWO_AT_ONCE = [reply(think("Both."), CLIENT, call("weather", {"city": "Thun"})), DONE]


async def chat(server: DialectServer, *, split: bool = False) -> str:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": FORM}}]
    messages: list[Any] = [{"role": "user", "content": "How high will it be?"}]
    asked: JsonObject = {"model": "tailrace", "tools": tools}
    _, first = await server.post("/v1/chat/completions", {**asked, "messages": messages})
    said = first["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": each["id"], "content": "rain"} for each in said["tool_calls"]]
    if split:  # each call in a message of its own, as some clients keep them
        for each, result in zip(said["tool_calls"], results, strict=True):
            messages += [{"role": "assistant", "content": None, "tool_calls": [each]}, result]
    else:
        messages += [said, *results]
    status, last = await server.post("/v1/chat/completions", {**asked, "messages": messages})
    assert status == 200, last
    return str(last["choices"][0]["message"]["content"])


async def responses(server: DialectServer, *, by_id: bool = False) -> str:
    question = {"role": "user", "content": "How high will it be?"}
    tools = [{"type": "function", "name": "weather", "parameters": FORM, "strict": False}]
    asked: JsonObject = {"model": "tailrace", "tools": tools}
    _, first = await server.post("/v1/responses", {**asked, "input": [question]})
    calls = [item["call_id"] for item in first["output"] if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": each, "output": "rain"} for each in calls]
    told = {"input": [question, *first["output"], *results]}
    status, last = await server.post(
        "/v1/responses", {**asked, **({"input": results, "previous_response_id": first["id"]} if by_id else told)}
    )
    assert status == 200, last
    return str(last["output"][-1]["content"][0]["text"])


async def messages(server: DialectServer) -> str:
    question = {"role": "user", "content": "How high will it be?"}
    asked: JsonObject = {"model": "tailrace", "max_tokens": 4096, "tools": [{"name": "weather", "input_schema": FORM}]}
    _, first = await server.post("/v1/messages", {**asked, "messages": [question]})
    calls = [block["id"] for block in first["content"] if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": each, "content": "rain"} for each in calls]
    told = [question, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": results}]
    status, last = await server.post("/v1/messages", {**asked, "messages": told})
    assert status == 200, last
    return str(last["content"][-1]["text"])


def provider_of(turn: list[Reply]) -> StrictProvider:
    return StrictProvider(turns={"agentic": turn}, returns_reasoning=True)


@pytest.mark.parametrize("turn", [IN_TURN, AT_ONCE, TWO_AT_ONCE], ids=["in turn", "at once", "two of the client's"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_agent_s_own_tools_and_thoughts_are_not_forgotten(
    tmp_path: Path, dialect: Dialect, turn: list[Reply]
) -> None:
    """The provider goes by the results that it is shown: with one missing, it would call that tool again."""
    sections = {"model": {"provider": f"up-{dialect}", "name": "agentic"}}
    provider = provider_of(turn)
    async with dialect_server(tmp_path, provider=provider, tools=[WATER_LEVEL], sections=sections) as server:
        said = [
            await chat(server),
            await responses(server),
            await responses(server, by_id=True),
            await messages(server),
        ]
        last = [request.body for request in provider.requests if b"rain" in request.body]
    assert (said, provider.refusals) == (["High water."] * 4, [])
    assert len(last) == 4
    if turn is not TWO_AT_ONCE:
        assert all(b"Aare is at 3.2 m" in body for body in last)
    if turn is IN_TURN:
        assert [body.count(b"Let me look.") for body in last] == [1] * 4


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_calls_that_the_client_has_parted_keep_their_thought(tmp_path: Path, dialect: Dialect) -> None:
    sections = {"model": {"provider": f"up-{dialect}", "name": "agentic"}}
    provider = provider_of(TWO_AT_ONCE)
    async with dialect_server(tmp_path, provider=provider, sections=sections) as server:
        assert await chat(server, split=True) == "High water."
        assert provider.refusals == []


async def test_calls_of_a_run_that_is_not_there_stay_as_the_client_wrote_them(tmp_path: Path) -> None:
    call_id = f"call_{'0' * 24}_0"
    called = {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    told = [
        {"role": "user", "content": "How high will it be?"},
        {"role": "assistant", "content": "Looking.", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": call_id, "content": "rain"},
    ]
    async with dialect_server(tmp_path) as server:
        status, _ = await server.post("/v1/chat/completions", {"model": "tailrace", "messages": told})
        sent = server.provider.requests[-1].json()["messages"][-2:]
    assert status == 200
    assert sent[0]["tool_calls"][0]["id"] == sent[1]["tool_call_id"] == call_id


async def test_a_turn_is_listed_with_what_its_user_said(tmp_path: Path) -> None:
    """A client's own notes are not what they said."""
    note = {"type": "text", "text": "<system-reminder>It is Monday.</system-reminder>"}
    asked = [note, {"type": "text", "text": "How high will it be?"}]
    later = {"role": "system", "content": "Agents that there are: none."}
    body: JsonObject = {"model": "tailrace", "max_tokens": 64, "messages": [{"role": "user", "content": asked}, later]}
    async with dialect_server(tmp_path) as server:
        await server.post("/v1/messages", body)
        await server.post("/v1/messages", {**body, "messages": [{"role": "user", "content": "How low?"}]})
        _, runs = await server.get("/runs")
    assert [run["input"] for run in runs["data"]] == ["How low?", "How high will it be?"]
