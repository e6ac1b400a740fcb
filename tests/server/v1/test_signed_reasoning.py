"""Signed thinking through Responses clients, encrypted reasoning through Messages clients, and back to who made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.dialect_api import DialectServer, dialect_server
from server.v1.replaying_provider import rebuilt
from server.v1.test_between_dialects import MESSAGES, QUESTION, RESPONSES
from tailrace.messages import JsonObject, NativeDelta, Reasoning
from tailrace.testing.provider import call, reply, think
from tailrace.wire.reasoning_seal import is_sealed, seal, sealed_native, unsealed

LOOK = call("look", {"at": "it"})
DONE = (reply("A river."), reply("A river."))
CLAUDES_TOOL: JsonObject = {"name": "look", "input_schema": {"type": "object"}}
OPENAIS_TOOL: JsonObject = {"type": "function", "name": "look", "parameters": {"type": "object"}}


async def answer_of(server: DialectServer, path: str, body: JsonObject, *, stream: bool) -> JsonObject:
    if not stream:
        status, whole = await server.post(path, body)
        assert status == 200, whole
        return dict(whole)
    async with server.session.post(server.url + path, json={**body, "stream": True}) as response:
        whole = rebuilt("responses" if path == RESPONSES else "anthropic", await response.read())
    assert whole is not None
    return whole


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [False, True])
async def test_K131_signed_thinking_returns_to_anthropic_through_a_responses_client(
    tmp_path: Path, store: bool, stream: bool
) -> None:
    thoughts = (think("Look first.", signature="sig-1"), think("Then speak.", signature="sig-2"))
    async with dialect_server(tmp_path, [reply(*thoughts, "I look.", LOOK), *DONE]) as server:
        asked: Any = {"model": "up-anthropic/claude", "tools": [OPENAIS_TOOL], "store": store}
        body = {**asked, "input": [*QUESTION]}
        answer = await answer_of(server, RESPONSES, body, stream=stream)
        call_id = next(item["call_id"] for item in answer["output"] if item["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": call_id, "output": "a river"}
        for model in ("up-anthropic/claude", "up-responses/m"):
            again = {**asked, "model": model, "input": [*QUESTION, *answer["output"], result]}
            await answer_of(server, RESPONSES, again, stream=stream)
        to_claude, to_openai = (request.json() for request in server.provider.requests[1:])
    said = to_claude["messages"][1]["content"]
    assert said[:2] == [
        {"type": "thinking", "thinking": "Look first.", "signature": "sig-1"},
        {"type": "thinking", "thinking": "Then speak.", "signature": "sig-2"},
    ]
    assert [block["type"] for block in said[2:]] == ["text", "tool_use"]
    assert [item for item in to_openai["input"] if item.get("type") == "reasoning"] == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("summary", ["Look first.", ""])
async def test_K131_encrypted_reasoning_returns_to_openai_through_a_messages_client(
    tmp_path: Path, summary: str, stream: bool
) -> None:
    script = [reply(think(summary, signature="sealed"), "I look.", LOOK), *DONE]
    async with dialect_server(tmp_path, script) as server:
        asked: Any = {"model": "up-responses/m", "tools": [CLAUDES_TOOL], "max_tokens": 99}
        answer = await answer_of(server, MESSAGES, {**asked, "messages": QUESTION}, stream=stream)
        assert answer["content"][0]["type"] == ("thinking" if summary else "redacted_thinking")
        result = {"type": "tool_result", "tool_use_id": answer["content"][-1]["id"], "content": "a river"}
        said = [*QUESTION, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": [result]}]
        for model in ("up-responses/m", "up-anthropic/claude"):
            await answer_of(server, MESSAGES, {**asked, "model": model, "messages": said}, stream=stream)
        first, to_openai, to_claude = server.provider.requests
    (item,) = [item for item in to_openai.json()["input"] if item.get("type") == "reasoning"]
    assert item["encrypted_content"] == "sealed"
    assert "".join(part["text"] for part in item["summary"]) == summary
    assert item["id"].startswith("rs_")
    assert [block["type"] for block in to_claude.json()["messages"][1]["content"]] == ["text", "tool_use"]
    assert first.json()["include"] == ["reasoning.encrypted_content"]


async def test_K131_a_seal_reaches_no_provider_that_counts(tmp_path: Path) -> None:
    """Neither in the client's own body nor as the item of a provider of the same dialect that did not make it."""
    encrypted: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    thought: JsonObject = {"type": "thinking", "thinking": "Hm.", "signature": seal("another", item=encrypted)}
    said = {"role": "assistant", "content": [thought, {"type": "text", "text": "A river."}]}
    async with dialect_server(tmp_path) as server:
        for model in ("up-anthropic/claude", "up-responses/m"):
            body = {"model": model, "messages": [*QUESTION, said, *QUESTION]}
            status, counted = await server.post(f"{MESSAGES}/count_tokens", body)
            assert status == 200, counted
        to_claude, to_openai = (request.json() for request in server.provider.requests)
    assert to_claude["messages"][1]["content"] == [{"type": "text", "text": "A river."}]
    assert to_claude.keys() == {"model", "messages"}
    assert [item for item in to_openai["input"] if item.get("type") == "reasoning"] == []


@pytest.mark.parametrize("stream", [False, True])
async def test_K131_a_plain_client_s_first_block_is_the_answer(tmp_path: Path, stream: bool) -> None:
    hidden = reply(think("", signature="sealed"), "A river.")
    async with dialect_server(tmp_path, [hidden, hidden]) as server:
        body: JsonObject = {"model": "up-responses/m", "max_tokens": 99, "messages": QUESTION}
        plain = await answer_of(server, MESSAGES, body, stream=stream)
        thinks = await answer_of(server, MESSAGES, {**body, "thinking": {"type": "adaptive"}}, stream=stream)
    assert [block["type"] for block in plain["content"]] == ["text"]
    assert [block["type"] for block in thinks["content"]] == ["redacted_thinking", "text"]


def test_K131_hidden_thinking_is_sealed_too() -> None:
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    sealed = sealed_native(NativeDelta("anthropic", {"start": hidden}), "", "up")
    assert sealed is not None
    assert is_sealed(sealed)
    assert unsealed("", sealed) == Reasoning("", "anthropic", hidden, "up/")


@pytest.mark.parametrize(
    "item",
    [
        {"type": "text", "text": "not reasoning"},
        {"type": "thinking", "thinking": "x", "signature": "y", "cache_control": {}},
        {"type": "reasoning", "id": "rs_1"},
        {"type": "item_reference", "id": "rs_1"},
    ],
)
def test_K131_a_seal_holds_nothing_but_reasoning(item: JsonObject) -> None:
    """Clients may write what they like: any other item is plain text."""
    assert unsealed("Hm.", seal("up", item=item)) == Reasoning("Hm.")
