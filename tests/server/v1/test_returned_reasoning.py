"""Reasoning of a chat provider round-trips through clients of the other two APIs (K131)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from proof.strict_provider import StrictProvider

from server.dialect_api import DIALECTS, dialect_server
from server.v1.replaying_provider import rebuilt, replaying
from tailrace.messages import Dialect, JsonObject
from tailrace.testing.provider import FaultyProvider, Reply, call, reply
from tailrace.testing.scripted.reply import think
from tailrace.wire.reasoning_seal import seal

CHAT_TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
ANTHROPIC_TOOL: Any = {"name": "get_weather", "input_schema": {"type": "object"}}
RESPONSES_TOOL: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}
CALLED = reply(think("Bern, then."), "Let me look.", call("get_weather", {"city": "Bern"}))
AGAIN = reply(think("And Thun."), call("get_weather", {"city": "Thun"}))
SILENT = reply(call("get_weather", {"city": "Thun"}))
DONE = reply(think("Enough."), "It rains in both.")
THOUGHTS = ["Bern, then.", "And Thun."]


def wants_reasoning_back() -> StrictProvider:
    """As DeepSeek and Kimi: a call that comes back without the reasoning before it is refused."""
    return StrictProvider(returns_reasoning=True)


def reasoning_returned(provider: FaultyProvider) -> list[str]:
    """In the last request."""
    answers = [m for m in provider.requests[-1].json()["messages"] if m["role"] == "assistant"]
    return [answer["reasoning_content"] for answer in answers]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["up-chat/ok", "tailrace"])
async def test_K131_an_anthropic_client_s_thinking_goes_back_to_the_chat_provider(
    tmp_path: Path, model: str, stream: bool
) -> None:
    provider = wants_reasoning_back()
    messages: list[Any] = [{"role": "user", "content": "Does it rain?"}]
    asked: Any = {"model": model, "max_tokens": 4096, "tools": [ANTHROPIC_TOOL], "thinking": {"type": "adaptive"}}
    async with dialect_server(tmp_path, provider=provider) as server, server.anthropic() as client:
        provider.extend(CALLED, AGAIN, DONE)
        for _ in range(3):
            if stream:
                async with client.messages.stream(messages=messages, **asked) as events:
                    answer: Any = await events.get_final_message()
            else:
                answer = await client.messages.create(messages=messages, **asked)
            messages.append({"role": "assistant", "content": answer.content})
            calls = [block for block in answer.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": block.id, "content": "rain"} for block in calls]
            messages.append({"role": "user", "content": results})
    assert answer.content[-1].text == "It rains in both."
    assert reasoning_returned(provider) == THOUGHTS


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("model", ["up-chat/ok", "tailrace"])
async def test_K131_a_responses_client_s_reasoning_goes_back_to_the_chat_provider(
    tmp_path: Path, model: str, store: bool, stream: bool
) -> None:
    provider = wants_reasoning_back()
    conversation: list[Any] = [{"role": "user", "content": "Does it rain?"}]
    asked: Any = {"model": model, "tools": [RESPONSES_TOOL], "store": store, "reasoning": {"summary": "auto"}}
    async with dialect_server(tmp_path, provider=provider) as server, server.openai() as client:
        provider.extend(CALLED, AGAIN, DONE)
        for _ in range(3):
            if stream:
                async with client.responses.stream(input=conversation, **asked) as events:
                    response: Any = await events.get_final_response()
            else:
                response = await client.responses.create(input=conversation, **asked)
            conversation += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            conversation += [{"type": "function_call_output", "call_id": c.call_id, "output": "rain"} for c in calls]
    assert response.output_text == "It rains in both."
    assert reasoning_returned(provider) == THOUGHTS


TURN = [CALLED, AGAIN, DONE]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_K131_the_agent_finds_the_reasoning_that_its_client_was_not_shown(
    tmp_path: Path, dialect: Dialect, stream: bool
) -> None:
    """The client runs the tools for the agent and knows nothing of reasoning."""
    provider = StrictProvider(turns={"agentic": TURN}, returns_reasoning=True)
    sections = {"model": {"provider": f"up-{dialect}", "name": "agentic"}}
    messages: list[Any] = [{"role": "user", "content": "Does it rain?"}]
    asked: Any = {"model": "tailrace", "tools": [CHAT_TOOL]}
    async with dialect_server(tmp_path, provider=provider, sections=sections) as server, server.openai() as client:
        for _ in TURN:
            if stream:
                async with client.chat.completions.stream(messages=messages, **asked) as events:
                    answer: Any = (await events.get_final_completion()).choices[0].message
            else:
                answer = (await client.chat.completions.create(messages=messages, **asked)).choices[0].message
            assert not getattr(answer, "reasoning_content", None)
            messages.append({"role": "assistant", "content": answer.content, "tool_calls": answer.tool_calls or []})
            messages += [
                {"role": "tool", "tool_call_id": each.id, "content": "rain"} for each in answer.tool_calls or ()
            ]
        sent = [request.json() for request in provider.requests]
    assert (answer.content, provider.refusals, len(sent)) == ("It rains in both.", [], 3)
    for thought in ("Bern, then.", "And Thun."):
        assert thought in str(sent[-1])


@pytest.mark.parametrize("model", ["up-chat/agentic", "tailrace"])
async def test_K131_reasoning_that_is_returned_by_its_id_alone_gets_its_seal_back(tmp_path: Path, model: str) -> None:
    """As clients do that take encrypted content for a feature of some models only."""
    provider = StrictProvider(turns={"agentic": TURN}, returns_reasoning=True)
    sections = {"model": {"provider": "up-chat", "name": "agentic"}}
    told: list[Any] = [{"role": "user", "content": "Does it rain?"}]
    asked: JsonObject = {"model": model, "tools": [RESPONSES_TOOL], "reasoning": {"summary": "auto"}}
    async with dialect_server(tmp_path, provider=provider, sections=sections) as server:
        for _ in TURN:
            status, response = await server.post("/v1/responses", {**asked, "input": told})
            assert status == 200, response
            for item in response["output"]:
                told.append({**item, "encrypted_content": None} if item["type"] == "reasoning" else item)
                if item["type"] == "function_call":
                    told.append({"type": "function_call_output", "call_id": item["call_id"], "output": "rain"})
        assert provider.refusals == []
    assert response["output"][-1]["content"][0]["text"] == "It rains in both."


async def test_K131_another_key_s_reasoning_is_not_looked_up(tmp_path: Path) -> None:
    keys = {"FIRST": "first-key", "SECOND": "second-key"}
    access = [{"name": name, "key_env": name, "scopes": ["models", "runs"]} for name in keys]
    sections = {"model": {"provider": "up-chat", "name": "agentic"}, "server": {"keys": access, "drain_s": 0.05}}
    provider = FaultyProvider(turns={"agentic": TURN})
    asked: Any = {"model": "tailrace", "tools": [CHAT_TOOL]}
    async with dialect_server(tmp_path, provider=provider, sections=sections, env=keys) as server:
        question = {"role": "user", "content": "Does it rain?"}
        _, first = await server.post(
            "/v1/chat/completions", {**asked, "messages": [question]}, Authorization="Bearer first-key"
        )
        called = first["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "rain"}
        told = {**asked, "messages": [question, called, result]}
        for key, thought in (("second-key", None), ("first-key", "Bern, then.")):
            await server.post("/v1/chat/completions", told, Authorization=f"Bearer {key}")
            sent = [m for m in provider.requests[-1].json()["messages"] if m["role"] == "assistant"]
            assert [message.get("reasoning_content") for message in sent] == [thought]


# ── the agent, whose reasoning a client is not shown unless it asks ──────────────────────────────────────────────


@pytest.mark.parametrize("store", [False, True])
async def test_K131_the_agent_s_reasoning_goes_back_for_a_responses_client_that_was_not_shown_it(
    tmp_path: Path, store: bool
) -> None:
    provider = StrictProvider(turns={"agentic": TURN}, returns_reasoning=True)
    sections = {"model": {"provider": "up-chat", "name": "agentic"}}
    conversation: list[Any] = [{"role": "user", "content": "Does it rain?"}]
    async with dialect_server(tmp_path, provider=provider, sections=sections) as server, server.openai() as client:
        for _ in TURN:
            response: Any = await client.responses.create(
                model="tailrace", input=conversation, tools=[RESPONSES_TOOL], store=store
            )
            conversation += response.output
            assert not [item for item in response.output if item.type == "reasoning"]
            calls = [item for item in response.output if item.type == "function_call"]
            conversation += [{"type": "function_call_output", "call_id": c.call_id, "output": "rain"} for c in calls]
    assert (response.output_text, provider.refusals) == ("It rains in both.", [])


def rewritten(message: Any) -> JsonObject:
    """A chat client's own form of an answer: no field that it does not know, the arguments encoded anew."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(json.loads(call["function"]["arguments"]))}}
        for call in message.get("tool_calls") or ()
    ]
    return {"role": "assistant", "content": message["content"], **({"tool_calls": calls} if calls else {})}


