"""`GET /ops`: what the operator's page is made of."""

from __future__ import annotations

from pathlib import Path

from server.http_server import RunningServer, running_server
from tailrace.testing.provider import reply

KEYS = """
server:
  drain_s: 0.05
  keys:
    - {name: boss, key_env: BOSS_KEY, scopes: [admin]}
    - {name: ci, key_env: CI_KEY, tokens_per_day: 1000}
"""
ENV = {"BOSS_KEY": "boss-secret", "CI_KEY": "ci-secret"}
BOSS = {"Authorization": "Bearer boss-secret"}
CI = {"Authorization": "Bearer ci-secret"}


async def ended(server: RunningServer, run_id: str, headers: dict[str, str]) -> None:
    await server.events(f"/runs/{run_id}/stream?after=0", headers=headers)


async def test_an_operator_sees_processes_providers_keys_and_errors(tmp_path: Path) -> None:
    refused = "status-401"
    async with running_server(tmp_path, reply("Done."), refused, refused, config=KEYS, env=ENV) as server:
        for question in ("Go.", "And now?"):
            _, run = await server.json("POST", "/runs", {"input": question}, headers=CI)
            await ended(server, run["id"], CI)
        status, ops = await server.json("GET", "/ops", headers=BOSS)
    assert status == 200
    assert [(node["owner"], node["report"]["problems"]) for node in ops["nodes"]] == [(server.app.owner, {})]
    providers = {provider["name"]: provider for provider in ops["providers"]}
    assert (providers["faulty"]["calls"], providers["faulty"]["failed"]) == (2, 1)
    assert providers["faulty"]["first_token_s"] > 0
    assert "401" in providers["faulty"]["problem"]
    assert (providers["other"]["calls"], providers["other"]["failed"]) == (1, 1)
    keys = {key["name"]: key for key in ops["keys"]}
    assert keys["ci"]["tokens_per_day"] == 1000
    assert keys["ci"]["tokens"] > 0
    assert keys["ci"]["usd"] is None, "the model has no price"
    assert (keys["boss"]["source"], keys["boss"]["tokens"]) == ("config", 0)
    assert [(failed["id"], failed["key"], failed["question"]) for failed in ops["errors"]] == [
        (run["id"], "ci", "And now?")
    ]
    assert ops["errors"][0]["problem"]
    assert (ops["live"], ops["approvals"], ops["platforms"]) == ([], [], [])
    assert ops["bus"] == "none", "the store itself wakes other processes"


async def test_J119_the_operators_page_is_for_admin_keys_alone(tmp_path: Path) -> None:
    async with running_server(tmp_path, config=KEYS, env=ENV) as server:
        for path in ("/ops", "/keys"):
            assert (await server.json("GET", path))[0] == 401
            status, body = await server.json("GET", path, headers=CI)
            assert (status, body["error"]["details"]["scope"]) == (403, "admin")
        assert (await server.json("POST", "/keys", {"name": "more"}, headers=CI))[0] == 403
        assert (await server.json("DELETE", "/keys/ci", headers=CI))[0] == 403


async def test_a_live_run_is_shown_with_its_process_and_is_stopped(tmp_path: Path) -> None:
    async with running_server(tmp_path, "stall@1") as server:
        run_id = await server.start("Wait.")
        _, ops = await server.json("GET", "/ops")
        [live] = ops["live"]
        assert (live["id"], live["question"], live["owner"]) == (run_id, "Wait.", server.app.owner)
        assert ops["nodes"][0]["report"]["running"] == 1
        await server.json("POST", f"/runs/{run_id}/stop")
        await server.events(f"/runs/{run_id}/stream?after=0")
        assert (await server.json("GET", "/ops"))[1]["live"] == []


async def test_a_key_is_made_used_and_revoked_while_the_server_runs(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Done."), config=KEYS, env=ENV) as server:
        asked = {"name": "deploy", "scopes": ["runs"], "tokens_per_day": 50, "requests_per_minute": 9}
        status, made = await server.json("POST", "/keys", asked, headers=BOSS)
        assert (status, made["name"]) == (201, "deploy")
        own = {"Authorization": f"Bearer {made['key']}"}
        await server.app.journal.next_value("server.keys", "all", None)
        while "deploy" not in server.app.stored_keys:  # the server has not taken it yet: each request lets it go on
            await server.json("GET", "/healthz")
        assert (await server.json("GET", "/runs", headers=own))[0] == 200
        _, listed = await server.json("GET", "/keys", headers=BOSS)
        [shown] = [key for key in listed["data"] if key["name"] == "deploy"]
        assert (shown["source"], shown["scopes"], shown["tokens_per_day"]) == ("store", ["runs"], 50)
        assert made["key"] not in str(listed), "no list shows a key"
        assert (await server.json("POST", "/keys", asked, headers=BOSS))[0] == 400, "the name is taken"
        assert (await server.json("POST", "/keys", {"name": "ci"}, headers=BOSS))[0] == 400, "by the config"
        assert (await server.json("DELETE", "/keys/ci", headers=BOSS))[0] == 409, "the config has it"
        assert (await server.json("DELETE", "/keys/deploy", headers=BOSS))[0] == 204
        while "deploy" in server.app.stored_keys:
            await server.json("GET", "/healthz")
        assert (await server.json("GET", "/runs", headers=own))[0] == 401
        assert (await server.json("DELETE", "/keys/deploy", headers=BOSS))[0] == 404


async def test_J117_the_page_makes_no_first_key(tmp_path: Path) -> None:
    """It would lock out the page that made it, and every client."""
    async with running_server(tmp_path) as server:
        status, body = await server.json("POST", "/keys", {"name": "first"})
        assert status == 409, body
        assert await server.app.journal.list_values("server.keys") == {}
