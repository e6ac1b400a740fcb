from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from agent.turns import Note, NoteArgs
from tailrace.agent.fork import ForkRequest
from tailrace.agent.session import history_of
from tailrace.agent.steering import steer_signal
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.config.load import Config, load
from tailrace.errors import RunNotFound, RunParked
from tailrace.events import (
    Entry,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    RunFailure,
    RunFinished,
    Snapshot,
    SteerAccepted,
    SteerCommitted,
    SteerFact,
    ToolOutputRecorded,
)
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.messages import assistant, user
from tailrace.ports import NewRun, Run, ToolContext, ToolOutcome
from tailrace.testing.provider import Break, FaultyProvider, Offset, Reply, Scenario, call, reply


def config_for(server: FaultyProvider, home: Path) -> Config:
    (home / "config.yaml").write_text(
        f"model: {{provider: faulty, name: ok}}\nproviders:\n  faulty: {{dialect: chat, base_url: '{server.url}',"
        " backoff_s: 0.001}\nagent: {tools: [terminal, read_file]}\n",
        encoding="utf-8",
    )
    return load({}, home)


@asynccontextmanager
async def opened(home: Path, *script: str | Scenario | Reply) -> AsyncGenerator[tuple[App, FaultyProvider], None]:
    async with FaultyProvider(script=script) as server, open_app(config_for(server, home), directory=home) as app:
        yield app, server


STALLED = Scenario(reply=reply("One two three four five"), broken=Break("stall", Offset(60, per_cent=True)))


