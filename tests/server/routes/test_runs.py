"""Runs as a resource: started, watched, resumed, stopped, approved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server.http_server import running_server, sse
from tailrace.events import MessageChunk, RunFinished
from tailrace.journal import live_tail
from tailrace.messages import JsonObject
from tailrace.ports import Effect, NewRun, ToolContext, ToolOutcome
from tailrace.server.http.sse_stream import StreamTiming
from tailrace.testing.provider import Break, Offset, Scenario, call, reply, think
from tailrace.tools.typed import Arguments, TypedTool

TEXT = "One two three four five six seven eight nine ten"
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(60, per_cent=True)))


class LaunchArgs(Arguments):
    what: str


class Launch(TypedTool[LaunchArgs]):
    """Acts outside this machine: somebody has to be asked."""

    name = "launch"
    description = "Launch something."
    Args = LaunchArgs

    def effect(self, _args: JsonObject) -> Effect:
        return Effect("external", "launch it")

    async def execute(self, args: LaunchArgs, context: ToolContext) -> ToolOutcome:
        return ToolOutcome(f"launched {args.what}")


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "message_chunk")


async def test_a_run_is_started_watched_and_shown(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply(TEXT)) as server:
        status, created = await server.json("POST", "/runs", {"input": "Count."})
        events = await server.events(f"/runs/{created['id']}/stream")
        _, shown = await server.json("GET", f"/runs/{created['id']}")
        asked = server.provider.requests[0].json()
    assert status == 201
    assert set(created) == {"id", "status"}
    assert text_of(events) == TEXT
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert all(event["sse_id"] == str(event["seq"]) and event["sse_event"] == event["type"] for event in events)
    assert events[0]["type"] == "run_started"
    assert events[-1]["type"] == "run_finished"
    assert events[-1]["status"] == "completed"
    assert [e["final"] for e in events if e["type"] == "message_stop"] == [True]
    assert (shown["status"], shown["output"], shown["seq"]) == ("completed", TEXT, events[-1]["seq"])
    assert shown["usage"] == events[-1]["usage"]
    assert asked["messages"][-1] == {"role": "user", "content": "Count."}


async def test_H91_a_stream_begins_at_once_and_asks_proxies_not_to_hold_it(tmp_path: Path) -> None:
    async with running_server(tmp_path, "silence") as server:
        run = await server.start()
        async with server.client.get(f"{server.url}/runs/{run}/stream?after=1") as response:
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert response.headers["X-Accel-Buffering"] == "no"
            assert response.headers["Cache-Control"] == "no-cache"


async def test_H97_the_same_cursor_resumes_again_and_misses_nothing(tmp_path: Path) -> None:
    async with running_server(tmp_path, STALLED, reply(TEXT), config="call: {idle_timeout_s: 600}\n") as server:
        run = await server.start()
        seen: list[dict[str, Any]] = []
        async with server.client.get(f"{server.url}/runs/{run}/stream") as response:
            async for event in sse(response):
                seen.append(event)
                if event["type"] == "message_chunk":
                    break
        cursor = {"Last-Event-ID": str(seen[-1]["seq"])}
        for _ in range(2):  # dropped again before anything new was read
            async with server.client.get(f"{server.url}/runs/{run}/stream", headers=cursor) as response:
                assert response.status == 200
        await server.app.agents.stop(run)
        rest = await server.events(f"/runs/{run}/stream", headers=cursor)
        whole = await server.events(f"/runs/{run}/stream")
        by_query = await server.events(f"/runs/{run}/stream?after={seen[-1]['seq']}")
    assert seen + rest == whole
    assert by_query == rest
    assert whole[-1]["status"] == "stopped"
    assert whole[-1]["output"] == text_of(whole)


async def test_the_header_wins_over_the_query_so_that_an_event_source_can_come_back(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply(TEXT)) as server:
        run = await server.start()
        whole = await server.events(f"/runs/{run}/stream")
        again = await server.events(f"/runs/{run}/stream?after=1&snapshot=true", headers={"Last-Event-ID": "4"})
        last = {"Last-Event-ID": str(whole[-1]["seq"])}
        async with server.client.get(f"{server.url}/runs/{run}/stream", headers=last) as response:
            assert response.status == 204  # nothing more will ever come
        ended = await server.events(f"/runs/{run}/stream?after={whole[-1]['seq']}")
    assert again == whole[4:]
    assert ended == []


async def test_H98_a_cursor_ahead_of_the_log_is_said(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hi.")) as server:
        run = await server.start()
        whole = await server.events(f"/runs/{run}/stream")
        path = f"/runs/{run}/stream?after={whole[-1]['seq'] + 1}"
        ahead = await server.json("GET", path)
        far = await server.json("GET", f"/runs/{run}/stream?after={10**30}")
        odd = [
            await server.json("GET", f"/runs/{run}/stream", headers={"Last-Event-ID": v}) for v in ("x", "-1", "1.5")
        ]
    assert (ahead[0], ahead[1]["error"]["kind"]) == (409, "cursor_ahead")
    assert far[0] == 409
    assert [status for status, _ in odd] == [400, 400, 400]


async def test_H98_a_cursor_older_than_what_is_kept_gets_the_state_instead(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply(TEXT)) as server:
        run = await server.start()
        whole = await server.events(f"/runs/{run}/stream")
        await server.app.journal.compact(run)
        resumed = await server.events(f"/runs/{run}/stream?after=3")
    assert resumed[0]["type"] == "snapshot"
    assert resumed[0]["output"] == TEXT
    assert resumed[-1]["seq"] == whole[-1]["seq"]


async def test_a_snapshot_comes_first_and_everything_after_it(tmp_path: Path) -> None:
    async with running_server(tmp_path, STALLED) as server:
        run = await server.start()
        await first_chunk(server, run)
        stream = f"{server.url}/runs/{run}/stream?snapshot=true"
        async with server.client.get(stream) as response:
            events = sse(response)
            snapshot = await anext(events)
            await server.app.agents.stop(run)
            rest = [event async for event in events]
    assert snapshot["type"] == "snapshot"
    assert snapshot["status"] == "running"
    assert snapshot["messages"][0]["text"] == TEXT[: len(snapshot["messages"][0]["text"])]
    assert rest[0]["seq"] == snapshot["seq"] + 1
    assert rest[-1]["type"] == "run_finished"


async def test_what_the_model_thought_is_shown_to_whoever_asks(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply(think("Hidden thoughts."), "Shown.")) as server:
        run = await server.start()
        plain = await server.events(f"/runs/{run}/stream")
        thought = await server.events(f"/runs/{run}/stream?reasoning=true")
        _, state = await server.json("GET", f"/runs/{run}")
        _, with_reasoning = await server.json("GET", f"/runs/{run}?reasoning=1")
    assert "Hidden" not in str([event for event in plain if event["type"] != "message_recorded"])
    assert "Hidden thoughts." in "".join(e["text"] for e in thought if e["type"] == "reasoning_chunk")
    assert state["reasoning"] is None
    assert with_reasoning["reasoning"] == "Hidden thoughts."


async def test_what_the_tools_gave_is_shown_to_whoever_asks(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    calls = (call("terminal", {"command": "echo hi; exit 3"}), call("launch", {"what": "it"}))
    write = call("write_file", {"path": "notes.txt", "content": "one\nTWO\n"})
    script = (reply(*calls), reply(write), reply("Done."))
    async with running_server(tmp_path, *script, tools=(Launch(),), config="approvals: {timeout_s: 0.01}\n") as server:
        run_id = await server.start()
        await server.events(f"/runs/{run_id}/stream")
        _, plain = await server.json("GET", f"/runs/{run_id}")
        _, shown = await server.json("GET", f"/runs/{run_id}?outputs=true")
    assert plain["outputs"] is None
    failed, denied, written = shown["outputs"]
    assert [failed["index"], denied["index"], written["index"]] == [0, 1, 2]
    assert [tool["tool_name"] for tool in shown["tools"]] == ["terminal", "launch", "write_file"]
    assert (failed["output"], failed["ok"]) == ("hi\n[exit code 3]", False)
    assert (denied["ok"], denied["not_executed"]["kind"]) == (False, "no_answer")
    assert (written["change"]["added"], written["change"]["removed"]) == (1, 1)


async def test_F68_a_viewer_that_leaves_does_not_stop_the_run(tmp_path: Path) -> None:
    async with running_server(tmp_path, Scenario(reply=reply(TEXT), pace_s=0.01)) as server:
        run = await server.start()
        async with server.client.get(f"{server.url}/runs/{run}/stream") as response:
            await anext(sse(response))
        events = await server.events(f"/runs/{run}/stream")
    assert events[-1]["status"] == "completed"


async def test_many_viewers_are_sent_the_same_as_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_tail, "AT_ONCE", 3)  # ten are many: rounds of four ticks, ten milliseconds apart
    monkeypatch.setattr(live_tail, "PAUSE_S", 0.001)
    async with running_server(tmp_path, Scenario(reply=reply(TEXT), pace_s=0.002)) as server:
        run = await server.start()
        watched = await asyncio.gather(*(server.events(f"/runs/{run}/stream") for _ in range(10)))
        alone = await server.events(f"/runs/{run}/stream")
    assert text_of(alone) == TEXT
    assert watched == [alone] * 10


async def test_stop_is_quick_also_while_the_provider_is_silent(tmp_path: Path) -> None:
    async with running_server(tmp_path, "silence") as server:
        run = await server.start()
        await server.provider.request()
        status, body = await server.json("POST", f"/runs/{run}/stop")
        async with asyncio.timeout(30):
            events = await server.events(f"/runs/{run}/stream")
        again = await server.json("POST", f"/runs/{run}/stop")
        nobody = await server.json("POST", "/runs/run_nobody/stop")
    assert (status, body) in ((200, {"id": run, "status": "stopping"}), (200, {"id": run, "status": "stopped"}))
    assert events[-1]["status"] == "stopped"
    assert again == (200, {"id": run, "status": "stopped"})
    assert nobody[0] == 404


async def test_an_idempotency_key_starts_one_run_and_stands_for_one_request(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Once."), reply("Twice.")) as server:
        runs = {await server.start("Go.", idempotency_key="k") for _ in range(3)}
        other = await server.json("POST", "/runs", {"input": "Something else.", "idempotency_key": "k"})
        [run] = runs
        await server.events(f"/runs/{run}/stream")
    assert len(server.provider.requests) == 1
    assert (other[0], other[1]["error"]["param"]) == (409, "idempotency_key")


async def test_messages_are_the_whole_history_and_a_session_has_its_own(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "I am Ann."},
        {"role": "assistant", "content": "Hello Ann."},
        {"role": "user", "content": [{"type": "text", "text": "Who am I?"}]},
    ]
    async with running_server(tmp_path, reply("Ann."), reply("Noted."), reply("Bob.")) as server:
        _, created = await server.json("POST", "/runs", {"input": messages})
        await server.events(f"/runs/{created['id']}/stream")
        for text in ("I am Bob.", "Who am I?"):
            run = await server.start(text, session="s")
            await server.events(f"/runs/{run}/stream")
        first, _, third = (request.json()["messages"] for request in server.provider.requests)
    assert [m["content"] for m in first] == ["Be brief.", "I am Ann.", "Hello Ann.", "Who am I?"]
    assert [m["content"] for m in third[1:]] == ["I am Bob.", "Noted.", "Who am I?"]


@pytest.mark.parametrize(
    "given",
    [
        "   ",
        [],
        [{"role": "assistant", "content": "Hi."}],
        [{"role": "system", "content": "Be brief."}],
        [{"role": "wizard", "content": "Hi."}],
        [{"role": "user", "content": [{"type": "audio"}]}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": []}],
        [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": [{"type": "text", "text": " "}]}],
    ],
)
async def test_an_input_that_asks_nothing_gets_400(tmp_path: Path, given: object) -> None:
    async with running_server(tmp_path) as server:
        assert (await server.json("POST", "/runs", {"input": given}))[0] == 400


async def test_a_model_that_is_not_there_gets_404_and_no_run(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        missing = await server.json("POST", "/runs", {"input": "x", "model": "nowhere/x"})
        bare = await server.json("POST", "/runs", {"input": "x", "model": "gpt"})
        _, runs = await server.json("GET", "/runs")
    assert (missing[0], missing[1]["error"]["kind"]) == (404, "model_not_found")
    assert bare[0] == 404
    assert runs["data"] == []


async def test_runs_are_listed_newest_first_in_pages(tmp_path: Path) -> None:
    async with running_server(tmp_path, *[reply("Hi.")] * 5) as server:
        started = []
        for number in range(5):
            run = await server.start(session="even" if number % 2 == 0 else "odd")
            await server.events(f"/runs/{run}/stream")
            started.append(run)
        _, first = await server.json("GET", "/runs?limit=2")
        _, second = await server.json("GET", f"/runs?limit=3&before={first['page']['next']}")
        _, even = await server.json("GET", "/runs?session=even")
        _, none = await server.json("GET", "/runs?status=failed")
        wrong = await server.json("GET", "/runs?status=gone")
    assert [run["id"] for run in (*first["data"], *second["data"])] == started[::-1]
    assert first["page"]["more"]
    assert second["page"] == {"more": False, "next": None}
    assert [run["id"] for run in even["data"]] == started[::-2]
    assert even["data"][0]["output"] == "Hi."
    assert none["data"] == []
    assert wrong[0] == 400


@pytest.mark.parametrize("path", ["/runs", "/sessions", "/sequences", "/instances"])
async def test_a_page_that_begins_at_no_id_is_refused(tmp_path: Path, path: str) -> None:
    """An empty page would say that there is nothing more."""
    async with running_server(tmp_path) as server:
        status, body = await server.json("GET", f"{path}?before=abc")
        gone = await server.json("GET", f"{path}?before=run_0660a1b2c3d4e5f60718293a")
    assert status == 400
    assert body["error"]["message"] == "before: 'abc' is no id; give `page.next` of the page before"
    assert (gone[0], gone[1]["data"]) == (200, [])  # it may have been deleted since the page before


# ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────

KEYS = "server: {drain_s: 0.05, keys: [{name: ann, key_env: ANN}, {name: bob, key_env: BOB}]}\n"
KEY_ENV = {"ANN": "the-key-of-ann", "BOB": "the-key-of-bob"}
ANN, BOB = ({"x-api-key": KEY_ENV[name]} for name in ("ANN", "BOB"))


@pytest.mark.parametrize(("decision", "output"), [("once", "launched it"), ("deny", None)])
async def test_J110_only_whoever_was_asked_can_approve(tmp_path: Path, decision: str, output: str | None) -> None:
    script = (reply(call("launch", {"what": "it"})), reply("Done."))
    async with running_server(tmp_path, *script, config=KEYS, env=KEY_ENV, tools=(Launch(),)) as server:
        _, created = await server.json("POST", "/runs", {"input": "Launch it."}, headers=ANN)
        path = f"/runs/{created['id']}"
        async with server.client.get(f"{server.url}{path}/stream", headers=ANN) as response:
            events = sse(response)
            asked = await _first(events, "approval_asked")
            answer = {"approval_id": asked["approval_id"], "decision": decision}
            theirs = await server.json("POST", f"{path}/approval", answer, headers=BOB)
            unknown = await server.json("POST", f"{path}/approval", {**answer, "approval_id": "apr_x"}, headers=ANN)
            wrong = await server.json("POST", f"{path}/approval", {**answer, "decision": "maybe"}, headers=ANN)
            reasoned = {**answer, "reason": "not today"}
            allowed_why = await server.json("POST", f"{path}/approval", {**reasoned, "decision": "once"}, headers=ANN)
            ours = await server.json(
                "POST", f"{path}/approval", reasoned if decision == "deny" else answer, headers=ANN
            )
            rest = [event async for event in events]
        late = await server.json("POST", f"{path}/approval", answer, headers=ANN)
    answered = next(event for event in rest if event["type"] == "approval_answered")
    outputs = [event for event in rest if event["type"] == "tool_output_recorded"]
    assert asked["requester"] == "ann"
    assert (theirs[0], theirs[1]["error"]["kind"]) == (403, "not_the_requester")
    assert [unknown[0], wrong[0], ours[0], late[0]] == [404, 400, 200, 409]
    assert (allowed_why[0], allowed_why[1]["error"]["param"]) == (400, "reason")
    assert (answered["decision"], answered["by"]) == (decision, "ann")
    assert answered["reason"] == ("not today" if decision == "deny" else "")
    assert output is not None or outputs[0]["output"] == "Not executed: denied by the user: not today."
    assert outputs[0]["ok"] == (output is not None)
    assert output is None or outputs[0]["output"] == output


async def test_M152_an_approval_of_one_key_holds_for_no_other_key_and_no_other_directory(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    asked_in = ("a", "b", "a", "a")
    script = [
        turn
        for name in asked_in
        for turn in (reply(call("terminal", {"command": "rm -rf build", "directory": name})), reply("Done."))
    ]

    async def questions(server: Any, key: dict[str, str], decision: str) -> list[tuple[str, str, str]]:
        body = {"input": "Clean up.", "session": "shared"}
        _, created = await server.json("POST", "/runs", body, headers=key)
        path, asked = f"/runs/{created['id']}", []
        async with server.client.get(f"{server.url}{path}/stream", headers=key) as response:
            async for event in sse(response):
                if event["type"] == "approval_asked":
                    asked.append((event["requester"], event["directory"], event["session"]))
                    answer = {"approval_id": event["approval_id"], "decision": decision}
                    assert (await server.json("POST", f"{path}/approval", answer, headers=key))[0] == 200
        return asked

    async with running_server(tmp_path, *script, config=KEYS, env=KEY_ENV) as server:
        first = await questions(server, ANN, "always")
        elsewhere = await questions(server, ANN, "session")
        again = await questions(server, ANN, "deny")
        theirs = await questions(server, BOB, "deny")
    assert first == [("ann", str(tmp_path / "a"), "shared")]
    assert elsewhere == [("ann", str(tmp_path / "b"), "shared")]
    assert again == []
    assert theirs == [("bob", str(tmp_path / "a"), "shared")]


async def _first(events: AsyncIterator[dict[str, Any]], kind: str) -> dict[str, Any]:
    async for event in events:
        if event["type"] == kind:
            return event
    raise AssertionError(f"no {kind}")


async def first_chunk(server: Any, run: str) -> None:
    async with server.client.get(f"{server.url}/runs/{run}/stream") as response:
        async for event in sse(response):
            if event["type"] == "message_chunk":
                return


# ── after a restart ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_cursor_from_before_a_restart_goes_on_after_it(tmp_path: Path) -> None:
    store = "sqlite:///runs.db"
    async with running_server(tmp_path, STALLED, store=store, config="server: {drain_s: 0.01}\n") as server:
        run = await server.start()
        seen: list[dict[str, Any]] = []
        async with server.client.get(f"{server.url}/runs/{run}/stream") as response:
            async for event in sse(response):
                seen.append(event)
                if event["type"] == "message_chunk":
                    break
    async with running_server(tmp_path, reply(TEXT), store=store) as server:
        assert await server.app.agents.recover() == [run]
        rest = await server.events(f"/runs/{run}/stream?after={seen[-1]['seq']}")
    assert [event["seq"] for event in (*seen, *rest)] == list(range(1, rest[-1]["seq"] + 1))
    assert rest[-1]["status"] == "completed"
    assert text_of([*seen, *rest]) == TEXT


@pytest.mark.parametrize("slow", [False, True])
async def test_an_entry_longer_than_a_client_may_have_buffered_arrives(tmp_path: Path, slow: bool) -> None:
    timing = StreamTiming(max_pending_bytes=1 << 20)
    text = "x" * (16 << 20)
    async with running_server(tmp_path, timing=timing) as server:
        journal = server.app.journal
        run, lease = await journal.start(NewRun("agent", session="s"), "me")
        assert lease is not None
        journal.append(lease, [MessageChunk(text)])
        await journal.seal(lease, RunFinished("completed", text))
        async with server.client.get(f"{server.url}/runs/{run.id}/stream") as response:
            first = await response.content.readexactly(100)
            if slow:  # other requests have their turn while this client does not read
                assert (await server.json("GET", "/readyz"))[0] == 200
            body = first + await response.content.read()
    assert body.count(b"\nid: ") + body.startswith(b"id: ") == 3
    assert body.count(b"x") >= 2 * len(text)


async def test_a_stream_that_fails_inside_an_event_is_cut_and_not_garbled(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        journal = server.app.journal
        run, lease = await journal.start(NewRun("agent", session="s"), "me")
        assert lease is not None
        await journal.commit(lease)
        journal.append(lease, [MessageChunk("x" * (32 << 20))])
        await journal.commit(lease)
        async with server.client.get(f"{server.url}/runs/{run.id}/stream") as response:
            seen = bytearray(await response.content.readexactly(2000))
            await server.pipeline.stop()
            with pytest.raises(aiohttp.ClientError):
                await read_on(response, seen)
        assert b"event: error" not in seen


async def read_on(response: aiohttp.ClientResponse, seen: bytearray) -> None:
    while piece := await response.content.readany():
        seen += piece


async def test_idempotency_keys_of_two_keys_never_meet(tmp_path: Path) -> None:
    keys = "server: {drain_s: 0.05, keys: [{name: a, key_env: ANN}, {name: 'a:b', key_env: BOB}]}\n"
    async with running_server(tmp_path, reply("Once."), reply("Twice."), config=keys, env=KEY_ENV) as server:
        answers = [
            await server.json("POST", "/runs", {"input": "Go.", "idempotency_key": key}, headers=headers)
            for headers, key in ((ANN, "b:c"), (BOB, "c"))
        ]
    assert [status for status, _ in answers] == [201, 201], answers
    assert answers[0][1]["id"] != answers[1][1]["id"]
