"""Namespaced and custom tools of the Responses API, told to other providers as functions and named back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from proof.strict_provider import StrictProvider

from server.dialect_api import dialect_server
from tailrace.testing.provider import call, reply

SPAWN: Any = {"type": "function", "name": "spawn", "parameters": {"type": "object"}, "strict": False}
TOOLS: Any = [
    {"type": "namespace", "name": "agents", "description": "Helpers.", "tools": [SPAWN]},
    {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "text"}},
]
PATCH = '*** Begin "Patch"\n+ żółw'
CALLED = reply(call("agents__spawn", {"task": "look"}), call("apply_patch", {"input": PATCH}))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["up-chat/ok", "up-anthropic/ok", "tailrace"])
async def test_namespaced_and_custom_tools_round_trip(tmp_path: Path, model: str, stream: bool) -> None:
    async with dialect_server(tmp_path, [CALLED, reply("Done.")]) as server, server.openai() as client:
        conversation: list[Any] = [{"role": "user", "content": "Go."}]
        if stream:
            async with client.responses.stream(model=model, input=conversation, tools=TOOLS) as events:
                first: Any = await events.get_final_response()
        else:
            first = await client.responses.create(model=model, input=conversation, tools=TOOLS)
        spawn, patch = first.output
        assert (spawn.type, spawn.name, spawn.namespace) == ("function_call", "spawn", "agents")
        assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "apply_patch", PATCH)
        conversation += first.output
        conversation.append({"type": "function_call_output", "call_id": spawn.call_id, "output": "seen"})
        conversation.append({"type": "custom_tool_call_output", "call_id": patch.call_id, "output": "patched"})
        second = await client.responses.create(model=model, input=conversation, tools=TOOLS)
        assert second.output_text == "Done."
        offered, returned = (request.json() for request in server.provider.requests)
    names = [tool.get("function", tool)["name"] for tool in offered["tools"]]
    assert {"agents__spawn", "apply_patch"} <= set(names)
    called = str(returned["messages"])
    assert "agents__spawn" in called
    if model != "up-anthropic/ok":
        (answer,) = (message for message in returned["messages"] if message["role"] == "assistant")
        arguments = [msgspec.json.decode(each["function"]["arguments"]) for each in answer["tool_calls"]]
        assert arguments == [{"task": "look"}, {"input": PATCH}]


async def test_a_choice_of_such_a_tool_is_the_choice_of_its_function(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        for choice in (
            {"type": "custom", "name": "apply_patch"},
            {"type": "function", "name": "spawn", "namespace": "agents"},
        ):
            body = {"model": "up-chat/ok", "input": "Go.", "tools": TOOLS, "tool_choice": choice}
            status, _ = await server.post("/v1/responses", body)
            assert status == 200
        chosen = [request.json()["tool_choice"]["function"]["name"] for request in server.provider.requests]
    assert chosen == ["apply_patch", "agents__spawn"]


async def test_a_name_that_is_too_long_with_its_namespace_is_cut_and_named_back(tmp_path: Path) -> None:
    namespace, names = "mcp__" + "n" * 40, ["t" * 40 + end for end in ("_1", "_2")]
    tools = [{"type": "namespace", "name": namespace, "tools": [{**SPAWN, "name": name} for name in names]}]
    provider = StrictProvider()
    async with dialect_server(tmp_path, provider=provider) as server:
        body: dict[str, Any] = {"model": "up-chat/ok", "tools": tools, "input": [{"role": "user", "content": "Go."}]}
        await server.post("/v1/responses", body)
        offered = [tool["function"]["name"] for tool in provider.requests[0].json()["tools"]]
        provider.extend(reply(call(offered[1])), reply("Done."))
        _, first = await server.post("/v1/responses", body)
        (made,) = first["output"]
        result = {"type": "function_call_output", "call_id": made["call_id"], "output": "seen"}
        _, second = await server.post("/v1/responses", {**body, "input": [*body["input"], made, result]})
        returned = provider.requests[-1].json()["messages"][1]["tool_calls"][0]["function"]["name"]
    assert (made["namespace"], made["name"]) == (namespace, names[1])
    assert (second["status"], returned) == ("completed", offered[1])
    assert provider.refusals == []


@pytest.mark.parametrize("mode", ["auto", "required"])
async def test_such_tools_may_be_the_allowed_ones(tmp_path: Path, mode: str) -> None:
    allowed = [{"type": "function", "name": "spawn", "namespace": "agents"}, {"type": "custom", "name": "apply_patch"}]
    async with dialect_server(tmp_path) as server:
        choice = {"type": "allowed_tools", "mode": mode, "tools": allowed}
        body = {"model": "up-chat/ok", "input": "Go.", "tools": [*TOOLS, SPAWN], "tool_choice": choice}
        status, answer = await server.post("/v1/responses", body)
        assert status == 200, answer
        sent = server.provider.requests[0].json()
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["agents__spawn", "apply_patch"]
    assert sent["tool_choice"] == mode


async def test_their_calls_are_what_they_were_where_a_response_goes_on_at_the_provider_of_the_dialect(
    tmp_path: Path,
) -> None:
    async with dialect_server(tmp_path, [CALLED, reply("Done.")]) as server:
        body: dict[str, Any] = {"model": "up-chat/ok", "input": "Go.", "tools": TOOLS}
        _, first = await server.post("/v1/responses", body)
        results = [
            {"type": f"{item['type'].removesuffix('call')}call_output", "call_id": item["call_id"], "output": "seen"}
            for item in first["output"]
        ]
        again = {**body, "model": "up-responses/ok", "previous_response_id": first["id"], "input": results}
        status, answer = await server.post("/v1/responses", again)
        assert status == 200, answer
        _, spawn, patch, *outputs = server.provider.requests[1].json()["input"]
    assert (spawn["type"], spawn["namespace"], spawn["name"]) == ("function_call", "agents", "spawn")
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "apply_patch", PATCH)
    assert outputs == results
