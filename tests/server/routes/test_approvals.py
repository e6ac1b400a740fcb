"""What waits for a decision, over all sessions and processes."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import StreamReader

from server.http_server import RunningServer, running_server
from server.web.opened_page import Launch
from tailrace.app.approvals import WaitingApproval, WaitingApprovals
from tailrace.events import ApprovalAnswered, RunFinished
from tailrace.messages import JsonObject
from tailrace.testing.provider import Reply, call, reply

STREAMS = 20
STORE = "sqlite:///shared.db"
KEYS = "server: {drain_s: 20, keys: [{name: ann, key_env: ANN}, {name: bob, key_env: BOB}]}\n"
ENV = {"ANN": "the-key-of-ann", "BOB": "the-key-of-bob"}
ANN, BOB = ({"x-api-key": ENV[name]} for name in ("ANN", "BOB"))


def launch() -> Reply:
    return reply(call("launch", {"what": "it"}))


class Inbox:
    """A client of the stream."""

    def __init__(self, lines: StreamReader) -> None:
        self._lines = lines

    async def until(self, count: int) -> list[JsonObject]:
        """The list, once it has so many questions."""
        async for line in self._lines:
            if line.startswith(b"data: "):
                body = json.loads(line.removeprefix(b"data: "))
                if "error" in body or len(body["data"]) == count:
                    found: list[JsonObject] = body.get("data", body)
                    return found
        raise AssertionError("the stream has ended")


async def ask(server: RunningServer, headers: dict[str, str], **body: str) -> str:
    _, created = await server.json("POST", "/runs", {"input": "Launch it, please.", **body}, headers=headers)
    return str(created["id"])


async def test_every_key_sees_what_waits_and_its_own_alone_can_answer(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, launch(), launch(), reply("Done."), config=KEYS, env=ENV, tools=(Launch(),)) as server,
        server.client.get(f"{server.url}/approvals/stream", headers=BOB) as response,
    ):
        inbox = Inbox(response.content)
        assert await inbox.until(0) == []
        of_ann = await ask(server, ANN, session="telegram-like")
        (first,) = await inbox.until(1)
        stopped = await ask(server, BOB)
        both = await inbox.until(2)
        await server.json("POST", f"/runs/{stopped}/stop", {}, headers=BOB)
        assert await inbox.until(1) == [first], "a run that is stopped asks nothing any more"
        _, seen = await server.json("GET", "/approvals", headers=ANN)
        answer = {"approval_id": first["approval_id"], "decision": "once"}
        status, _ = await server.json("POST", f"/runs/{of_ann}/approval", answer, headers=ANN)
        assert await inbox.until(0) == []
    assert status == 200
    assert [question["may_answer"] for question in both] == [False, True]
    assert (seen["you"], seen["data"][0]["may_answer"]) == ("ann", True)
    assert {name: first[name] for name in ("run_id", "session", "title", "place", "command", "requester")} == {
        "run_id": of_ann,
        "session": "telegram-like",
        "title": "Launch it, please.",
        "place": "web",
        "command": "launch it",
        "requester": "ann",
    }
    assert 59 <= first["expires_at"] - first["asked_at"] <= 61
    assert first["directory"] == str(tmp_path)


async def test_another_process_on_the_same_store_is_told_and_answers(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, launch(), reply("Done."), tools=(Launch(),), store=STORE) as one,
        running_server(tmp_path, tools=(Launch(),), store=STORE) as other,
        other.client.get(f"{other.url}/approvals/stream") as response,
    ):
        inbox = Inbox(response.content)
        await inbox.until(0)
        run_id = await ask(one, {})
        (question,) = await inbox.until(1)
        answer = {"approval_id": question["approval_id"], "decision": "once"}
        await other.json("POST", f"/runs/{run_id}/approval", answer)
        await inbox.until(0)
        finished = await one.app.agents.finished(run_id)
    assert isinstance(finished, RunFinished)
    assert finished.output == "Done."


async def test_an_answer_is_taken_while_the_server_ends_and_the_next_one_acts_on_it(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, launch(), tools=(Launch(),), store=STORE) as server,
        server.client.get(f"{server.url}/approvals/stream") as response,
    ):
        inbox = Inbox(response.content)
        await inbox.until(0)
        run_id = await ask(server, {})
        (question,) = await inbox.until(1)
        server.pipeline.begin_drain()
        server.app.agents.hand_over_questions()
        await server.app.agents.drain(10)
        refused, _ = await server.json("POST", f"/runs/{run_id}/retry", {})
        answer = {"approval_id": question["approval_id"], "decision": "once"}
        status, body = await server.json("POST", f"/runs/{run_id}/approval", answer)
    assert (refused, status, body) == (503, 200, {"id": run_id, "status": "pending"})
    async with running_server(tmp_path, reply("Done."), tools=(Launch(),), store=STORE) as server, asyncio.timeout(30):
        await server.app.agents.recover()
        finished = await server.app.agents.finished(run_id)
        facts = await server.app.journal.facts(run_id)
    assert isinstance(finished, RunFinished)
    assert finished.output == "Done."
    [answered] = [entry.event for entry in facts if isinstance(entry.event, ApprovalAnswered)]
    assert (answered.decision, answered.by) == ("once", question["requester"])


async def test_what_a_dead_process_left_listed_is_not_shown(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Done."), tools=(Launch(),)) as server:
        run_id = await ask(server, {})
        await server.app.agents.finished(run_id)
        waiting = WaitingApprovals(server.app.journal)
        await waiting.post("apr_gone", run_id)
        await waiting.post("apr_lost", "run_of_nobody")
        _, seen = await server.json("GET", "/approvals")
        left = await server.app.journal.list_values("approvals.waiting")
    assert seen["data"] == []
    assert left == {}


async def test_a_stream_of_what_waits_does_not_hold_up_the_end_of_the_server(tmp_path: Path) -> None:
    async with running_server(tmp_path, config=KEYS, env=ENV) as server:
        response = await server.client.get(f"{server.url}/approvals/stream", headers=ANN)
        inbox = Inbox(response.content)
        await inbox.until(0)
        server.pipeline.begin_drain()
        assert "stopping" in str(await inbox.until(-1))
        assert await server.pipeline.drain(10)


async def test_O181_a_change_is_listed_once_for_all_streams(tmp_path: Path) -> None:
    listings = 0
    async with running_server(tmp_path, launch(), tools=(Launch(),)) as server, AsyncExitStack() as streams:
        listed = server.app.waiting.listed

        async def counted() -> list[WaitingApproval]:
            nonlocal listings
            listings += 1
            return await listed()

        server.app.waiting.listed = counted  # type: ignore[method-assign]  # counts, and lists as before
        address = f"{server.url}/approvals/stream"
        inboxes = [
            Inbox((await streams.enter_async_context(server.client.get(address))).content) for _ in range(STREAMS)
        ]
        for inbox in inboxes:
            assert await inbox.until(0) == []
        await ask(server, {})
        questions = [(await inbox.until(1))[0]["approval_id"] for inbox in inboxes]
    assert len(set(questions)) == 1
    assert listings < STREAMS // 2


async def test_a_stream_that_begins_after_all_others_have_left_is_told_what_waits_now(tmp_path: Path) -> None:
    async with running_server(tmp_path, launch(), tools=(Launch(),)) as server:
        async with server.client.get(f"{server.url}/approvals/stream") as first:
            assert await Inbox(first.content).until(0) == []
        await ask(server, {})
        async with server.client.get(f"{server.url}/approvals/stream") as second:
            assert len(await Inbox(second.content).until(1)) == 1


async def test_O181_a_stream_that_begins_while_the_last_one_leaves_is_told_what_waits(tmp_path: Path) -> None:
    lists, leaving, second_waits = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with running_server(tmp_path, launch(), tools=(Launch(),)) as server:
        await ask(server, {})
        listed = server.app.waiting.listed

        async def slowly_cancelled() -> list[WaitingApproval]:
            server.app.waiting.listed = listed  # type: ignore[method-assign]  # from the second time on as before
            lists.set()
            try:
                await asyncio.Event().wait()
            finally:
                leaving.set()
                await second_waits.wait()
            raise AssertionError

        server.app.waiting.listed = slowly_cancelled  # type: ignore[method-assign]
        async with server.client.get(f"{server.url}/approvals/stream"):
            await lists.wait()
        await leaving.wait()
        async with server.client.get(f"{server.url}/approvals/stream") as second:
            second_waits.set()
            assert len(await Inbox(second.content).until(1)) == 1
