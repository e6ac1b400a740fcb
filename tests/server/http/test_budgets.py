"""A day's budget is looked at before every model call, and each call is charged to the key that began its run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.http_server import RunningServer, running_server
from tailrace.testing.provider import Reply, call, reply

CONFIG = """
server:
  keys:
    - {name: poor, key_env: POOR_KEY, tokens_per_day: 1000}
    - {name: ops, key_env: OPS_KEY, scopes: [admin]}
    - {name: desk, key_env: DESK_KEY}
"""
ENV = {name: f"{name.lower()}-secret" for name in ("POOR_KEY", "OPS_KEY", "DESK_KEY")}
LONG = "a word or two " * 400  # more than a day's budget
RAW = "faulty/ok"


def server_of(tmp_path: Path, *script: str | Reply, store: str = "memory://"):  # type: ignore[no-untyped-def]
    return running_server(tmp_path, *script, config=CONFIG, env=ENV, store=store)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}_key-secret"}


async def used(server: RunningServer) -> dict[str, tuple[int, int]]:
    """The calls and the tokens of each key."""
    rows = (await server.json("GET", "/usage?by=key", headers=bearer("ops")))[1]["data"]
    return {row["key"]: (row["calls"], row["input_tokens"] + row["output_tokens"]) for row in rows}


async def instance_of(server: RunningServer, key: str, blocks: list[dict[str, Any]], given: object = None) -> Any:
    made = (await server.json("POST", "/sequences", {"name": "s", "blocks": blocks}, headers=bearer("ops")))[1]
    body = {"sequence_id": made["id"], "input": given or {}}
    begun = (await server.json("POST", "/instances", body, headers=bearer(key)))[1]
    await server.events(f"/instances/{begun['id']}/stream", headers=bearer("ops"))
    return (await server.json("GET", f"/instances/{begun['id']}", headers=bearer("ops")))[1]


def agent_step(**params: object) -> dict[str, Any]:
    return {"type": "step", "id": "a", "handler": "agent", "params": {"prompt": "Go.", **params}}


async def ended(server: RunningServer, run_id: str) -> dict[str, Any]:
    *_, last = await server.events(f"/runs/{run_id}/stream", headers=bearer("ops"))
    return last


async def test_O174_a_run_over_its_keys_budget_makes_no_further_call(tmp_path: Path) -> None:
    calls = [reply(LONG, call("read_file", {"path": "notes.txt"})) for _ in range(5)]
    async with server_of(tmp_path, *calls, reply("Done.")) as server:
        run = (await server.json("POST", "/runs", {"input": "Go."}, headers=bearer("poor")))[1]
        last = await ended(server, run["id"])
        assert (last["status"], last["error"]["kind"]) == ("failed", "insufficient_quota")
        assert len(server.provider.requests) == 1
        for again in ({"after": 1}, None):
            path = f"/runs/{run['id']}/{'fork' if again else 'retry'}"
            status, _ = await server.json("POST", path, again, headers=bearer("poor"))
            assert status == 429
        assert len(server.provider.requests) == 1


async def test_O174_a_run_that_another_process_takes_over_is_held_to_the_budget_of_its_key(tmp_path: Path) -> None:
    store = "sqlite:///shared.db"
    async with server_of(tmp_path, "silence", store=store) as first:
        run = (await first.json("POST", "/runs", {"input": "Go."}, headers=bearer("poor")))[1]
        await first.provider.request()
    body = {"model": RAW, "messages": [{"role": "user", "content": "Go."}]}
    async with server_of(tmp_path, reply(LONG), reply("Done."), store=store) as second:
        assert (await second.json("POST", "/v1/chat/completions", body, headers=bearer("poor")))[0] == 200
        await second.app.agents.recover()
        last = await ended(second, run["id"])
        assert (last["status"], last["error"]["kind"]) == ("failed", "insufficient_quota")
        assert len(second.provider.requests) == 1


async def test_O174_a_loop_of_model_steps_ends_with_its_keys_budget(tmp_path: Path) -> None:
    asked = {"provider": "faulty", "model": "ok", "messages": [{"role": "user", "content": "Go."}]}
    step = {"type": "step", "id": "say", "handler": "llm_call", "params": asked}
    each = {"type": "for_each", "id": "all", "collection": "input.items", "body": [step]}
    async with server_of(tmp_path, *[reply(LONG)] * 30) as server:
        instance = await instance_of(server, "poor", [each], {"items": list(range(30))})
        assert (instance["state"], instance["error"]["code"]) == ("failed", "insufficient_quota")
        assert len(server.provider.requests) == 1
        assert (await used(server))["poor"][0] == 1


async def test_O174_forty_requests_at_once_spend_one_call_over_the_budget_at_most(tmp_path: Path) -> None:
    body = {"model": RAW, "messages": [{"role": "user", "content": "Go."}]}
    async with server_of(tmp_path, *[reply(LONG)] * 40) as server:
        asking = [server.json("POST", "/v1/chat/completions", body, headers=bearer("poor")) for _ in range(40)]
        answers = await asyncio.gather(*asking)
        refused = [answer["error"]["code"] for status, answer in answers if status == 429]
        assert refused == ["insufficient_quota"] * 39
        assert [status for status, _ in answers if status != 429] == [200]
        assert len(server.provider.requests) == 1


async def test_what_calls_have_reserved_is_free_when_they_have_ended(tmp_path: Path) -> None:
    body = {"model": RAW, "messages": [{"role": "user", "content": "Go."}], "max_tokens": 900}
    async with server_of(tmp_path, *[reply("Yes.")] * 3) as server:
        for _ in range(3):
            assert (await server.json("POST", "/v1/chat/completions", body, headers=bearer("poor")))[0] == 200
        reserved = await server.app.journal.counters("reserved\t")
        assert set(reserved.values()) == {0.0}


async def test_O173_an_agents_step_is_charged_to_the_owner_of_its_instance(tmp_path: Path) -> None:
    async with server_of(tmp_path, reply(LONG), reply("More.")) as server:
        instance = await instance_of(server, "poor", [agent_step()])
        assert instance["state"] == "completed"
        assert set(await used(server)) == {"poor"}
        status, _ = await server.json("POST", "/runs", {"input": "Go."}, headers=bearer("poor"))
        assert status == 429


async def test_O174_an_agents_step_over_the_budget_fails_for_good(tmp_path: Path) -> None:
    steps = [agent_step(), {**agent_step(), "id": "b", "retry": {"max_attempts": 5}}]
    async with server_of(tmp_path, reply(LONG), reply("More.")) as server:
        instance = await instance_of(server, "poor", steps)
        assert (instance["state"], instance["error"]["code"]) == ("failed", "insufficient_quota")
        assert len(server.provider.requests) == 1


async def test_O173_a_run_in_a_platforms_session_is_charged_to_the_key_that_began_it(tmp_path: Path) -> None:
    async with server_of(tmp_path, reply("Yes."), reply("Yes.")) as server:
        body = {"input": "Go.", "session": "telegram:42"}
        run = (await server.json("POST", "/runs", body, headers=bearer("ops")))[1]
        await ended(server, run["id"])
        assert set(await used(server)) == {"ops"}


@pytest.mark.parametrize("session", ["telegram:42", "{{input.where}}"])
async def test_O175_a_step_writes_to_a_platforms_session_for_an_admin_alone(tmp_path: Path, session: str) -> None:
    async with server_of(tmp_path, reply("Yes.")) as server:
        given = {"where": "telegram:42"}
        refused = await instance_of(server, "desk", [agent_step(session=session)], given)
        assert (refused["state"], refused["error"]["code"]) == ("failed", "session_of_a_chat")
        assert await server.app.journal.runs(session="telegram:42") == []
        assert (await instance_of(server, "ops", [agent_step(session=session)], given))["state"] == "completed"


async def test_O175_a_conversation_of_a_request_is_no_platforms(tmp_path: Path) -> None:
    async with server_of(tmp_path) as server:
        body = {"model": RAW, "input": "Go.", "conversation": "telegram:42"}
        status, answer = await server.json("POST", "/v1/responses", body, headers=bearer("desk"))
        assert (status, answer["error"]["code"]) == (403, "session_of_a_chat")
        assert server.provider.requests == []
