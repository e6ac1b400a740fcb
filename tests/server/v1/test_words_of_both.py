"""Words that another dialect has too: tiers of service, functions as they once were, searches of the web."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.dialect_api import dialect_server
from server.v1.test_between_dialects import CHAT, MESSAGES, QUESTION, RESPONSES, answered, ask
from tailrace.messages import JsonObject
from tailrace.testing.provider import call, reply

UP = {CHAT: "up-chat/ok", RESPONSES: "up-responses/ok", MESSAGES: "up-anthropic/ok"}
PLACE = {"type": "approximate", "country": "CH", "city": "Basel"}
OPTIONS = {
    "search_context_size": "high",
    "user_location": {"type": "approximate", "approximate": {"country": "CH", "city": "Basel"}},
}
CLAUDES: JsonObject = {
    "type": "web_search_20250305",
    "name": "web_search",
    "max_uses": 8,
    "allowed_domains": ["rhine.example"],
    "user_location": PLACE,
}
OPENAIS: JsonObject = {"type": "web_search", "filters": {"allowed_domains": ["rhine.example"]}, "user_location": PLACE}


async def sent_for(home: Path, path: str, to: str, **fields: Any) -> tuple[list[str], JsonObject]:
    """What was ignored, and what the provider was sent."""
    async with dialect_server(home) as server:
        ignored, _ = await answered(server, path, ask(path, to, **fields))
        sent: JsonObject = server.provider.requests[0].json()
        return ignored, sent


# ── tiers and options ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("path", "to"), [(CHAT, RESPONSES), (RESPONSES, CHAT)])
async def test_a_tier_of_service_has_a_word_in_both_of_openais_apis(tmp_path: Path, path: str, to: str) -> None:
    ignored, sent = await sent_for(tmp_path, path, UP[to], service_tier="flex")
    assert (ignored, sent["service_tier"]) == ([], "flex")
    _, sent = await sent_for(tmp_path, path, UP[to], service_tier="auto")
    assert "service_tier" not in sent


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_a_tier_that_anthropic_does_not_have_is_named(tmp_path: Path, path: str) -> None:
    ignored, sent = await sent_for(tmp_path, path, UP[MESSAGES], service_tier="priority")
    assert (ignored, "service_tier" in sent) == (["service_tier"], False)


async def test_options_of_a_stream_reach_a_provider_of_the_same_dialect(tmp_path: Path) -> None:
    options = {"include_usage": False, "include_obfuscation": False}
    _, sent = await sent_for(tmp_path, CHAT, UP[CHAT], stream_options=options)
    assert sent["stream_options"] == {"include_usage": True, "include_obfuscation": False}
    _, sent = await sent_for(
        tmp_path, RESPONSES, UP[RESPONSES], store=False, stream_options={"include_obfuscation": False}
    )
    assert sent["stream_options"] == {"include_obfuscation": False}


async def test_options_of_a_stream_are_not_sent_without_one(tmp_path: Path) -> None:
    endpoints = {"up": {"dialect": "chat", "stream": False}}
    async with dialect_server(tmp_path) as up:
        endpoints["up"]["base_url"] = up.provider.openai_url
        async with dialect_server(tmp_path / "b", sections={"providers": endpoints}) as server:
            await answered(server, CHAT, ask(CHAT, "up/ok", stream_options={"include_obfuscation": False}))
        assert "stream_options" not in up.provider.requests[0].json()


# ── functions ────────────────────────────────────────────────────────────────────────────────────────────────

FUNCTION = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
CALLED: list[JsonObject] = [
    *QUESTION,
    {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": '{"at":1}'}},
    {"role": "function", "name": "look", "content": "a river"},
    {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": '{"at":2}'}},
    {"role": "function", "name": "look", "content": "a mill"},
]


@pytest.mark.parametrize("model", ["up-responses/m", "up-anthropic/m", "tailrace"])
async def test_functions_are_offered_as_tools_and_called_as_functions(tmp_path: Path, model: str) -> None:
    answer = reply("Let me look.", call("look", {"at": 3}))
    body = {"model": model, "messages": CALLED, "functions": [FUNCTION], "function_call": {"name": "look"}}
    sections = {"model": {"provider": "up-anthropic", "name": "m"}}
    async with dialect_server(tmp_path, [answer, answer], sections=sections) as server:
        ignored, whole = await answered(server, CHAT, body)
        chunks = await server.data(CHAT, {**body, "stream": True})
        sent = server.provider.requests[0].json()
    choice = whole["choices"][0]
    assert ignored == []
    assert choice["message"]["function_call"] == {"name": "look", "arguments": '{"at":3}'}
    assert (choice["finish_reason"], "tool_calls" in choice["message"]) == ("function_call", False)
    pieces = [chunk["choices"][0]["delta"].get("function_call", {}) for chunk in chunks[:-1]]
    assert "".join(piece.get("name", "") for piece in pieces) == "look"
    assert "".join(piece.get("arguments", "") for piece in pieces) == '{"at":3}'
    assert chunks[-2]["choices"][0]["finish_reason"] == "function_call"
    if model == "up-responses/m":
        ids = [item["call_id"] for item in sent["input"] if "call_id" in item]
        assert ids[0] == ids[1] != ids[2] == ids[3]
        assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ({"type": "function", "name": "look"}, False)
    else:
        blocks = [block for message in sent["messages"] for block in message["content"]]
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert used == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert len(set(used)) == 2


async def test_functions_reach_a_provider_of_the_same_dialect_as_they_are(tmp_path: Path) -> None:
    fields: JsonObject = {"functions": [FUNCTION], "function_call": "auto", "messages": CALLED}
    _, sent = await sent_for(tmp_path, CHAT, UP[CHAT], **fields)
    assert {name: sent[name] for name in fields} == fields
    assert "tools" not in sent
    assert "parallel_tool_calls" not in sent


async def test_a_result_of_a_function_that_nobody_called_is_refused(tmp_path: Path) -> None:
    messages = [*QUESTION, {"role": "function", "name": "look", "content": "a river"}]
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(CHAT, {"model": "up-anthropic/ok", "messages": messages})
    assert (status, body["error"]["param"]) == (400, "messages[1].name")


# ── searches ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "to", "fields", "tool", "ignored"),
    [
        (
            CHAT,
            RESPONSES,
            {"web_search_options": OPTIONS},
            {"type": "web_search", "search_context_size": "high", "user_location": PLACE},
            [],
        ),
        (
            CHAT,
            MESSAGES,
            {"web_search_options": OPTIONS},
            {"type": "web_search_20250305", "name": "web_search", "user_location": PLACE},
            ["web_search_options.search_context_size"],
        ),
        (MESSAGES, RESPONSES, {"tools": [CLAUDES]}, OPENAIS, ["tools.web_search_20250305.max_uses"]),
        (
            RESPONSES,
            MESSAGES,
            {"tools": [{**OPENAIS, "type": "web_search_preview_2025_03_11"}]},
            {name: value for name, value in CLAUDES.items() if name != "max_uses"},
            [],
        ),
    ],
)
async def test_a_search_that_the_provider_makes_has_a_word_elsewhere(
    tmp_path: Path, path: str, to: str, fields: JsonObject, tool: JsonObject, ignored: list[str]
) -> None:
    named, sent = await sent_for(tmp_path, path, UP[to], **fields)
    assert (sent["tools"], named) == ([tool], ignored)


async def test_a_search_that_must_be_made(tmp_path: Path) -> None:
    chosen = {"type": "tool", "name": "web_search"}
    _, sent = await sent_for(tmp_path, MESSAGES, UP[RESPONSES], tools=[CLAUDES], tool_choice=chosen)
    assert sent["tool_choice"] == {"type": "web_search"}
    _, sent = await sent_for(tmp_path, RESPONSES, UP[MESSAGES], tools=[OPENAIS], tool_choice={"type": "web_search"})
    assert sent["tool_choice"] == chosen
    async with dialect_server(tmp_path) as server:
        body = ask(MESSAGES, UP[CHAT], tools=[CLAUDES], tool_choice=chosen)
        status, refused = await server.post(MESSAGES, body)
    assert (status, "tool_choice" in refused["error"]["message"]) == (400, True)


async def test_a_search_that_is_not_among_the_allowed_tools_is_not_offered(tmp_path: Path) -> None:
    function = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]}
    _, sent = await sent_for(tmp_path, RESPONSES, UP[MESSAGES], tools=[OPENAIS, function], tool_choice=choice)
    assert [tool["name"] for tool in sent["tools"]] == ["look"]
    choice["tools"] = [{"type": "web_search"}]
    _, sent = await sent_for(tmp_path, RESPONSES, UP[MESSAGES], tools=[OPENAIS, function], tool_choice=choice)
    assert [tool["name"] for tool in sent["tools"]] == ["web_search"]


async def test_the_agent_searches_with_its_own_tools(tmp_path: Path) -> None:
    sections = {"model": {"provider": "up-responses", "name": "ok"}}
    async with dialect_server(tmp_path, sections=sections) as server:
        ignored, _ = await answered(server, CHAT, ask(CHAT, "tailrace", web_search_options={}))
        sent = server.provider.requests[0].json()
    assert ignored == ["web_search_options"]
    assert all(tool["type"] == "function" for tool in sent.get("tools", []))
