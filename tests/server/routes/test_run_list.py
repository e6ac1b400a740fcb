"""Which runs `GET /runs` finds, and the same as CSV."""

from __future__ import annotations

import time
from pathlib import Path

from server.http_server import RunningServer, running_server
from tailrace.testing.provider import reply

KEYS = """
server:
  drain_s: 0.05
  keys: [{name: boss, key_env: BOSS_KEY, scopes: [admin]}, {name: ci, key_env: CI_KEY}]
"""
ENV = {"BOSS_KEY": "boss-secret", "CI_KEY": "ci-secret"}
BOSS, CI = ({"Authorization": f"Bearer {secret}"} for secret in ENV.values())


async def three_runs(server: RunningServer) -> list[str]:
    """One of the key boss, then two of ci, the last of which fails."""
    ids = []
    for question, headers in (("Cast off.", BOSS), ("Weigh the anchor.", CI), ("=1+1", CI)):
        _, run = await server.json("POST", "/runs", {"input": question}, headers=headers)
        await server.events(f"/runs/{run['id']}/stream?after=0", headers=headers)
        ids.append(run["id"])
    return ids


async def found(server: RunningServer, query: str) -> list[str]:
    status, body = await server.json("GET", f"/runs?{query}", headers=BOSS)
    assert status == 200, body
    return [run["id"] for run in body["data"]]


SCRIPT = (reply("Aye."), reply("The anchor is up, and a good deal more is said of it."), "status-401", "status-401")


async def test_runs_are_filtered_by_key_model_status_time_and_text(tmp_path: Path) -> None:
    async with running_server(tmp_path, *SCRIPT, config=KEYS, env=ENV) as server:
        first, second, third = await three_runs(server)
        assert await found(server, "key=ci") == [third, second]
        assert await found(server, "status=failed") == [third]
        assert await found(server, "key=ci&status=completed") == [second]
        assert await found(server, "q=ANCHOR") == [second], "of the question"
        assert await found(server, "q=aye") == [first], "of the answer"
        assert await found(server, "model=faulty/&kind=agent,call") == [second, first]
        assert await found(server, "model=other/ok") == [third], "that spent nothing, and was asked last"
        assert await found(server, "kind=call,sequence") == []
        assert await found(server, f"since={time.time() + 60}") == []
        assert await found(server, f"until={time.time() + 60}") == [third, second, first]
        assert await found(server, "min_usd=0.01") == []
        assert (await found(server, "sort=tokens"))[0] == second
        assert await found(server, "limit=1&sort=tokens") == [second]


async def test_a_run_that_spent_nothing_names_the_model_that_refused_it(tmp_path: Path) -> None:
    async with running_server(tmp_path, "status-401", "status-401") as server:
        run_id = await server.start()
        await server.events(f"/runs/{run_id}/stream?after=0")
        _, listed = await server.json("GET", "/runs?model=other")
        _, shown = await server.json("GET", f"/runs/{run_id}")
    assert [(run["id"], run["answered_by"]) for run in listed["data"]] == [(run_id, "other/ok")]
    assert shown["answered_by"] == "other/ok"


async def test_a_filtered_list_goes_on_where_its_page_ended(tmp_path: Path) -> None:
    async with running_server(tmp_path, *SCRIPT, config=KEYS, env=ENV) as server:
        _, second, third = await three_runs(server)
        _, page = await server.json("GET", "/runs?key=ci&limit=1", headers=BOSS)
        assert ([run["id"] for run in page["data"]], page["page"]["next"]) == ([third], third)
        _, page = await server.json("GET", f"/runs?key=ci&limit=1&before={third}", headers=BOSS)
        assert ([run["id"] for run in page["data"]], page["page"]["more"]) == ([second], False)


async def test_a_clients_call_is_found_under_its_key(tmp_path: Path) -> None:
    asked = {"model": "faulty/ok", "messages": [{"role": "user", "content": "Hi."}]}
    async with running_server(tmp_path, reply("Aye."), config=KEYS, env=ENV) as server:
        status, _ = await server.json("POST", "/v1/chat/completions", asked, headers=CI)
        assert status == 200
        _, body = await server.json("GET", "/runs?kind=call&key=ci", headers=BOSS)
        assert [(run["key"], run["input"]) for run in body["data"]] == [("ci", "Hi.")]
