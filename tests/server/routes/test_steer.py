"""`/runs/{id}/steer`: a message for the run that is under way, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.http_server import RunningServer, running_server
from tailrace.events.steers import MAX_PENDING_STEERS
from tailrace.ports import NewRun, ToolContext, ToolOutcome
from tailrace.testing.provider import Break, Offset, Scenario, call, reply
from tailrace.tools.typed import Arguments, TypedTool


class Nothing(Arguments):
    pass


class Work(TypedTool[Nothing]):
    """Takes as long as the test says."""

    name = "work"
    description = "Work."
    Args = Nothing

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def execute(self, args: Nothing, context: ToolContext) -> ToolOutcome:
        self.begun.set()
        await self.may_end.wait()
        return ToolOutcome("worked")


WORKS = (reply(call("work", id="c1")), reply("Done."))
STALLED = Scenario(reply=reply("One two three four five"), broken=Break("stall", Offset(60, per_cent=True)))


async def steers_in(server: RunningServer, run: str) -> list[tuple[str, ...]]:
    events = await server.events(f"/runs/{run}/stream")
    told = [event for event in events if event["type"].startswith("steer_")]
    return [(event["type"], event["steer_id"], event.get("reason", event.get("input", ""))) for event in told]


def said_to_model(server: RunningServer) -> list[Any]:
    """The user's messages of the newest request."""
    messages = server.provider.requests[-1].json()["messages"]
    return [message["content"] for message in messages if message["role"] == "user"]


async def test_the_next_model_call_has_the_message_once(tmp_path: Path) -> None:
    work = Work()
    async with running_server(tmp_path, *WORKS, tools=(work,)) as server:
        run = await server.start()
        await work.begun.wait()
        status, steer = await server.json("POST", f"/runs/{run}/steer", {"input": "Also count."})
        _, before = await server.json("GET", f"/runs/{run}/steer")
        work.may_end.set()
        seen = await steers_in(server, run)
        _, after = await server.json("GET", f"/runs/{run}/steer")
        late = await server.json("DELETE", f"/runs/{run}/steer/{steer['id']}")
    assert (status, steer) == (202, {"id": steer["id"], "state": "accepted", "input": "Also count.", "by": "local"})
    assert before["data"] == [steer]
    assert after["data"] == [{**steer, "state": "committed"}]
    assert seen == [("steer_accepted", steer["id"], "Also count."), ("steer_committed", steer["id"], "")]
    assert said_to_model(server) == ["Go.", "Also count."]
    assert (late[0], late[1]["error"]["kind"]) == (409, "steer_committed")


async def test_a_message_is_taken_back(tmp_path: Path) -> None:
    work = Work()
    async with running_server(tmp_path, *WORKS, tools=(work,)) as server:
        run = await server.start()
        await work.begun.wait()
        _, steer = await server.json("POST", f"/runs/{run}/steer", {"input": "Also count."})
        taken = await server.json("DELETE", f"/runs/{run}/steer/{steer['id']}")
        again = await server.json("DELETE", f"/runs/{run}/steer/{steer['id']}")
        unknown = await server.json("DELETE", f"/runs/{run}/steer/steer_none")
        work.may_end.set()
        seen = await steers_in(server, run)
    assert taken == again == (200, {**steer, "state": "returned", "reason": "taken_back"})
    assert unknown[0] == 404
    assert seen[-1] == ("steer_returned", steer["id"], "taken_back")
    assert said_to_model(server) == ["Go."]


async def test_a_key_names_one_message(tmp_path: Path) -> None:
    work = Work()
    async with running_server(tmp_path, *WORKS, tools=(work,)) as server:
        run = await server.start()
        await work.begun.wait()
        asked = {"input": "Also count.", "idempotency_key": "k"}
        first, second = [await server.json("POST", f"/runs/{run}/steer", asked) for _ in range(2)]
        work.may_end.set()
        await steers_in(server, run)
        third = await server.json("POST", f"/runs/{run}/steer", asked)
        other = await server.json("POST", f"/runs/{run}/steer", {**asked, "input": "Another."})
    assert first == second
    assert third == (202, {**first[1], "state": "committed"})
    assert other[0] == 409
    assert said_to_model(server) == ["Go.", "Also count."]