async def test_a_session_remembers_what_was_said(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Hello Ann."), reply("You are Ann.")) as (app, server):
        for text in ("I am Ann.", "Who am I?"):
            run = await app.agents.submit(TurnSpec(user(text)), session="s1")
            await app.agents.finished(run.id)
        asked = server.requests[1].json()["messages"]
        history = await history_of(app.journal, "s1")
    assert [m["content"] for m in asked[1:]] == ["I am Ann.", "Hello Ann.", "Who am I?"]
    assert history == (user("I am Ann."), assistant("Hello Ann."), user("Who am I?"), assistant("You are Ann."))


async def test_reading_a_history_costs_two_reads_however_long_it_is() -> None:
    class Counting(MemoryJournal):
        reads = 0

        async def runs(self, **which: Any) -> list[Run]:
            self.reads += 1
            return await super().runs(**which)

        async def facts_of_runs(self, run_ids: Sequence[str]) -> list[list[Entry]]:
            self.reads += 1
            return await super().facts_of_runs(run_ids)

    costs = []
    for turns in (5, 40):
        journal = Counting()
        for number in range(turns):
            _, lease = await journal.start(NewRun("agent", session="s"), "me")
            assert lease is not None
            journal.append(lease, [MessageRecorded(user(f"question {number}"))])
            await journal.seal(lease, RunFinished("completed"))
        assert await history_of(journal, "s") == tuple(user(f"question {number}") for number in range(turns))
        costs.append(journal.reads)
    assert costs == [2, 2]


async def test_runs_without_a_session_are_independent(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("a"), reply("b")) as (app, server):
        for text in ("one", "two"):
            run = await app.agents.submit(TurnSpec(user(text)))
            await app.agents.finished(run.id)
    assert [m["content"] for m in server.requests[1].json()["messages"][1:]] == ["two"]


async def test_I101_a_new_message_interrupts_the_run_before_it(tmp_path: Path) -> None:
    async with opened(tmp_path, STALLED, reply("Second.")) as (app, server):
        first = await app.agents.submit(TurnSpec(user("one")), session="s")
        await shown(app, first.id)
        second = await app.agents.submit(TurnSpec(user("two"), requester="ann"), session="s")
        ends = [await app.agents.finished(run.id) for run in (first, second)]
        asked = server.requests[1].json()["messages"]
    assert [end.status for end in ends] == ["stopped", "completed"]
    assert ends[0].error == RunFailure("stopped", "interrupted by a newer message", "newer_message", by="ann")
    assert ends[0].output
    assert asked[2]["content"] == ends[0].output  # what was seen is what the model is told it said


async def test_I101_a_new_message_also_stops_those_that_wait(tmp_path: Path) -> None:
    """The second waits for the first and is never asked, and the third knows of both."""
    async with opened(tmp_path, STALLED, reply("Third.")) as (app, server):
        first = await app.agents.submit(TurnSpec(user("one")), session="s")
        await shown(app, first.id)
        second = await app.agents.submit(TurnSpec(user("two"), busy="queue"), session="s")
        third = await app.agents.submit(TurnSpec(user("three")), session="s")
        ends = [await app.agents.finished(run.id) for run in (first, second, third)]
        asked = [message["content"] for message in server.requests[1].json()["messages"]]
    assert [end.status for end in ends] == ["stopped", "stopped", "completed"]
    assert asked[1:] == ["one", ends[0].output, "two", "three"]


async def test_I101_what_was_promised_to_another_person_is_waited_for(tmp_path: Path) -> None:
    """From whichever process the newer message comes."""
    script: list[Scenario | Reply] = [STALLED, reply("Second."), reply("Third.")] * 2
    async with FaultyProvider(script=script) as server:
        config = config_for(server, tmp_path)
        async with open_app(config, directory=tmp_path) as app, open_app(config, directory=tmp_path) as other:
            for session, agents in (("here", app.agents), ("elsewhere", other.agents)):
                first = await app.agents.submit(TurnSpec(user("one"), requester="ann"), session=session)
                await shown(app, first.id)
                must_answer = TurnSpec(user("two"), requester="ben", busy="queue", must_answer=True)
                second = await app.agents.submit(must_answer, session=session)
                third = await agents.submit(TurnSpec(user("three"), requester="ann"), session=session)
                ends = [await app.agents.finished(run.id) for run in (first, second, third)]
                assert [end.status for end in ends] == ["stopped", "completed", "completed"], session


async def test_I101_who_was_promised_an_answer_may_ask_something_else(tmp_path: Path) -> None:
    async with opened(tmp_path, STALLED, reply("Third.")) as (app, _):
        first = await app.agents.submit(TurnSpec(user("one"), requester="ann"), session="s")
        await shown(app, first.id)
        must_answer = TurnSpec(user("two"), requester="ben", busy="queue", must_answer=True)
        second = await app.agents.submit(must_answer, session="s")
        third = await app.agents.submit(TurnSpec(user("three"), requester="ben"), session="s")
        ends = [await app.agents.finished(run.id) for run in (first, second, third)]
    assert [end.status for end in ends] == ["stopped", "stopped", "completed"]


async def test_I101_a_queued_message_waits_for_its_turn(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("First."), reply("Second.")) as (app, server):
        runs = [await app.agents.submit(TurnSpec(user(t), busy="queue"), session="s") for t in ("one", "two")]
        ends = [await app.agents.finished(run.id) for run in runs]
    assert [end.output for end in ends] == ["First.", "Second."]
    assert len(server.requests[1].json()["messages"]) == 4


async def test_I101_a_message_that_waits_is_stopped_from_another_process_at_once(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED, reply("Third.")]) as server:
        config = config_for(server, tmp_path)
        async with open_app(config, directory=tmp_path) as app, open_app(config, directory=tmp_path) as other:
            first = await app.agents.submit(TurnSpec(user("one")), session="s")
            await shown(app, first.id)
            second = await app.agents.submit(TurnSpec(user("two"), busy="queue"), session="s")
            await other.agents.stop(second.id)
            end = await other.agents.finished(second.id)
            still = (await app.journal.get(first.id)).state
            third = await other.agents.submit(TurnSpec(user("three")), session="s")
            await other.agents.finished(third.id)
            asked = [
                message["content"] for message in server.requests[1].json()["messages"] if message["role"] == "user"
            ]
    assert (end.status, still) == ("stopped", "running")
    assert asked == ["one", "two", "three"]


