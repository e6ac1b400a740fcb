"""How far each key reaches: every route by every scope, the agent behind a model's name, and what belongs to a key."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server.http_server import RunningServer, running_server
from tailrace.app.usage.stored_keys import StoredKey, new_key
from tailrace.messages import JsonObject
from tailrace.testing.provider import reply

CONFIG = """
server:
  keys:
    - {name: reader, key_env: READER_KEY, scopes: [models]}
    - {name: second, key_env: SECOND_KEY, scopes: [models]}
    - {name: worker, key_env: WORKER_KEY, scopes: [runs]}
    - {name: desk, key_env: DESK_KEY}
    - {name: judge, key_env: JUDGE_KEY, scopes: [approvals]}
    - {name: ops, key_env: OPS_KEY, scopes: [admin]}
"""
SCOPES: dict[str, set[str]] = {
    "reader": {"models"},
    "second": {"models"},
    "worker": {"runs"},
    "desk": {"models", "runs"},
    "judge": {"approvals"},
    "ops": {"models", "runs", "approvals", "admin"},
}
ENV = {f"{name.upper()}_KEY": f"secret-of-{name}" for name in SCOPES}
# The beginning of a path → the scope that it needs; None: any key. The longest beginning counts.
NEEDS: dict[str, str | tuple[str, ...] | None] = {
    "/v1/": "models",
    "/runs": "runs",
    "/sessions": "runs",
    "/streams": "runs",
    "/ui/chat": "runs",
    "/sequences": "runs",
    "/instances": "runs",
    "/ag-ui": "runs",
    "/mcp": "runs",
    "/about": "runs",
    "/approvals": ("runs", "approvals"),
    "/runs/{id}/approval": ("runs", "approvals"),
    "/usage": None,
    "/metrics": "admin",
    "/ops": "admin",
    "/keys": "admin",
    "/readyz": None,
    "/openapi.json": None,
}
AGENT_CALLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Go."}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 9},
    "/v1/responses": {"input": "Go."},
}


def key(name: str) -> dict[str, str]:
    return {"x-api-key": ENV[f"{name.upper()}_KEY"]}


async def test_every_route_by_every_scope(tmp_path: Path) -> None:
    async with running_server(tmp_path, config=CONFIG, env=ENV) as server:
        for route in server.pipeline.routes:
            if route.access == "open":
                continue
            needed = NEEDS[max((start for start in NEEDS if route.path.startswith(start)), key=len)]
            path = route.path.replace("{id:.+}", "faulty/x")
            path = re.sub(r"\{\w+\}", "run_x", path)
            for name, scopes in SCOPES.items():
                async with server.client.request(route.method, server.url + path, headers=key(name)) as response:
                    refused = response.status == 403
                    wanted = {needed} if isinstance(needed, str) else set(needed or scopes)
                    assert refused == wanted.isdisjoint(scopes), (name, route.method, path)


@pytest.mark.parametrize(
    ("path", "extra"),
    [
        *((path, extra) for path in AGENT_CALLS for extra in ({}, {"stream": True})),
        *(("/v1/responses", extra) for extra in ({"store": False}, {"background": True})),
    ],
)
async def test_the_agent_needs_the_scope_of_runs(tmp_path: Path, path: str, extra: dict[str, bool]) -> None:
    body = {"model": "tailrace", **AGENT_CALLS[path], **extra}
    async with running_server(tmp_path, reply("Hi."), config=CONFIG, env=ENV) as server:
        status, told = await server.json("POST", path, body, headers=key("reader"))
        assert status == 403
        assert "needs a key with the scope 'runs'" in str(told)
        assert await server.json("GET", "/runs", headers=key("ops")) == (
            200,
            {"data": [], "page": {"more": False, "next": None}},
        )
        async with server.client.post(server.url + path, json=body, headers=key("desk")) as response:
            assert response.status == 200


async def test_a_raw_model_needs_the_scope_of_models_alone(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hi."), config=CONFIG, env=ENV) as server:
        for path, body in AGENT_CALLS.items():
            if path == "/v1/messages":
                continue  # of a provider of another dialect: not what this is about
            status, told = await server.json("POST", path, {"model": "faulty/ok", **body}, headers=key("reader"))
            assert status == 200, told


async def test_a_key_is_shown_the_models_that_it_may_use(tmp_path: Path) -> None:
    async with running_server(tmp_path, config=CONFIG, env=ENV) as server:
        shown = {}
        for name in ("reader", "desk", "ops"):
            _, listed = await server.json("GET", "/v1/models", headers=key(name))
            one, _ = await server.json("GET", "/v1/models/tailrace", headers=key(name))
            shown[name] = ([model["id"] for model in listed["data"]][:3], listed["first_id"], one)
    raw = ["faulty/ok", "other/ok"]
    assert shown == {
        "reader": ([*raw, "faulty/empty"], "faulty/ok", 403),
        "desk": (["tailrace", *raw], "tailrace", 200),
        "ops": (["tailrace", *raw], "tailrace", 200),
    }


# ── stored responses ─────────────────────────────────────────────────────────────────────────────────────────


async def stored(server: RunningServer, name: str, **fields: object) -> str:
    body = {"model": "faulty/ok", "input": "A secret of mine.", **fields}
    status, told = await server.json("POST", "/v1/responses", body, headers=key(name))
    assert status == 200, told
    response_id: str = told["id"]
    return response_id


@pytest.mark.parametrize("model", ["faulty/ok", "tailrace"])
@pytest.mark.parametrize("background", [False, True])
async def test_another_keys_stored_response_does_not_exist(tmp_path: Path, model: str, background: bool) -> None:
    async with running_server(tmp_path, reply("Hi."), reply("Hi."), config=CONFIG, env=ENV) as server:
        mine = await stored(server, "desk", model=model, background=background)
        unknown = "resp_0000000000000000000000000"
        for method, path in (
            ("GET", "/v1/responses/{}"),
            ("GET", "/v1/responses/{}?stream=true"),
            ("GET", "/v1/responses/{}?stream=true&starting_after=0"),
            ("GET", "/v1/responses/{}/input_items"),
            ("POST", "/v1/responses/{}/cancel"),
            ("DELETE", "/v1/responses/{}"),
        ):
            status, told = await server.json(method, path.format(mine), headers=key("reader"))
            assert status == 404, (method, path, told)
            _, never = await server.json(method, path.format(unknown), headers=key("reader"))
            assert str(told).replace(mine, "ID") == str(never).replace(unknown, "ID")
        following = {"model": "faulty/ok", "input": "And then?", "previous_response_id": mine}
        assert (await server.json("POST", "/v1/responses", following, headers=key("reader")))[0] == 404
        for name in ("desk", "ops"):
            status, told = await server.json("GET", f"/v1/responses/{mine}/input_items", headers=key(name))
            assert status == 200
            assert "A secret of mine." in str(told)


async def test_an_admin_may_delete_what_any_key_stored(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hi."), config=CONFIG, env=ENV) as server:
        mine = await stored(server, "reader")
        assert (await server.json("DELETE", f"/v1/responses/{mine}", headers=key("desk")))[0] == 404
        assert (await server.json("DELETE", f"/v1/responses/{mine}", headers=key("ops")))[0] == 200
        assert (await server.json("GET", f"/v1/responses/{mine}", headers=key("reader")))[0] == 404


async def test_another_keys_conversation_is_no_history(tmp_path: Path) -> None:
    async with running_server(tmp_path, *[reply("Hi.")] * 4, config=CONFIG, env=ENV) as server:
        await stored(server, "reader", conversation="c1")
        more = {"model": "faulty/ok", "input": "What was it?", "conversation": "c1"}
        assert (await server.json("POST", "/v1/responses", more, headers=key("second")))[0] == 404
        assert (await server.json("POST", "/v1/responses", more, headers=key("reader")))[0] == 200
        assert (await server.json("POST", "/v1/responses", more, headers=key("desk")))[0] == 200


async def test_a_conversation_is_only_its_own_keys_to_change_by_any_route(tmp_path: Path) -> None:
    """Also before it has a run, and where another key has asked in it first or last."""
    async with running_server(tmp_path, *[reply("Hi.")] * 3, config=CONFIG, env=ENV) as server:
        _, empty = await server.json("POST", "/v1/conversations", {"metadata": {}}, headers=key("desk"))
        _, made = await server.json("POST", "/v1/conversations", {}, headers=key("reader"))
        await stored(server, "desk", conversation=made["id"])
        await stored(server, "reader", conversation="c1")
        await stored(server, "desk", conversation="c1")
        refused = [
            (await server.json(method, path.format(name), body, headers=key(caller)))[0]
            for name, caller in ((empty["id"], "worker"), (made["id"], "desk"), ("c1", "desk"))
            for method, path, body in (
                ("PATCH", "/sessions/{}", {"title": "Mine."}),
                ("POST", "/v1/conversations/{}", {"metadata": {"mine": "yes"}}),
                ("DELETE", "/v1/conversations/{}/items/in_x", None),
                ("DELETE", "/v1/conversations/{}", None),
                ("DELETE", "/sessions/{}", None),
            )
        ]
        assert set(refused) == {403}
        owners = ((empty["id"], "desk"), (made["id"], "reader"), ("c1", "reader"))
        for name, owner in owners:
            status, _ = await server.json("GET", f"/v1/conversations/{name}", headers=key(owner))
            assert status == 200
            status, _ = await server.json("DELETE", f"/v1/conversations/{name}", headers=key(owner))
            assert status == 200


async def test_an_instance_is_not_retried_by_a_key_that_may_not_begin_one(tmp_path: Path) -> None:
    config = CONFIG + "    - {name: clerk, key_env: CLERK_KEY, models: [tailrace]}\n"
    async with running_server(tmp_path, config=config, env={**ENV, "CLERK_KEY": "secret-of-clerk"}) as server:
        clerk = {"x-api-key": "secret-of-clerk"}
        block = {
            "type": "step",
            "id": "a",
            "handler": "llm_call",
            "params": {"provider": "faulty", "model": "ok", "messages": []},
        }
        _, made = await server.json("POST", "/sequences", {"name": "s", "blocks": [block]}, headers=key("desk"))
        for path, body in (("/instances", {"sequence_id": made["id"]}), ("/instances/ins_x/retry", None)):
            status, told = await server.json("POST", path, body, headers=clerk)
            assert (status, told["error"]["kind"]) == (403, "model_not_allowed"), path


NAMED: dict[str, Callable[[str], JsonObject]] = {
    "/runs": lambda name: {"input": "Go.", "session": name},
    "/ui/chat": lambda name: {"id": name, "message": {"role": "user", "parts": [{"type": "text", "text": "Go."}]}},
    "/ag-ui": lambda name: {
        "threadId": name,
        "runId": "r",
        "messages": [{"id": "m", "role": "user", "content": "Go."}],
    },
}


@pytest.mark.parametrize("path", [*NAMED, "/v1/responses"])
async def test_no_store_is_given_a_session_with_a_name_of_any_length(tmp_path: Path, path: str) -> None:
    """PostgreSQL has an index of them."""
    async with running_server(tmp_path, reply("Hello."), config=CONFIG, env=ENV) as server:
        longest, status = "s" * 257, 0
        body = {"model": "tailrace", "input": "Go.", "conversation": longest}
        asked = NAMED[path](longest) if path in NAMED else body
        async with server.client.post(server.url + path, json=asked, headers=key("ops")) as response:
            status = response.status
    assert status == 400


async def test_names_of_sequences_and_signals_have_no_control_characters(tmp_path: Path) -> None:
    wait = {"type": "step", "id": "a", "handler": "wait_signal", "params": {"signal": "{{input.name}}"}}
    async with running_server(tmp_path, config=CONFIG, env=ENV) as server:
        refused, _ = await server.json("POST", "/sequences", {"name": "a\0b", "blocks": [wait]}, headers=key("ops"))
        _, sequence = await server.json("POST", "/sequences", {"name": "s", "blocks": [wait]}, headers=key("ops"))
        started = {"sequence_id": sequence["id"], "input": {"name": "go"}}
        _, instance = await server.json("POST", "/instances", started, headers=key("ops"))
        path = f"/instances/{instance['id']}/signals"
        unsent, _ = await server.json("POST", path, {"signal": "a\0b"}, headers=key("ops"))
    assert (refused, unsent) == (400, 400)


@pytest.mark.parametrize("path", NAMED)
async def test_the_conversation_of_a_chat_is_not_for_every_key(tmp_path: Path, path: str) -> None:
    """What stands in it is told to the model when that chat's user asks next; only an admin may add to it."""
    statuses: dict[tuple[str, str], int] = {}
    async with running_server(tmp_path, reply("Hello."), reply("Hello."), config=CONFIG, env=ENV) as server:
        for name, session in (
            ("worker", "telegram:42"),
            ("worker", "matrix:!room:example.org#2"),
            ("worker", "a\0b"),
            ("worker", "telegram"),
            ("ops", "telegram:42"),
        ):
            headers = {"Authorization": f"Bearer secret-of-{name}"}
            async with server.client.post(server.url + path, json=NAMED[path](session), headers=headers) as response:
                statuses[name, session] = response.status
                await response.read()
    done = 201 if path == "/runs" else 200
    assert [*statuses.values()] == [403, 403, 400, done, done]


