"""Sessions as a resource: listed, searched, shown whole, followed live by a second tab, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from server.http_server import RunningServer, running_server, sse
from server.routes.test_runs import STALLED, Launch
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app.housekeeping import EDITOR_SESSIONS
from tailrace.delivery.ledger import DeliverySpec, new_delivery
from tailrace.delivery.port import Place
from tailrace.events import Entry, MessageChunk, RunFailure, RunFinished, UsageRecorded
from tailrace.messages import Usage, user
from tailrace.ports import NewRun, Run
from tailrace.server.routes.streams.session_stream import NOW
from tailrace.testing.provider import call, reply, think

KEYS = """
server:
  drain_s: 0.05
  keys:
    - {name: ann, key_env: ANN_KEY}
    - {name: bob, key_env: BOB_KEY}
    - {name: ops, key_env: OPS_KEY, scopes: [admin]}
"""
ENV = {"ANN_KEY": "key-of-ann", "BOB_KEY": "key-of-bob", "OPS_KEY": "key-of-ops"}
ANN, BOB, OPS = ({"x-api-key": value} for value in ENV.values())


async def ask(server: RunningServer, text: str, session: str, **kwargs: Any) -> str:
    """The run, once it has ended."""
    status, body = await server.json("POST", "/runs", {"input": text, "session": session}, **kwargs)
    assert status == 201, body
    run_id: str = body["id"]
    async with server.client.get(f"{server.url}/runs/{run_id}/stream", **kwargs) as response:
        await response.read()
    return run_id


@asynccontextmanager
async def following(server: RunningServer, path: str, **kwargs: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    async with server.client.get(server.url + path, **kwargs) as response:
        assert response.status == 200, await response.text()
        yield sse(response)


async def until(events: AsyncIterator[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The events to the first of this kind."""
    seen = []
    async with asyncio.timeout(10.0):
        async for event in events:
            seen.append(event)
            if event["sse_event"] == kind:
                return seen
    raise AssertionError([event["sse_event"] for event in seen])


async def test_sessions_are_listed_and_shown_whole(tmp_path: Path) -> None:
    answers = [reply(f"Answer {number}.", usage=Usage(10, number)) for number in range(1, 6)]
    async with running_server(tmp_path, *answers) as server:
        first = await ask(server, "What is\n\n  a tailrace? " + "x" * 300, "water")
        await ask(server, "Alone.", "")
        await ask(server, "Something else", "other")
        second = await ask(server, "And 100%_sure?", "water")
        _, whole = await server.json("GET", "/sessions")
        _, page = await server.json("GET", "/sessions?limit=1")
        _, rest = await server.json("GET", f"/sessions?limit=1&before={page['page']['next']}")
        found = {
            q: [each["id"] for each in (await server.json("GET", "/sessions", params={"q": q}))[1]["data"]]
            for q in ("ANSWER", "100%_", "%else", "nothing like it")
        }
        _, shown = await server.json("GET", "/sessions/water")
        _, run = await server.json("GET", f"/runs/{second}")
        _, latest = await server.json("GET", "/sessions/water?limit=1")
        _, before = await server.json("GET", f"/sessions/water?before={latest['page']['next']}")
        missing = await server.json("GET", "/sessions/none")
        misspelt = await server.json("GET", "/sessions?serach=x")
    water, other = whole["data"]
    assert (water["id"], water["runs"], water["status"], water["last_status"]) == ("water", 2, "idle", "completed")
    assert water["title"].startswith("What is a tailrace? xxx")
    assert len(water["title"]) == 200
    assert (water["usage"]["output_tokens"], water["place"], other["title"]) == (5, "web", "Something else")
    assert water["created_at"] < water["updated_at"]
    assert (water["cost_usd"], whole["page"]) == (None, {"more": False, "next": None})
    assert [each["id"] for each in (*page["data"], *rest["data"])] == ["water", "other"]
    assert (page["page"]["more"], rest["page"]["more"]) == (True, False)
    assert found == {"ANSWER": ["water", "other"], "100%_": ["water"], "%else": [], "nothing like it": []}
    assert {name: shown[name] for name in water} == water
    assert [each["id"] for each in shown["data"]] == [first, second]
    assert shown["data"][1] == run
    assert run["duration_s"] == round(run["ended_at"] - run["created_at"], 3)
    assert [each["id"] for each in latest["data"]] == [second]
    assert ([each["id"] for each in before["data"]], before["page"]["more"]) == ([first], False)
    assert (missing[0], misspelt[0]) == (404, 400)


