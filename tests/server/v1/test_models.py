"""The list of models, and names that clients ask for without a provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from server.dialect_api import DialectServer, dialect_server
from tailrace.app.model_catalogue import FAILED_S, FRESH_S, ModelCatalogue
from tailrace.messages import JsonObject
from tailrace.testing.provider import FaultyProvider

QUESTION = [{"role": "user", "content": "Where does the water go?"}]


async def ids(server: DialectServer) -> list[str]:
    status, body = await server.get("/v1/models")
    assert status == 200
    assert (body["first_id"], body["last_id"]) == (body["data"][0]["id"], body["data"][-1]["id"])
    return [model["id"] for model in body["data"]]


async def test_K138_every_model_that_a_configured_provider_lists_is_there(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        listed = await ids(server)
        assert await ids(server) == listed
        asked = [request.path for request in server.provider.requests]
    assert listed[:2] == ["tailrace", "up-chat/ok"]
    assert {"up-chat/tools", "up-responses/tools", "up-anthropic/tools"} <= set(listed)
    assert len(listed) == len(set(listed))
    assert asked == ["/v1/models"] * 3  # cached


async def test_K138_a_provider_that_is_down_does_not_matter(tmp_path: Path) -> None:
    async with FaultyProvider() as gone:
        away = gone.openai_url
    async with FaultyProvider() as up:
        sections: JsonObject = {
            "providers": {
                "away": {"dialect": "chat", "base_url": away},
                "keyless": {"dialect": "chat", "base_url": up.openai_url, "key_env": "NO_SUCH_KEY"},
                "there": {"dialect": "chat", "base_url": up.openai_url},
            },
            "model": {"provider": "away", "name": "some-model"},
        }
        async with dialect_server(tmp_path, sections=sections) as server:
            listed = await ids(server)
    assert listed[:2] == ["tailrace", "away/some-model"]
    assert "there/tools" in listed
    assert not [name for name in listed if name.startswith("keyless/")]


async def test_K138_a_list_is_asked_for_again_when_it_is_old_and_kept_while_the_provider_is_down(
    tmp_path: Path,
) -> None:
    now = 0.0
    provider = FaultyProvider()
    async with dialect_server(tmp_path, provider=provider) as server:
        catalogue = ModelCatalogue(server.app.config, server.app.models, clock=lambda: now)
        first = await catalogue.models()
        now = FRESH_S - 1
        assert await catalogue.models() == first
        assert len(provider.requests) == 3
        now = FRESH_S + 1
        await provider.close()
        assert await catalogue.models() == first
        now += FAILED_S / 2
        assert await catalogue.models() == first


async def test_a_bare_name_is_answered_by_its_alias(tmp_path: Path) -> None:
    server_section: dict[str, Any] = {"drain_s": 0.05, "aliases": {"claude-*": "up-anthropic/ok", "*": "up-chat/*"}}
    async with dialect_server(tmp_path, sections={"server": server_section}) as server:
        for model in ("claude-opus-4-8", "ok"):
            body = {"model": model, "messages": QUESTION, "max_tokens": 9}
            status, answer = await server.post("/v1/messages", body)
            assert (status, answer["model"]) == (200, model)
        asked = [(request.path, request.json()["model"]) for request in server.provider.requests]
    assert asked == [("/v1/messages", "ok"), ("/v1/chat/completions", "ok")]


async def test_a_bare_name_may_stand_for_the_agent(tmp_path: Path) -> None:
    keys = {"keys": [{"name": "app", "key_env": "APP_KEY", "scopes": ["models"]}]}
    section: dict[str, Any] = {"drain_s": 0.05, "aliases": {"claude-*": "tailrace"}, **keys}
    env = {"TAILRACE_API_KEY": "all", "APP_KEY": "app"}
    async with dialect_server(tmp_path, sections={"server": section}, env=env) as server:
        body = {"model": "claude-opus-4-8", "messages": QUESTION, "max_tokens": 9}
        status, answer = await server.post("/v1/messages", body, authorization="Bearer all")
        assert (status, answer["model"]) == (200, "claude-opus-4-8")
        asked = {"model": "claude-opus-4-8", "input": "Go.", "store": False}
        statuses = [
            (await server.post("/v1/responses", asked, authorization="Bearer all"))[0],
            (await server.post("/v1/messages/count_tokens", body, authorization="Bearer all"))[0],
            (await server.post("/runs", {"model": "claude-opus-4-8", "input": "Go."}, authorization="Bearer all"))[0],
            (await server.post("/v1/messages", body, authorization="Bearer app"))[0],
            (await server.post("/v1/responses", asked, authorization="Bearer app"))[0],
        ]
        offered = server.provider.requests[0].json()["tools"]
    assert "terminal" in [tool["function"]["name"] for tool in offered]
    assert statuses == [200, 200, 201, 403, 403]


async def test_a_bare_name_without_an_alias_is_not_found(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post("/v1/chat/completions", {"model": "some-model", "messages": QUESTION})
    assert (status, body["error"]["code"]) == (404, "model_not_found")
