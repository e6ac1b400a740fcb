"""A turn of the agent that is a step of a sequence asks as any other run of its key does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flows.stages import step
from server.http_server import RunningServer, running_server
from server.routes.test_approvals import ANN, BOB, ENV, KEYS, STORE, Inbox, launch
from server.web.opened_page import Launch
from tailrace.agent.turn_spec import TurnSpec
from tailrace.events import ApprovalAsked
from tailrace.messages import user
from tailrace.testing.provider import reply


async def begun(server: RunningServer, headers: dict[str, str] | None = None, **fields: Any) -> str:
    blocks = [{**step("fly", {"prompt": "Launch it, please."}, "agent"), **fields}]
    _, sequence = await server.json("POST", "/sequences", {"name": "flight", "blocks": blocks}, headers=headers)
    _, instance = await server.json("POST", "/instances", {"sequence_id": sequence["id"]}, headers=headers)
    return str(instance["id"])


async def ended(server: RunningServer, instance: str, headers: dict[str, str] | None = None) -> Any:
    await server.events(f"/instances/{instance}/stream", headers=headers)
    return (await server.json("GET", f"/instances/{instance}", headers=headers))[1]


async def test_the_question_of_a_step_waits_for_the_key_that_began_the_sequence(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, launch(), reply("Done."), config=KEYS, env=ENV, tools=(Launch(),)) as server,
        server.client.get(f"{server.url}/approvals/stream", headers=BOB) as response,
        asyncio.timeout(30),
    ):
        inbox = Inbox(response.content)
        await inbox.until(0)
        instance = await begun(server, ANN)
        (question,) = await inbox.until(1)
        path, answer = f"/runs/{question['run_id']}/approval", {"approval_id": question["approval_id"]}
        refused, _ = await server.json("POST", path, {**answer, "decision": "once"}, headers=BOB)
        taken, _ = await server.json("POST", path, {**answer, "decision": "once"}, headers=ANN)
        shown = await ended(server, instance, ANN)
    assert (question["requester"], question["may_answer"]) == ("ann", False)
    assert 59 <= question["expires_at"] - question["asked_at"] <= 61
    assert (refused, taken) == (403, 200)
    assert shown["outputs"]["fly"]["message"]["content"] == "Done."


async def test_the_key_of_a_program_is_never_taken_for_a_steps(tmp_path: Path) -> None:
    """The library passes on whatever key its program gives."""
    async with running_server(tmp_path, launch(), tools=(Launch(),)) as server, asyncio.timeout(30):
        spec = TurnSpec(user("Launch it, please."), reachable=True)
        run = await server.app.agents.submit(spec, idempotency_key="step/one")
        async for batch in server.app.journal.tail(run.id):
            if any(isinstance(entry.event, ApprovalAsked) for entry in batch):
                break
        status, listed = await server.json("GET", "/approvals")
        await server.app.agents.stop(run.id)
    assert status == 200
    assert [(each["run_id"], each["instance_id"], each["block_id"]) for each in listed["data"]] == [(run.id, "", "")]


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_the_question_of_a_step_that_is_given_up_is_taken_away(tmp_path: Path, how: str) -> None:
    async with (
        running_server(tmp_path, launch(), tools=(Launch(),)) as server,
        server.client.get(f"{server.url}/approvals/stream") as response,
        asyncio.timeout(30),
    ):
        inbox = Inbox(response.content)
        await inbox.until(0)
        instance = await begun(server, None, **({"timeout_secs": 1} if how == "timeout" else {}))
        (question,) = await inbox.until(1)
        if how == "cancel":
            await server.json("POST", f"/instances/{instance}/signals", {"signal": "cancel"})
        assert await inbox.until(0) == []
        finished = await server.app.agents.finished(question["run_id"])
        shown = await ended(server, instance)
    assert (finished.status, shown["state"]) == ("stopped", "cancelled" if how == "cancel" else "failed")


async def test_a_question_of_a_step_outlives_its_server(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, launch(), tools=(Launch(),), store=STORE) as server,
        server.client.get(f"{server.url}/approvals/stream") as response,
        asyncio.timeout(30),
    ):
        inbox = Inbox(response.content)
        await inbox.until(0)
        instance = await begun(server)
        (question,) = await inbox.until(1)
        await server.app.hand_over()
    async with running_server(tmp_path, reply("Done."), tools=(Launch(),), store=STORE) as server, asyncio.timeout(30):
        _, listed = await server.json("GET", "/approvals")
        await server.app.recover()
        answer = {"approval_id": question["approval_id"], "decision": "once"}
        status, _ = await server.json("POST", f"/runs/{question['run_id']}/approval", answer)
        shown = await ended(server, instance)
    assert ([each["approval_id"] for each in listed["data"]], status) == ([question["approval_id"]], 200)
    assert (shown["state"], shown["outputs"]["fly"]["message"]["content"]) == ("completed", "Done.")