async def test_parts_reach_the_model(tmp_path: Path) -> None:
    work = Work()
    parts = [
        {"type": "text", "text": "This:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
    async with running_server(tmp_path, *WORKS, tools=(work,)) as server:
        run = await server.start()
        await work.begun.wait()
        status, _ = await server.json("POST", f"/runs/{run}/steer", {"input": parts})
        blank, _ = await server.json("POST", f"/runs/{run}/steer", {"input": " "})
        work.may_end.set()
        await steers_in(server, run)
    assert (status, blank) == (202, 400)
    assert [part["type"] for part in said_to_model(server)[-1]] == ["text", "image_url"]


async def test_no_more_than_the_limit_waits(tmp_path: Path) -> None:
    work = Work()
    async with running_server(tmp_path, *WORKS, tools=(work,)) as server:
        run = await server.start()
        await work.begun.wait()
        asked = [server.json("POST", f"/runs/{run}/steer", {"input": f"{n}"}) for n in range(MAX_PENDING_STEERS + 1)]
        statuses = sorted([status for status, _ in await asyncio.gather(*asked)])
        over, body = await server.json("POST", f"/runs/{run}/steer", {"input": "one more"})
        work.may_end.set()
        await steers_in(server, run)
    assert statuses == [202] * MAX_PENDING_STEERS + [429]
    assert (over, body["error"]["kind"]) == (429, "too_many_steers")
    assert len(said_to_model(server)) == 1 + MAX_PENDING_STEERS


async def test_N165_a_stop_returns_what_waits(tmp_path: Path) -> None:
    async with running_server(tmp_path, STALLED, config="call: {idle_timeout_s: 600}\n") as server:
        run = await server.start()
        _, steer = await server.json("POST", f"/runs/{run}/steer", {"input": "Also count."})
        await server.json("POST", f"/runs/{run}/stop")
        seen = await steers_in(server, run)
        refused = await server.json("POST", f"/runs/{run}/steer", {"input": "Too late."})
        _, kept = await server.json("GET", f"/runs/{run}/steer")
    assert seen[-1] in (("steer_returned", steer["id"], "run_stopped"), ("steer_committed", steer["id"], ""))
    assert (refused[0], refused[1]["error"]["kind"]) == (409, "not_steerable")
    assert len(kept["data"]) == 1


@pytest.mark.parametrize("kind", ["call", "sequence"])
async def test_only_turns_of_the_agent_are_steerable(tmp_path: Path, kind: str) -> None:
    async with running_server(tmp_path) as server:
        run, _ = await server.app.journal.start(NewRun(kind), "me")
        status, body = await server.json("POST", f"/runs/{run.id}/steer", {"input": "Hi."})
        facts = await server.app.journal.facts(run.id)
    assert (status, body["error"]["kind"]) == (409, "not_steerable")
    assert len(facts) == 1


async def test_a_turn_that_waits_for_its_session_takes_a_message(tmp_path: Path) -> None:
    work = Work()
    script = (*WORKS, reply("Second."))
    async with running_server(tmp_path, *script, tools=(work,)) as server:
        first = await server.start(session="s")
        await work.begun.wait()
        spec_run = await server.start("Next.", session="s", busy="queue")
        status, _ = await server.json("POST", f"/runs/{spec_run}/steer", {"input": "With this."})
        work.may_end.set()
        await server.events(f"/runs/{first}/stream")
        await steers_in(server, spec_run)
    assert status == 202
    assert said_to_model(server) == ["Go.", "Next.", "With this."]


async def test_busy_steer_gives_the_run_under_way_the_input(tmp_path: Path) -> None:
    work = Work()
    async with running_server(tmp_path, *WORKS, reply("Fresh."), tools=(work,)) as server:
        run = await server.start(session="s")
        await work.begun.wait()
        asked = {"input": "Also count.", "session": "s", "busy": "steer", "idempotency_key": "k"}
        status, body = await server.json("POST", "/runs", asked)
        work.may_end.set()
        await steers_in(server, run)
        again = await server.json("POST", "/runs", asked)
        fresh, begun = await server.json("POST", "/runs", {"input": "New.", "session": "s", "busy": "steer"})
        await server.events(f"/runs/{begun['id']}/stream")
    assert (status, body["id"], body["steer"]["state"]) == (202, run, "accepted")
    assert (again[0], again[1]["id"], again[1]["steer"]["state"]) == (202, run, "committed")
    assert fresh == 201
    assert said_to_model(server) == ["Go.", "Also count.", "New."]


@pytest.mark.parametrize("after", ["accepted", "committed"])
async def test_N164_a_fork_has_a_message_only_once_it_is_committed(tmp_path: Path, after: str) -> None:
    work = Work()
    async with running_server(tmp_path, *WORKS, reply("Forked."), tools=(work,)) as server:
        run = await server.start()
        await work.begun.wait()
        await server.json("POST", f"/runs/{run}/steer", {"input": "Also count."})
        work.may_end.set()
        events = await server.events(f"/runs/{run}/stream")
        seq = next(event["seq"] for event in events if event["type"] == f"steer_{after}")
        status, fork = await server.json("POST", f"/runs/{run}/fork", {"after": seq, "input": "Now this."})
        await server.events(f"/runs/{fork['id']}/stream")
        _, steers = await server.json("GET", f"/runs/{fork['id']}/steer")
    assert status == 201
    assert [said for said in said_to_model(server) if said == "Also count."] == ["Also count."] * (after == "committed")
    assert [steer["state"] for steer in steers["data"] if steer["state"] == "accepted"] == []


async def test_front_ends_steer_with_busy(tmp_path: Path) -> None:
    for path in ("/ui/chat", "/ag-ui"):
        work = Work()
        home = tmp_path / path.strip("/").replace("/", "-")
        async with running_server(home, *WORKS, tools=(work,)) as server:
            await server.start(session="s")
            await work.begun.wait()
            said = {"id": "m2", "role": "user"}
            ui = {
                "id": "s",
                "messages": [{**said, "parts": [{"type": "text", "text": "Also count."}]}],
                "busy": "steer",
            }
            props = {"busy": "steer"}
            ag = {
                "threadId": "s",
                "runId": "r2",
                "messages": [{**said, "content": "Also count."}],
                "forwardedProps": props,
            }
            async with server.client.post(server.url + path, json=ui if path == "/ui/chat" else ag) as response:
                assert response.status == 200, await response.text()
                work.may_end.set()
                assert "Done." in await response.text()
            assert said_to_model(server) == ["Go.", "Also count."]
            assert len(await server.app.journal.runs(session="s")) == 1


async def test_a_request_that_comes_again_is_no_message_for_the_run_that_it_began(tmp_path: Path) -> None:
    work = Work()
    async with running_server(tmp_path, *WORKS, tools=(work,)) as server:
        asked = {"input": "Go.", "session": "s", "busy": "steer", "idempotency_key": "k"}
        _, first = await server.json("POST", "/runs", asked)
        await work.begun.wait()
        status, again = await server.json("POST", "/runs", asked)
        work.may_end.set()
        seen = await steers_in(server, first["id"])
    assert (status, again["id"], seen) == (201, first["id"], [])
    assert said_to_model(server) == ["Go."]


async def test_J110_a_key_gives_no_message_to_the_turn_of_another_one(tmp_path: Path) -> None:
    config = "server: {keys: [{name: ann, key_env: ANN, scopes: [runs]}, {name: bob, key_env: BOB, scopes: [runs]}]}\n"
    ann, bob = ({"headers": {"Authorization": f"Bearer {name}"}} for name in ("ann-key", "bob-key"))
    work, env = Work(), {"ANN": "ann-key", "BOB": "bob-key"}
    async with running_server(tmp_path, *WORKS, tools=(work,), config=config, env=env) as server:
        _, run = await server.json("POST", "/runs", {"input": "Go."}, **ann)
        path = f"/runs/{run['id']}/steer"
        await work.begun.wait()
        _, steer = await server.json("POST", path, {"input": "Also count."}, **ann)
        refused = await server.json("POST", path, {"input": "Delete all."}, **bob)
        not_his = await server.json("DELETE", f"{path}/{steer['id']}", **bob)
        _, kept = await server.json("GET", path, **bob)
        work.may_end.set()
        await server.events(f"/runs/{run['id']}/stream", **bob)
    assert [(status, body["error"]["kind"]) for status, body in (refused, not_his)] == [(403, "not_the_requester")] * 2
    assert [each["input"] for each in kept["data"]] == ["Also count."]
    assert said_to_model(server) == ["Go.", "Also count."]