async def test_what_a_run_cost_is_counted_for_each_model_that_was_asked(tmp_path: Path) -> None:
    """Two attempts at two models: each by its own price; a model without one makes the sum unknown."""
    async with running_server(tmp_path) as server:
        journal = server.app.journal
        costs = {}
        for name, models in {"known": ("gpt-4o", "claude-sonnet-4-5"), "unknown": ("gpt-4o", "no-such-model")}.items():
            run, lease = await journal.start(NewRun("agent", session=name), "me")
            assert lease is not None
            attempts = zip(("openai", "anthropic"), models, strict=True)
            journal.append(lease, [UsageRecorded(Usage(100_000, 100_000), *attempt) for attempt in attempts])
            live = (await server.json("GET", f"/runs/{run.id}"))[1]
            await journal.seal(lease, RunFinished("completed", usage=Usage(200_000, 200_000), at=run.created_at + 2))
            one, listed = (await server.json("GET", f"/runs/{run.id}"))[1], (await server.json("GET", "/runs"))[1]
            session = (await server.json("GET", f"/sessions/{name}"))[1]
            costs[name] = {live["cost_usd"], one["cost_usd"], listed["data"][0]["cost_usd"], session["cost_usd"]}
            assert (one["duration_s"], session["model"]) == (2.0, f"anthropic/{models[1]}")
    assert costs == {"known": {3.05}, "unknown": {None}}  # $0.25 + $1, and $0.30 + $1.50


async def test_N166_a_second_tab_follows_what_the_first_asks(tmp_path: Path) -> None:
    answers = [reply(think("Hm."), "One."), reply("Two."), reply("Three.")]
    async with running_server(tmp_path, *answers) as server:
        async with following(server, "/sessions/s/stream") as events:  # before there is one
            first = await ask(server, "1?", "s")
            seen = await until(events, "run_finished")
            await ask(server, "elsewhere", "t")
            second = await ask(server, "2?", "s")
            seen += await until(events, "run_finished")
        log = await server.events(f"/runs/{first}/stream")
        cursor = next(event["sse_id"] for event in seen if event["sse_event"] == "message_chunk")
        resumed = {}
        for name, headers, query in (
            ("header", {"Last-Event-ID": cursor}, "?after=now"),
            ("query", {}, f"?after={cursor}"),
        ):
            async with following(server, f"/sessions/s/stream{query}", headers=headers) as events:
                resumed[name] = [*await until(events, "run_finished"), *await until(events, "run_finished")]
        async with following(server, "/sessions/s/stream?reasoning=true&after=" + f"{first}:0") as events:
            thoughts = await until(events, "run_finished")
        refused = {
            cursor: (await server.json("GET", f"/sessions/s/stream?after={cursor}"))[0]
            for cursor in ("5", f"{first}:9999", "run_x:1")
        }
        other = (await server.json("GET", f"/sessions/t/stream?after={cursor}"))[0]
    begun = [event for event in seen if event["sse_event"] == "run"]
    assert [(run["id"], run["input"], run["sse_id"]) for run in begun] == [
        (first, "1?", f"{first}:0"),
        (second, "2?", f"{second}:0"),
    ]
    own = [event for event in seen if event.get("run_id") == first]
    assert [{k: v for k, v in event.items() if k != "run_id"} | {"sse_id": str(event["seq"])} for event in own] == log
    assert all(event["sse_id"] == f"{event['run_id']}:{event['seq']}" for event in seen if "seq" in event)
    place = next(at for at, event in enumerate(seen) if event["sse_id"] == cursor)
    rest = [event for event in seen[place + 1 :] if event["sse_event"] != "run"]  # which tells how the run is now
    assert [*map(len, resumed.values())] == [len(rest) + 1] * 2
    for events_again in resumed.values():
        assert [event for event in events_again if event["sse_event"] != "run"] == rest
    assert "".join(event["text"] for event in thoughts if event["sse_event"] == "reasoning_chunk") == "Hm."
    assert not [event for event in seen if event.get("type") == "reasoning_chunk"]
    assert (refused, other) == ({"5": 400, f"{first}:9999": 409, "run_x:1": 400}, 400)