async def test_an_idempotency_key_starts_one_run(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Once.")) as (app, server):
        runs = [await app.agents.submit(TurnSpec(user("go")), idempotency_key="k") for _ in range(3)]
        await app.agents.finished(runs[0].id)
    assert len({run.id for run in runs}) == 1
    assert len(server.requests) == 1


async def test_a_run_goes_on_after_its_process_let_go_of_it(tmp_path: Path) -> None:
    text = "One two three four five"
    async with FaultyProvider(script=[STALLED, reply(text)]) as server:
        config = config_for(server, tmp_path)
        async with open_app(config, directory=tmp_path) as app:
            run = await app.agents.submit(TurnSpec(user("count")), session="s")
            seen = await shown(app, run.id)
        async with open_app(config, directory=tmp_path) as app:
            assert await app.agents.recover() == [run.id]
            finished = await app.agents.finished(run.id)
            entries = await app.journal.read(run.id)
    assert (finished.status, finished.output) == ("completed", text)
    assert text.startswith(seen)
    assert "".join(e.event.text for e in entries if isinstance(e.event, MessageChunk)) == text


async def test_what_a_dead_turn_had_shown_is_in_the_history_of_the_next(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED, reply("Six.")]) as server:
        config = config_for(server, tmp_path)
        async with open_app(config, directory=tmp_path) as app:
            dead = await app.agents.submit(TurnSpec(user("count")), session="s")
            await shown(app, dead.id)
        async with open_app(config, directory=tmp_path) as app:
            seen = "".join(
                entry.event.text for entry in await app.journal.read(dead.id) if isinstance(entry.event, MessageChunk)
            )
            run = await app.agents.submit(TurnSpec(user("and then?")), session="s")
            await app.agents.finished(run.id)
            events = [entry.event for entry in await app.journal.read(dead.id)]
        asked = [message["content"] for message in server.requests[1].json()["messages"]]
    assert asked[1:] == ["count", seen, "and then?"]
    assert events[-3:-1] == [MessageRecorded(assistant(seen), "stopped"), MessageStop(final=True)]
    assert isinstance(events[-1], RunFinished)


async def test_L145_a_queued_turn_goes_on_with_the_dead_one_before_it(tmp_path: Path) -> None:
    """No other process is there that could: the one that wants the session's turn does."""
    text = "One two three four five"
    async with FaultyProvider(script=[STALLED, reply(text), reply("Six.")]) as server:
        config = config_for(server, tmp_path)
        async with open_app(config, directory=tmp_path) as app:
            dead = await app.agents.submit(TurnSpec(user("count")), session="s")
            await shown(app, dead.id)
        async with open_app(config, directory=tmp_path) as app:
            run = await app.agents.submit(TurnSpec(user("and then?"), busy="queue"), session="s")
            await app.agents.finished(run.id)
            end = await app.agents.finished(dead.id)
        asked = [message["content"] for message in server.requests[2].json()["messages"]]
    assert (end.status, end.output) == ("completed", text)
    assert asked[1:] == ["count", text, "and then?"]


async def test_L145_a_queued_turn_goes_on_with_a_run_whose_process_hangs_while_it_waits(tmp_path: Path) -> None:
    async with FaultyProvider(script=[reply("First."), reply("Second.")]) as server:
        config = config_for(server, tmp_path)
        async with open_app(config, directory=tmp_path) as hanging, open_app(config, directory=tmp_path) as app:
            spec = msgspec.to_builtins(TurnSpec(user("one")))
            first, _ = await hanging.journal.start(NewRun("agent", spec, session="s"), "hangs", lease_s=0.2)
            app.agents._lease_s = 0.1
            second = await app.agents.submit(TurnSpec(user("two"), busy="queue"), session="s")
            ends = [await app.agents.finished(run.id) for run in (first, second)]
    assert [end.output for end in ends] == ["First.", "Second."]


async def test_I104_a_viewer_who_comes_in_the_middle_sees_all_so_far(tmp_path: Path) -> None:
    """Also one in another process, which has the file alone to look at."""
    async with opened(tmp_path, STALLED) as (app, _):
        run = await app.agents.submit(TurnSpec(user("count")), session="s")
        seen = await shown(app, run.id)
        (state,) = await anext(app.journal.tail(run.id, snapshot=True))
        elsewhere = await SqliteJournal.open(tmp_path / "tailrace.db")
        try:
            entries = await elsewhere.read(run.id)
        finally:
            await elsewhere.close()
    assert isinstance(state.event, Snapshot)
    assert state.event.output.startswith(seen)
    stored = "".join(entry.event.text for entry in entries if isinstance(entry.event, MessageChunk))
    assert stored.startswith(seen)
    assert seen