@pytest.mark.parametrize("path", NAMED)
async def test_a_page_of_another_site_starts_nothing_on_a_server_without_keys(tmp_path: Path, path: str) -> None:
    """A browser sends a form, or `fetch` with plain text, to any site without asking it first (J118)."""
    async with running_server(tmp_path) as server:
        for origin in ("https://evil.example", "null", "http://localhost.evil.example"):
            headers = {"Origin": origin, "Content-Type": "text/plain"}
            data = json.dumps(NAMED[path]("s"))
            async with server.client.post(server.url + path, data=data, headers=headers) as response:
                assert response.status == 403, origin
        _, listed = await server.json("GET", "/runs")
    assert listed["data"] == []


@pytest.mark.parametrize("path", ["/ui/chat", "/ag-ui"])
async def test_a_conversation_stays_its_keys_where_an_admin_has_asked_last(tmp_path: Path, path: str) -> None:
    statuses = []
    async with running_server(tmp_path, *[reply("Hello.")] * 3, config=CONFIG, env=ENV) as server:
        for number, name in enumerate(("worker", "ops", "desk", "worker")):
            asks = json.loads(
                json.dumps(NAMED[path]("s")).replace('"m"', f'"m{number}"').replace('"r"', f'"r{number}"')
            )
            headers = {"Authorization": f"Bearer secret-of-{name}"}
            async with server.client.post(server.url + path, json=asks, headers=headers) as response:
                statuses.append(response.status)
                await response.read()
    assert statuses == [200, 200, 403, 200]