async def test_a_tab_that_opens_late_sees_what_is_under_way_and_no_more(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Old."), STALLED, reply("New.")) as server:
        await ask(server, "old", "s")
        stalled = await server.start("slow", session="s")
        async with following(server, f"/runs/{stalled}/stream") as events:
            await until(events, "message_chunk")
        _, listed = await server.json("GET", "/sessions")
        busy = await server.json("DELETE", "/sessions/s")
        async with following(server, f"/sessions/s/stream?after={NOW}") as events:
            seen = await until(events, "message_chunk")
            newer = await server.start("and now", session="s")  # interrupts the other
            seen += await until(events, "run_finished")
            seen += await until(events, "run_finished")
    assert (listed["data"][0]["status"], busy[0]) == ("running", 409)
    assert [event["id"] for event in seen if event["sse_event"] == "run"] == [stalled, newer]
    ends = [(event["run_id"], event["status"]) for event in seen if event["sse_event"] == "run_finished"]
    assert ends == [(stalled, "stopped"), (newer, "completed")]


async def test_a_run_that_begins_while_a_tab_opens_is_shown_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_server(tmp_path, reply("One."), reply("Two.")) as server, asyncio.timeout(30):
        journal, asked = server.app.journal, list[str]()
        await ask(server, "1?", "s")
        find_runs = journal.runs

        async def runs(**kwargs: Any) -> list[Run]:
            found = await find_runs(**kwargs)
            if not asked:
                asked.append("")
                asked[0] = await ask(server, "2?", "s")
            return found

        monkeypatch.setattr(journal, "runs", runs)
        async with following(server, "/sessions/s/stream") as events:
            seen = await until(events, "run_finished")
    assert [event["id"] for event in seen if event["sse_event"] == "run"] == asked


async def test_a_parked_run_holds_nothing_up(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Next.")) as server:
        journal = server.app.journal
        _, lease = await journal.start(NewRun("agent", session="s"), "me")
        assert lease is not None
        async with following(server, "/sessions/s/stream") as events:
            await until(events, "run_started")
            journal.append(lease, [MessageChunk("so far")])
            await journal.park(lease, RunFailure("crash_loop", "it kills its owners"))
            await until(events, "gateway_notice")
            newer = await ask(server, "go on", "s")
            assert (await until(events, "run_finished"))[-1]["run_id"] == newer
        async with following(server, "/sessions/s/stream") as events:
            last = await ask(server, "and on", "s")
            assert (await until(events, "run_finished"))[0]["id"] == last
        _, listed = await server.json("GET", "/sessions")
        assert (listed["data"][0]["status"], (await server.json("DELETE", "/sessions/s"))[0]) == ("idle", 409)


async def test_a_session_that_waits_for_an_approval_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fold_of_a_log(run_id: str) -> Entry:
        raise AssertionError(f"the log of {run_id} was folded for a list")

    async with running_server(
        tmp_path, reply(call("launch", {"what": "it"})), reply("ok"), tools=(Launch(),)
    ) as server:
        await server.start("Launch.", session="s")
        async with following(server, "/sessions/s/stream") as events:
            asked = (await until(events, "approval_asked"))[-1]
            _, waiting = await server.json("GET", "/sessions/s")
            with monkeypatch.context() as context:
                context.setattr(server.app.journal, "snapshot", fold_of_a_log)
                _, listed = await server.json("GET", "/sessions")
            answer = {"approval_id": asked["approval_id"], "decision": "once"}
            await server.json("POST", f"/runs/{asked['run_id']}/approval", answer)
            await until(events, "run_finished")
        _, idle = await server.json("GET", "/sessions/s")
    assert (waiting["status"], waiting["data"][0]["approvals"][0]["asked"]["approval_id"]) == (
        "waiting",
        asked["approval_id"],
    )
    assert ([session["status"] for session in listed["data"]], idle["status"]) == (["waiting"], "idle")


async def test_a_stream_without_an_end_does_not_hold_the_server_up(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, following(server, "/sessions/s/stream") as events:
        assert await server.pipeline.drain(10.0)
        assert [(event["sse_event"], event["error"]["kind"]) async for event in events] == [
            ("error", "server_stopping")
        ]


async def test_a_session_is_deleted_by_whoever_began_it(tmp_path: Path) -> None:
    chat = "telegram:42/7#1"
    async with running_server(tmp_path, *([reply("ok")] * 4), config=KEYS, env=ENV) as server:
        journal = server.app.journal
        await ask(server, "mine", "s", headers=ANN)
        last = await ask(server, "and more", "s", headers=ANN)
        await ask(server, "hi", chat, headers=OPS)
        await journal.swap_value(EDITOR_SESSIONS, "s", None, b"{}")
        path, chat_path = "/sessions/s", f"/sessions/{quote(chat, safe='')}"
        theirs = await server.json("DELETE", path, headers=BOB)
        readable = await server.json("GET", path, headers=BOB)
        platform = await server.json("DELETE", chat_path, headers=ANN)
        place = Place("telegram", "42")
        delivery, lease = await journal.start(new_delivery(DeliverySpec(last, place)), "a gateway")
        shown = await server.json("DELETE", path, headers=ANN)
        assert lease is not None
        await journal.seal(lease, RunFinished("completed"))
        done = [(await server.json("DELETE", path, headers=ANN))[0] for _ in range(2)]
        by_admin = (
            (await server.json("GET", chat_path, headers=BOB))[1]["place"],
            (await server.json("DELETE", chat_path, headers=OPS))[0],
        )
        left = [session["id"] for session in (await server.json("GET", "/sessions", headers=ANN))[1]["data"]]
        kept = await journal.get(delivery.id), await journal.get_value(EDITOR_SESSIONS, "s")
        again = await ask(server, "anew", "s", headers=BOB)
        _, anew = await server.json("GET", path, headers=BOB)
    assert (theirs[0], theirs[1]["error"]["kind"], readable[0]) == (403, "not_your_session", 200)
    assert (platform[0], platform[1]["error"]["kind"]) == (403, "session_of_a_chat")
    assert (shown[0], done, by_admin, left) == (409, [204, 204], ("telegram", 204), [])
    assert (kept[0].state, kept[1]) == ("completed", None)
    assert [run["id"] for run in anew["data"]] == [again]


async def test_J110_a_conversation_of_raw_calls_is_deleted_by_whoever_began_it(tmp_path: Path) -> None:
    body = {"model": "faulty/ok", "input": "mine", "conversation": "conv"}
    async with running_server(tmp_path, reply("ok"), config=KEYS, env=ENV) as server:
        asked, answer = await server.json("POST", "/v1/responses", body, headers=ANN)
        theirs = await server.json("DELETE", "/sessions/conv", headers=BOB)
        kept, _ = await server.json("GET", f"/v1/responses/{answer['id']}", headers=ANN)
        own, _ = await server.json("DELETE", "/sessions/conv", headers=ANN)
        gone, _ = await server.json("GET", f"/v1/responses/{answer['id']}", headers=ANN)
    assert (asked, theirs[0], theirs[1]["error"]["kind"]) == (200, 403, "not_your_session")
    assert (kept, own, gone) == (200, 204, 404)


async def test_only_an_admin_continues_the_chat_of_a_platform_by_responses(tmp_path: Path) -> None:
    body = {"model": "tailrace", "input": "hi", "conversation": "telegram:42"}
    async with running_server(tmp_path, config=KEYS, env=ENV) as server:
        refused = await server.json("POST", "/v1/responses", body, headers=ANN)
        counted = await server.json("POST", "/v1/responses/input_tokens", body, headers=ANN)
        runs = await server.app.journal.runs()
    assert (refused[0], refused[1]["error"]["code"]) == (403, "session_of_a_chat")
    assert (counted[0], runs) == (403, [])


async def test_people_rename_and_pin_conversations_and_a_search_shows_what_it_found(tmp_path: Path) -> None:
    async with running_server(tmp_path, *(reply(f"The answer is river {number}.") for number in range(3))) as server:
        for name in ("a", "b", "c"):
            _, run = await server.json("POST", "/runs", {"input": f"Question {name}?", "session": name})
            await server.app.agents.finished(run["id"])
        named = await server.json("PATCH", "/sessions/a", {"title": " The  rivers ", "pinned": True})
        missing, _ = await server.json("PATCH", "/sessions/none", {"pinned": True})
        _, first = await server.json("GET", "/sessions?limit=1")
        _, found = await server.json("GET", "/sessions?q=RIVER 2")
        _, alone = await server.json("GET", "/sessions/a")
        await server.json("PATCH", "/sessions/a", {"title": ""})
        _, again = await server.json("GET", "/sessions/a")
    assert named == (200, {"title": "The rivers", "pinned": True})
    assert missing == 404
    assert [(each["id"], each["pinned"]) for each in first["data"]] == [("a", True), ("c", False)]
    assert [each["excerpt"]["text"] for each in found["data"]] == ["The answer is river 2."]
    assert (alone["title"], again["title"], again["pinned"]) == ("The rivers", "Question a?", True)


async def test_conversations_of_programs_are_left_out_for_people(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("One."), reply("Two.")) as server:
        for name, asked_by in (("program", "python"), ("person", "cli")):
            run = await server.app.agents.submit(TurnSpec(user("Hi."), requester=asked_by), session=name)
            await server.app.agents.finished(run.id)
        _, everything = await server.json("GET", "/sessions")
        _, people = await server.json("GET", "/sessions?people=true")
    assert [each["id"] for each in everything["data"]] == ["person", "program"]
    assert [each["id"] for each in people["data"]] == ["person"]


async def test_J110_only_the_key_that_began_a_conversation_changes_it(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("A."), config=KEYS, env=ENV) as server:
        await ask(server, "Q?", "mine", headers=ANN)
        _, created = await server.json("POST", "/v1/conversations", {"metadata": {"of": "ann"}}, headers=ANN)
        path = f"/v1/conversations/{created['id']}"
        theirs = [
            await server.json("PATCH", "/sessions/mine", {"title": "bob's"}, headers=BOB),
            await server.json("POST", path, {"metadata": {}}, headers=BOB),
            await server.json("DELETE", path, headers=BOB),
        ]
        _, shown = await server.json("GET", path, headers=BOB)
        own = await server.json("PATCH", "/sessions/mine", {"title": "ann's"}, headers=ANN)
        admin = await server.json("DELETE", path, headers=OPS)
    assert [status for status, _ in theirs] == [403, 403, 403]
    assert (shown["metadata"], own, admin[0]) == ({"of": "ann"}, (200, {"title": "ann's"}), 200)