async def test_a_model_that_is_not_there_fails_the_run_with_one_clear_line(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, _):
        run = await app.agents.submit(TurnSpec(user("go"), model="nowhere/x"))
        finished = await app.agents.finished(run.id)
        events = [entry.event for entry in await app.journal.read(run.id)]
    assert finished.status == "failed"
    assert finished.error is not None
    assert "no such provider" in finished.error.message
    assert events[-2:] == [MessageStop(final=True), finished]


class _Nonsense(Note):
    """Foreign code: what it calls a success no journal can write down."""

    async def execute(self, args: NoteArgs, context: ToolContext) -> ToolOutcome:
        return ToolOutcome("done", ok=cast("bool", object()))


async def test_a_run_whose_record_is_refused_fails_alone(tmp_path: Path) -> None:
    """Its log still ends as every log does, and the runs beside it go on."""
    script: list[Scenario | Reply] = [STALLED, reply("Let me see.", call("note", {"text": "x"}))]
    async with (
        FaultyProvider(script=script) as server,
        open_app(config_for(server, tmp_path), directory=tmp_path, tools=[_Nonsense()]) as app,
    ):
        beside = await app.agents.submit(TurnSpec(user("go")))
        await shown(app, beside.id)
        broken = await app.agents.submit(TurnSpec(user("go")))
        finished = await app.agents.finished(broken.id)
        events = [entry.event for entry in await app.journal.read(broken.id)]
        assert app.agents.running == (beside.id,)
        await app.agents.stop(beside.id)
        stopped = await app.agents.finished(beside.id)
    assert finished.status == "failed"
    assert finished.error is not None
    assert "cannot be written" in finished.error.message
    assert events[-2:] == [MessageStop(final=True), finished]
    assert stopped.status == "stopped"


async def test_A18_a_lone_surrogate_in_a_question_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Yes.")) as (app, server):
        run = await app.agents.submit(TurnSpec(user("what is \ud800?")))
        assert (await app.agents.finished(run.id)).status == "completed"
    assert server.requests[0].json()["messages"][-1]["content"] == "what is \ufffd?"


async def test_stopping_what_has_ended_or_never_was(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Done.")) as (app, _):
        run = await app.agents.submit(TurnSpec(user("go")))
        await app.agents.finished(run.id)
        await app.agents.stop(run.id)
        with pytest.raises(RunNotFound):
            await app.agents.stop("run_nobody")


async def test_I102_waiting_for_a_turn_ends_when_it_is_parked(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, _):
        run, lease = await app.journal.start(NewRun("agent"), "another process")
        assert lease is not None
        waiting = asyncio.create_task(app.agents.finished(run.id))
        await app.journal.get(run.id)
        await app.journal.park(lease, RunFailure("crash_loop", "it kept crashing"))
        with pytest.raises(RunParked, match="it kept crashing"):
            await waiting


async def test_a_turn_that_did_not_complete_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tailrace.agent")
    async with opened(tmp_path, "status-401", "length", reply("Done.")) as (app, _):
        runs = [await app.agents.submit(TurnSpec(user("go"))) for _ in range(3)]
        ends = [await app.agents.finished(run.id) for run in runs]
    expected = sorted(
        f"run {run.id} is {end.status}: {end.error.message}" for run, end in zip(runs, ends, strict=True) if end.error
    )
    assert sorted(end.status for end in ends) == ["completed", "failed", "incomplete"]
    lines = [record.getMessage() for record in caplog.records if record.name == "tailrace.agent"]
    assert sorted(lines) == expected


async def test_many_turns_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, *[reply(f"Answer {n}.") for n in range(50)]) as (app, _):
        runs = await asyncio.gather(*(app.agents.submit(TurnSpec(user("go"))) for _ in range(50)))
        ends = await asyncio.gather(*(app.agents.finished(run.id) for run in runs))
    assert sorted(end.output for end in ends) == sorted(f"Answer {n}." for n in range(50))


async def test_tools_of_the_asker_end_the_turn_with_a_call(tmp_path: Path) -> None:
    from tailrace.messages import ToolSpec

    async with opened(tmp_path, reply(call("theirs", {"x": 1}))) as (app, server):
        run = await app.agents.submit(TurnSpec(user("go"), foreign=(ToolSpec("theirs"),)))
        finished = await app.agents.finished(run.id)
        offered = [t["function"]["name"] for t in server.requests[0].json()["tools"]]
    assert finished.status == "completed"
    assert "theirs" in offered
    assert "terminal" in offered


