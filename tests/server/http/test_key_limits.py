"""What keys may use, over the wire: models, requests a minute, budgets of a day; and who sees what was used."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import anthropic
import openai
import pytest

from server.http_server import RunningServer, running_server
from tailrace.app.usage.limits import KeyLimits
from tailrace.server.http.key_limits import is_counted

CONFIG = """
server:
  keys:
    - {name: narrow, key_env: NARROW_KEY, models: ["*/ok", sequences]}
    - {name: slow, key_env: SLOW_KEY, requests_per_minute: 2}
    - {name: poor, key_env: POOR_KEY, tokens_per_day: 40}
    - {name: ops, key_env: OPS_KEY, scopes: [admin]}
"""
ENV = {name: f"{name.lower()}-secret" for name in ("NARROW_KEY", "SLOW_KEY", "POOR_KEY", "OPS_KEY")}
RAW = "faulty/ok"


@pytest.fixture(autouse=True)
def _one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """No minute ends in the middle of a test."""
    began, defaults = time.time(), KeyLimits.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "clock", lambda: began)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}_key-secret".lower()}


def server_of(tmp_path: Path, *script: str, store: str = "memory://"):  # type: ignore[no-untyped-def]
    return running_server(tmp_path, *script, config=CONFIG, env=ENV, store=store)


async def ask(server: RunningServer, key: str, model: str = RAW) -> tuple[int, dict[str, object], dict[str, str]]:
    body = {"model": model, "messages": [{"role": "user", "content": "Go."}]}
    async with server.client.post(server.url + "/v1/chat/completions", json=body, headers=bearer(key)) as response:
        return response.status, await response.json(), {k.lower(): v for k, v in response.headers.items()}


async def test_a_key_uses_and_sees_its_own_models(tmp_path: Path) -> None:
    async with server_of(tmp_path) as server:
        assert (await ask(server, "narrow"))[0] == 200
        for model in ("faulty/long", "tailrace"):
            status, body, _ = await ask(server, "narrow", model)
            assert (status, body["error"]["code"]) == (403, "model_not_allowed"), model  # type: ignore[index]
        for path, refused in (
            ("/runs", {"input": "Go."}),
            ("/runs", {"input": "Go.", "model": "faulty/long"}),
            ("/v1/responses", {"model": "tailrace", "input": "Go."}),
            (
                "/v1/messages",
                {"model": "faulty/long", "max_tokens": 9, "messages": [{"role": "user", "content": "Go."}]},
            ),
        ):
            status, body = await server.json("POST", path, refused, headers=bearer("narrow"))
            assert status == 403, (path, body)
        counted = {"model": "faulty/long", "messages": [{"role": "user", "content": "Go."}]}
        for method, path, asked in (
            ("POST", "/v1/messages/count_tokens", counted),
            ("POST", "/v1/responses/input_tokens", {"model": "faulty/long", "input": "Go."}),
            ("GET", "/v1/models/faulty/long", None),
        ):
            assert (await server.json(method, path, asked, headers=bearer("narrow")))[0] == 403, path
        status, listed = await server.json("GET", "/v1/models", headers=bearer("narrow"))
        assert status == 200
        assert {model["id"].partition("/")[2] for model in listed["data"]} == {"ok"}


async def test_requests_over_the_minute_s_are_refused_as_vendors_do_it(tmp_path: Path) -> None:
    async with server_of(tmp_path) as server:
        answers = await asyncio.gather(*(ask(server, "slow") for _ in range(4)))
        assert sorted(status for status, _, _ in answers) == [200, 200, 429, 429]
        left = sorted(headers["x-ratelimit-remaining-requests"] for status, _, headers in answers if status == 200)
        assert left == ["0", "1"]
        _, body, headers = next(answer for answer in answers if answer[0] == 429)
        assert body["error"]["code"] == "rate_limit_exceeded"  # type: ignore[index]
        assert 1 <= int(headers["retry-after"]) <= 60
        told = [headers[f"x-ratelimit-{what}-requests"] for what in ("limit", "remaining", "reset")]
        assert told == ["2", "0", headers["retry-after"] + "s"]
        status, looked = await server.json("GET", "/v1/models", headers=bearer("slow"))
        assert (status, bool(looked["data"])) == (200, True), "to look costs nothing"
        assert (await ask(server, "ops"))[0] == 200, "other keys are not concerned"


async def test_what_is_refused_before_a_model_was_asked_is_not_counted(tmp_path: Path) -> None:
    chat = "/v1/chat/completions"
    async with server_of(tmp_path) as server:
        for path, body, status in (
            (chat, {"model": RAW, "messages": []}, 400),
            (chat, {"model": "nobody/knows", "messages": [{"role": "user", "content": "Go."}]}, 404),
            ("/runs", {"input": "Go.", "session": "telegram:1"}, 403),
        ):
            async with server.client.post(server.url + path, json=body, headers=bearer("slow")) as response:
                told = (response.status, response.headers["x-ratelimit-remaining-requests"])
                assert told == (status, "2"), (path, await response.text())
        for text, status in (("Go.", 201), ("Stop.", 409)):  # the first is counted, and the second is not
            body = {"input": text, "idempotency_key": "k"}
            async with server.client.post(server.url + "/runs", json=body, headers=bearer("slow")) as response:
                assert (response.status, response.headers["x-ratelimit-remaining-requests"]) == (status, "1")
        status, _, headers = await ask(server, "slow", "faulty/status-400")
        assert (status, headers["x-ratelimit-remaining-requests"]) == (400, "0"), "the provider was asked, and refused"
        assert (await ask(server, "slow"))[0] == 429


async def test_a_day_s_tokens_end_at_its_budget_and_the_answer_under_way_is_finished(tmp_path: Path) -> None:
    async with server_of(tmp_path) as server:
        passed = 0
        while (answer := await ask(server, "poor"))[0] == 200:
            passed += 1
            assert passed < 5
        status, body, headers = answer
        assert (status, passed) == (429, 1)
        assert body["error"]["code"] == "insufficient_quota"  # type: ignore[index]
        assert headers["x-should-retry"] == "false"
        assert int(headers["retry-after"]) <= 86_400
        assert headers["x-ratelimit-remaining-tokens"] == "0"


async def test_the_official_clients_raise_their_own_error(tmp_path: Path) -> None:
    async with server_of(tmp_path) as server:
        for _ in range(2):
            await ask(server, "slow")
        chat = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=ENV["SLOW_KEY"], max_retries=0)
        messages = anthropic.AsyncAnthropic(base_url=server.url, api_key=ENV["SLOW_KEY"], max_retries=0)
        async with chat, messages:
            with pytest.raises(openai.RateLimitError, match="2 requests a minute"):
                await chat.chat.completions.create(model=RAW, messages=[{"role": "user", "content": "Go."}])
            with pytest.raises(openai.RateLimitError, match="2 requests a minute"):
                await chat.responses.create(model=RAW, input="Go.")
            with pytest.raises(anthropic.RateLimitError, match="2 requests a minute"):
                await messages.messages.create(model=RAW, max_tokens=9, messages=[{"role": "user", "content": "Go."}])


async def test_usage_is_shown_by_key_and_model_and_outlives_the_server(tmp_path: Path) -> None:
    store = "sqlite:///runs.db"
    async with server_of(tmp_path, store=store) as server:
        await ask(server, "slow")
        run = (await server.json("POST", "/runs", {"input": "Go.", "model": RAW}, headers=bearer("ops")))[1]["id"]
        await server.events(f"/runs/{run}/stream", headers=bearer("ops"))
        own = (await server.json("GET", "/usage", headers=bearer("slow")))[1]["data"]
        assert [(row["key"], row["model"], row["calls"]) for row in own] == [("slow", RAW, 1)]
        assert own[0]["input_tokens"] > 0
        assert own[0]["output_tokens"] > 0
        spent = server.metrics.spent_tokens.values
        assert spent["slow", RAW, "output"] == own[0]["output_tokens"]
    async with server_of(tmp_path, store=store) as server:
        everyone = (await server.json("GET", "/usage?by=key", headers=bearer("ops")))[1]["data"]
        assert {row["key"] for row in everyone} == {"slow", "ops"}
        status, body = await server.json("GET", "/usage?since=yesterday", headers=bearer("ops"))
        assert status == 400, body


async def test_every_route_that_asks_a_model_is_counted(tmp_path: Path) -> None:
    async with server_of(tmp_path) as server:
        counted = {route.path for route in server.pipeline.routes if is_counted(route)}
    assert counted == {
        *("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/responses/compact"),
        *("/runs", "/runs/{id}/fork", "/runs/{id}/retry", "/instances", "/instances/{id}/retry", "/ui/chat", "/ag-ui"),
    }


async def test_what_a_run_uses_is_charged_to_who_started_it(tmp_path: Path) -> None:
    definition = {
        "name": "one",
        "blocks": [
            {
                "type": "step",
                "id": "a",
                "handler": "llm_call",
                "params": {"provider": "faulty", "model": "ok", "messages": [{"role": "user", "content": "Go."}]},
            }
        ],
    }
    async with server_of(tmp_path) as server:
        made = (await server.json("POST", "/sequences", definition, headers=bearer("ops")))[1]
        instance = (await server.json("POST", "/instances", {"sequence_id": made["id"]}, headers=bearer("narrow")))[1][
            "id"
        ]
        await server.events(f"/instances/{instance}/stream", headers=bearer("ops"))
        body = {"model": RAW, "input": "Go.", "background": True}
        stored = (await server.json("POST", "/v1/responses", body, headers=bearer("slow")))[1]["id"]
        async with server.client.get(
            f"{server.url}/v1/responses/{stored}?stream=true", headers=bearer("slow")
        ) as response:
            await response.read()
        rows = (await server.json("GET", "/usage?by=key", headers=bearer("ops")))[1]["data"]
    assert {row["key"]: row["calls"] for row in rows} == {"narrow": 1, "slow": 1}