async def test_K131_the_agent_s_reasoning_goes_back_for_a_chat_client_that_drops_it(tmp_path: Path) -> None:
    provider = StrictProvider(turns={"agentic": TURN}, returns_reasoning=True)
    sections = {"model": {"provider": "up-chat", "name": "agentic"}}
    messages: list[JsonObject] = [{"role": "user", "content": "Does it rain?"}]
    async with dialect_server(tmp_path, provider=provider, sections=sections) as server:
        for _ in TURN:
            body = {"model": "tailrace", "messages": messages, "tools": [CHAT_TOOL]}
            _, answer = await server.post("/v1/chat/completions", body)
            said = rewritten(answer["choices"][0]["message"])
            results = [{"role": "tool", "tool_call_id": c["id"], "content": "rain"} for c in said.get("tool_calls", ())]
            messages += [said, *results]
    assert (said["content"], provider.refusals) == ("It rains in both.", [])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["up-chat/ok", "up-responses/ok"])
async def test_K131_another_dialect_s_thinking_is_signed_and_left_out_towards_anthropic(
    tmp_path: Path, model: str, stream: bool
) -> None:
    asked: Any = {"max_tokens": 4096, "tools": [ANTHROPIC_TOOL]}
    async with dialect_server(tmp_path, [CALLED]) as server, server.anthropic() as client:
        question: list[Any] = [{"role": "user", "content": "Does it rain?"}]
        if stream:
            async with client.messages.stream(model=model, messages=question, **asked) as events:
                answer: Any = await events.get_final_message()
        else:
            answer = await client.messages.create(model=model, messages=question, **asked)
        assert answer.content[0].signature.startswith("tr1.")
        result = {"type": "tool_result", "tool_use_id": answer.content[-1].id, "content": "rain"}
        said: list[Any] = [
            *question,
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": [result]},
        ]
        await client.messages.create(model="up-anthropic/ok", messages=said, **asked)
        await client.messages.create(model="up-responses/ok", messages=said, **asked)
        to_anthropic, to_responses = (request.json() for request in server.provider.requests[1:])
    assert [block["type"] for block in to_anthropic["messages"][1]["content"]] == ["text", "tool_use"]
    assert not [item for item in to_responses["input"] if item.get("type") == "reasoning"]