async def shown(app: App, run_id: str) -> str:
    """Waits until something of the answer was shown."""
    async for batch in app.journal.tail(run_id):
        for entry in batch:
            if isinstance(entry.event, MessageChunk):
                return entry.event.text
    raise AssertionError("nothing was shown")


async def test_J114_a_key_that_somebody_types_is_neither_stored_nor_sent(tmp_path: Path) -> None:
    async with FaultyProvider([reply("Thanks.")]) as server:
        config_for(server, tmp_path)
        config = load({"OPENAI_API_KEY": "sk-typed-by-mistake"}, tmp_path)
        async with open_app(config, directory=tmp_path) as app:
            run = await app.agents.submit(TurnSpec(user("My key is sk-typed-by-mistake.")))
            await app.agents.finished(run.id)
            stored = str(await app.journal.read(run.id)) + str((await app.journal.get(run.id)).new.input)
        asked = server.requests[0].body.decode()
    assert "sk-typed-by-mistake" not in stored + asked
    assert "My key is [redacted]." in asked


MCP_SERVER = """
from mcp.server import MCPServer

server = MCPServer("clock")


@server.tool()
def now() -> str:
    "The time."
    return "noon"


server.run()
"""


async def test_the_tools_of_mcp_servers_are_offered_and_asked_about(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(MCP_SERVER, encoding="utf-8")
    async with FaultyProvider([reply(call("clock__now", {})), reply("It is noon.")]) as server:
        config_for(server, tmp_path)
        with (tmp_path / "config.yaml").open("a", encoding="utf-8") as file:
            file.write(f"mcp: {{servers: {{clock: {{command: ['{sys.executable}', '{program}']}}}}}}\n")
        async with open_app(load({}, tmp_path), directory=tmp_path) as app:
            run = await app.agents.submit(TurnSpec(user("What time is it?"), yolo=True))
            finished = await app.agents.finished(run.id)
            facts = await app.journal.facts(run.id)
    outputs = [entry.event.output for entry in facts if isinstance(entry.event, ToolOutputRecorded)]
    assert finished.output == "It is noon."
    assert outputs == ["noon"]


async def test_an_mcp_server_that_is_not_there_does_not_stop_the_rest(tmp_path: Path) -> None:
    async with FaultyProvider([reply("Hello.")]) as server:
        config_for(server, tmp_path)
        with (tmp_path / "config.yaml").open("a", encoding="utf-8") as file:
            file.write("mcp: {servers: {gone: {command: ['/nonexistent/program']}}}\n")
        async with open_app(load({}, tmp_path), directory=tmp_path) as app:
            run = await app.agents.submit(TurnSpec(user("Hi.")))
            assert (await app.agents.finished(run.id)).output == "Hello."


async def test_N164_a_fork_that_is_given_a_message_before_it_begins_inherits_all_the_same(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Hello Ann."), reply("Two."), STALLED, *[reply("Ann.")] * 2) as (app, server):
        for text in ("I am Ann.", "One?"):
            run = await app.agents.submit(TurnSpec(user(text)), session="s1")
            await app.agents.finished(run.id)
        spec = await app.agents.forked_turn(ForkRequest(run.id, 0, user("Who am I?")))
        first = await app.agents.submit(TurnSpec(user("Wait.")), session="s2")
        await shown(app, first.id)  # the stalled answer is this run's: stopped sooner, it would leave it to the fork
        forked = await app.agents.submit(msgspec.structs.replace(spec, busy="queue"), session="s2")
        await app.journal.signal(forked.id, steer_signal("steer_1", "Shortly.", "me"))
        await app.agents.stop(first.id)
        await app.agents.finished(forked.id)
        steered = [type(e.event) for e in await app.journal.read(forked.id) if isinstance(e.event, SteerFact)]
        asked = [m["content"] for m in server.requests[-1].json()["messages"]]
    assert asked[1:4] == ["I am Ann.", "Hello Ann.", "Who am I?"]
    assert steered == [SteerAccepted, SteerCommitted]
    assert asked[-1] == "Shortly."