async def test_a_key_that_is_revoked_during_a_reload_of_the_config_stays_revoked(tmp_path: Path) -> None:
    (ann, ann_digest), (bob, bob_digest) = new_key(), new_key()
    async with running_server(tmp_path) as server:
        bobs = {"bob": StoredKey(bob_digest, ("runs",))}
        server.app.take_stored_keys({**bobs, "ann": StoredKey(ann_digest, ("runs",))})
        take_up = server.pipeline.prepared_keys(server.app.config)
        server.app.take_stored_keys(bobs)
        await take_up()
        answers = [await server.json("GET", "/runs", headers={"X-Api-Key": key}) for key in (ann, bob)]
    assert [status for status, _ in answers] == [401, 200]


async def test_streams_end_when_their_key_is_revoked(tmp_path: Path) -> None:
    """Those of a session and of the approvals have no end of their own."""
    (ann, ann_digest), (bob, bob_digest) = new_key(), new_key()
    async with running_server(tmp_path) as server:
        bobs = {"bob": StoredKey(bob_digest, ("runs",))}
        server.app.take_stored_keys({**bobs, "ann": StoredKey(ann_digest, ("runs",))})
        url = server.url + "/approvals/stream"
        async with (
            server.client.get(url, headers={"X-Api-Key": ann}) as anns,
            server.client.get(url, headers={"X-Api-Key": bob}) as bobs_stream,
            asyncio.timeout(30),
        ):
            await anns.content.readuntil(b"\n\n")
            await bobs_stream.content.readuntil(b"\n\n")
            server.app.take_stored_keys(bobs)
            with pytest.raises(aiohttp.ClientPayloadError):
                await anns.content.read()
            assert not bobs_stream.content.at_eof()