async def test_K131_unsigned_thinking_does_not_reach_claude_and_another_model_gets_its_own_back(tmp_path: Path) -> None:
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Yes."}]
    said = [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": blocks}]
    said.append({"role": "user", "content": "Sure?"})
    async with dialect_server(tmp_path, ["ok", "ok"]) as server:
        for model in ("up-anthropic/claude-opus-4-8", "up-anthropic/kimi-k2"):
            status, _ = await server.post("/v1/messages", {"model": model, "max_tokens": 99, "messages": said})
            assert status == 200
        claude, kimi = (request.json()["messages"][1]["content"] for request in server.provider.requests)
    assert (claude, kimi) == (blocks[1:], blocks)


@pytest.mark.parametrize("called", [CALLED, SILENT], ids=["thought", "silent"])
@pytest.mark.parametrize("stand_in", ["up-chat/ok", "up-responses/ok"])
async def test_K131_claude_goes_on_with_the_turn_of_another_provider(
    tmp_path: Path, stand_in: str, called: Reply
) -> None:
    """With a budget Claude wants its own thinking before the calls; there is none until the turn is over."""
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_20250919"}]
    asked: JsonObject = {"max_tokens": 4096, "tools": [ANTHROPIC_TOOL], "context_management": {"edits": edits}}
    asked["thinking"] = {"type": "enabled", "budget_tokens": 2048}
    beta = {"anthropic-version": "2023-06-01", "anthropic-beta": "context-management-2025-06-27"}
    said: list[Any] = [{"role": "user", "content": "Does it rain?"}]
    claude = "up-anthropic/claude-sonnet-4-5"
    provider = StrictProvider([called, SILENT, DONE, DONE])
    async with dialect_server(tmp_path, provider=provider) as server:
        ignored = []
        for model in (stand_in, claude, claude, claude):
            body = {"model": model, "messages": said, **asked}
            async with server.session.post(server.url + "/v1/messages", json=body, headers=beta) as response:
                answer = await response.json()
                ignored.append(response.headers.get("x-tailrace-ignored"))
            assert response.status == 200, answer
            calls = [block for block in answer["content"] if block["type"] == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": block["id"], "content": "rain"} for block in calls]
            said += [
                {"role": "assistant", "content": answer["content"]},
                {"role": "user", "content": results or "Sure?"},
            ]
        sent = [request.json() for request in provider.requests[1:]]
    assert provider.refusals == []
    assert ignored[1:] == ["thinking", "thinking", None]
    assert [body["thinking"]["type"] for body in sent] == ["disabled", "disabled", "enabled"]
    assert [len(body["context_management"]["edits"]) for body in sent] == [1, 1, 2]


OTHER_FIELD = (
    b"".join(
        b"data: %b\n\n" % msgspec.json.encode({"id": "c", "choices": [{"index": 0, **choice}]})
        for choice in (
            {"delta": {"reasoning": "Hm"}},
            {"delta": {"reasoning": ", yes."}},
            {"delta": {"content": "Yes."}},
            {"delta": {}, "finish_reason": "stop"},
        )
    )
    + b"data: [DONE]\n\n"
)


@pytest.mark.parametrize("agent", [False, True])
async def test_K131_the_seal_names_the_field_that_the_provider_has(tmp_path: Path, agent: bool) -> None:
    """Streamed, whole and stored, of a raw model and of the agent."""
    named: dict[str, Any] = {"model": "tailrace"} if agent else {}
    thinks: dict[str, Any] = {**named, "thinking": {"type": "adaptive"}}
    sums_up: dict[str, Any] = {**named, "reasoning": {"summary": "auto"}}
    async with replaying(tmp_path, OTHER_FIELD) as server:
        _, whole = await server.whole("anthropic", "chat", **thinks)
        streamed = rebuilt("anthropic", await server.streamed("anthropic", "chat", **thinks))
        seals = [body["content"][0]["signature"] for body in (whole, streamed or {})]
        for store in (False, True):
            _, whole = await server.whole("responses", "chat", store=store, **sums_up)
            streamed = rebuilt("responses", await server.streamed("responses", "chat", store=store, **sums_up))
            seals += [body["output"][0]["encrypted_content"] for body in (whole, streamed or {})]
    assert seals == [seal("up-chat", "reasoning")] * 6
