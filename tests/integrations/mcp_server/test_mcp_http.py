"""The run tools at `/mcp`, with the official SDK's client as the host: over real sockets, in both eras of the protocol,
under the keys and scopes of `/runs`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra is not installed")

import httpx2
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitResult

from integrations.mcp_server.mcp_host import Report, call
from server.http_server import RunningServer, running_server
from server.routes.test_steer import WORKS, Work, said_to_model, steers_in
from tailrace.testing.provider import call as tool_call
from tailrace.testing.provider import reply

ERAS = ["auto", "legacy"]
ANSWER = "The wheel turns."
DANGEROUS = tool_call("terminal", {"command": "rm -rf ./mill"})
KEYS = (
    "server: {drain_s: 0.05, keys: ["
    "{name: ann, key_env: ANN, scopes: [runs], models: [tailrace]},"
    "{name: bob, key_env: BOB, scopes: [runs]},"
    "{name: models, key_env: MODELS, scopes: [models]},"
    "{name: person, key_env: PERSON, scopes: [runs, approvals]}]}\n"
)
SECRETS = {
    "ANN": "ann-key-0123456789",
    "BOB": "bob-key-0123456789",
    "MODELS": "m-key-0123456789",
    "PERSON": "p-key-01234",
}


@asynccontextmanager
async def host_at(server: RunningServer, key: str = "", **options: Any) -> AsyncGenerator[Client, None]:
    headers = {"Authorization": f"Bearer {SECRETS[key.upper()]}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http), **options) as host,
    ):
        yield host


async def waiting_run(host: Client) -> dict[str, Any]:
    """A run that waits for an approval, which this host has been told of."""
    waits = await call(host, "start_run", question="?", wait_s=0)
    while waits["status"] != "waiting_for_approval":
        waits = await call(host, "watch_run", run_id=waits["run_id"], wait_s=5)
    (approval,) = waits["approvals"]
    return {"run_id": waits["run_id"], "approval_id": approval["approval_id"]}


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_starts_watches_and_lists_runs(tmp_path: Path, era: str) -> None:
    messages: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message or "")

    async with running_server(tmp_path, reply(ANSWER)) as server, host_at(server, mode=era) as host:
        assert {"start_run", "steer_run", "answer_approval"} < {tool.name for tool in (await host.list_tools()).tools}
        started = Report(await host.call_tool("start_run", {"question": "Turns?"}, progress_callback=note))
        assert (started.text, started["status"]) == (ANSWER, "completed")
        assert messages
        listed = await call(host, "list_runs")
        assert [run["run_id"] for run in listed["runs"]] == [started["run_id"]]
        (resource,) = (await host.list_resources()).resources
        assert resource.uri.endswith(started["run_id"])
        assert (await server.json("GET", f"/runs/{started['run_id']}"))[1]["output"] == ANSWER


@pytest.mark.parametrize("era", ERAS)
async def test_N164_a_message_is_committed_once(tmp_path: Path, era: str) -> None:
    work = Work()
    async with running_server(tmp_path, *WORKS, tools=(work,)) as server, host_at(server, mode=era) as host:
        run_id = (await call(host, "start_run", question="Go.", wait_s=0))["run_id"]
        await work.begun.wait()
        given = await call(host, "steer_run", run_id=run_id, message="Also count.")
        work.may_end.set()
        assert (await call(host, "watch_run", run_id=run_id))["status"] == "completed"
        late = await call(host, "steer_run", run_id=run_id, message="Too late.")
        told = await steers_in(server, run_id)
        assert said_to_model(server) == ["Go.", "Also count."]
    assert [(kind, steer_id) for kind, steer_id, _ in told] == [
        ("steer_accepted", given["steer_id"]),
        ("steer_committed", given["steer_id"]),
    ]
    assert (late.is_error, "has ended" in late.text) == (True, True)


async def test_N165_a_stop_returns_the_message(tmp_path: Path) -> None:
    work = Work()
    async with running_server(tmp_path, *WORKS, tools=(work,)) as server, host_at(server) as host:
        run_id = (await call(host, "start_run", question="Go.", wait_s=0))["run_id"]
        await work.begun.wait()
        given = await call(host, "steer_run", run_id=run_id, message="Also count.")
        assert (await call(host, "stop_run", run_id=run_id))["status"] == "stopped"
        told = await steers_in(server, run_id)
    assert told[1:] == [("steer_returned", given["steer_id"], "run_stopped")]


async def test_the_person_at_a_host_of_today_is_asked(tmp_path: Path) -> None:
    asked: list[str] = []

    async def ask(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "deny"})

    async with (
        running_server(tmp_path, reply(DANGEROUS), reply(ANSWER)) as server,
        host_at(server, elicitation_callback=ask) as host,
    ):
        done = await call(host, "start_run", question="?")
    assert (done["status"], len(asked)) == ("completed", 1)
    assert "Not executed: rm -rf" in done.text


async def test_an_older_host_answers_by_a_tool(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, reply(DANGEROUS), reply(ANSWER)) as server,
        host_at(server, mode="legacy") as host,
    ):
        which = await waiting_run(host)
        await call(host, "answer_approval", **which, decision="deny")
        assert (await call(host, "watch_run", run_id=which["run_id"]))["status"] == "completed"


async def test_J119_a_host_may_do_what_its_key_may_do_at_runs(tmp_path: Path) -> None:
    script = (reply(DANGEROUS), reply(ANSWER))
    async with running_server(tmp_path, *script, config=KEYS, env=SECRETS) as server:
        for key, status in {"": 401, "models": 403}.items():
            headers = {"Authorization": f"Bearer {SECRETS[key.upper()]}"} if key else {}
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            assert (await server.json("POST", "/mcp", ping, headers=headers))[0] == status
        async with host_at(server, "ann") as ann, host_at(server, "bob") as bob, host_at(server, "person") as person:
            model = await call(ann, "start_run", question="?", model="other/ok")
            assert "may not use" in model.text
            chat = await call(ann, "start_run", question="?", session="telegram:1")
            assert "platform's chat" in chat.text
            which = await waiting_run(ann)
            assert (await server.app.journal.get(which["run_id"])).new.input["requester"] == "ann"
            refused = await call(bob, "answer_approval", **which, decision="once")
            assert "'approvals'" in refused.text
            spoken = await call(bob, "steer_run", run_id=which["run_id"], message="Do it.")
            assert "another requester" in spoken.text
            assert (await server.app.steering.list(which["run_id"])) == ()
            seen = await call(bob, "watch_run", run_id=which["run_id"], wait_s=0)
            assert seen["approvals"][0]["elsewhere"]
            await call(person, "answer_approval", **which, decision="deny")
            done = await call(ann, "watch_run", run_id=which["run_id"])
    assert (done["status"], model.is_error, chat.is_error, refused.is_error, spoken.is_error) == (
        "completed",
        *[True] * 4,
    )


async def test_a_key_over_its_requests_starts_no_run_and_still_watches(tmp_path: Path) -> None:
    config = "server: {drain_s: 0.05, keys: [{name: ann, key_env: ANN, scopes: [runs], requests_per_minute: 1}]}\n"
    async with (
        running_server(tmp_path, reply(ANSWER), config=config, env=SECRETS) as server,
        host_at(server, "ann") as host,
    ):
        done = await call(host, "start_run", question="?")
        refused = await call(host, "start_run", question="?")
        seen = await call(host, "watch_run", run_id=done["run_id"])
        runs = await server.app.journal.runs()
    assert (done["status"], seen["status"], len(runs)) == ("completed", "completed", 1)
    assert refused.is_error
    assert "requests a minute" in refused.text


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_that_leaves_stops_no_run(tmp_path: Path, era: str) -> None:
    work = Work()
    async with running_server(tmp_path, *WORKS, tools=(work,)) as server:
        async with host_at(server, mode=era) as host:
            watching = asyncio.create_task(call(host, "start_run", question="Go.", session="mill"))
            await work.begun.wait()
            watching.cancel()
        (run,) = await server.app.journal.runs(session="mill")
        work.may_end.set()
        assert (await server.app.agents.finished(run.id)).status == "completed"
