"""A process that ends leaves the runs that only wait for a person to the next one, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agent.turns import Note, NoteArgs, stage
from tailrace.agent.safety.approval import Asker
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.events import ApprovalAnswered, ApprovalAsked
from tailrace.messages import user
from tailrace.ports import Durability, Effect, Tool, ToolContext, ToolOutcome
from tailrace.testing.provider import FaultyProvider, Reply, call, reply

CONFIG = """
model: {{provider: faulty, name: ok}}
providers: {{faulty: {{dialect: chat, base_url: '{url}', backoff_s: 0.001}}}}
approvals: {{timeout_s: 600}}
"""
ANN = "web"


class Launch(Note):
    """Must be asked about."""

    name = "launch"

    def __init__(self) -> None:
        super().__init__(effect=Effect("external", text="launch the rocket"), parallel=True)


class Long(Note):
    """Runs until it is told to end."""

    name = "long"

    def __init__(self) -> None:
        super().__init__(parallel=True)
        self.running, self.may_end = asyncio.Event(), asyncio.Event()

    async def execute(self, args: NoteArgs, context: ToolContext) -> ToolOutcome:
        self.running.set()
        await self.may_end.wait()
        return await super().execute(args, context)


@asynccontextmanager
async def opened(home: Path, script: Sequence[Reply], *tools: Tool) -> AsyncGenerator[App, None]:
    async with FaultyProvider(script=script) as provider:
        (home / "config.yaml").write_text(CONFIG.format(url=provider.url), encoding="utf-8")
        async with open_app(load({}, home), directory=home, tools=tools) as app:
            yield app


async def ask(app: App, text: str, *, durability: Durability | None = None) -> str:
    spec = TurnSpec(user(text), requester=ANN, reachable=True, busy="queue")
    return (await app.agents.submit(spec, session="s", durability=durability)).id


async def asked(app: App, run_id: str) -> str:
    """The approval that the run asks for, once it does."""
    async for batch in app.journal.tail(run_id):
        for entry in batch:
            if isinstance(entry.event, ApprovalAsked):
                return entry.event.approval_id
    raise AssertionError(run_id)


async def test_a_tool_that_runs_beside_a_question_is_let_end_first(tmp_path: Path) -> None:
    launch, long = Launch(), Long()
    both = reply(call("launch", {"text": "now"}, id="c1"), call("long", {"text": "slowly"}, id="c2"))
    async with opened(tmp_path, [both], launch, long) as app:
        run_id = await ask(app, "Go.")
        await long.running.wait()
        await asked(app, run_id)
        await app.hand_over()
        assert not app.agents._hosted[run_id].task.cancelling(), "the tool that runs is waited for"
        long.may_end.set()
        async with asyncio.timeout(30):
            await app.agents.drain(600)
        run = await app.journal.get(run_id)
    assert (long.notes, launch.notes, run.finished, run.owner) == (["slowly"], [], None, "")
    async with opened(tmp_path, [reply("Done.")], launch, long) as app:
        assert await app.agents.recover() == [run_id]
        await app.agents.answer(run_id, await asked(app, run_id), "once", by=ANN)
        end = await app.agents.finished(run_id)
    assert (end.status, end.output) == ("completed", "Done.")
    assert (long.notes, launch.notes) == (["slowly"], ["now"])


class TellingAsker(Asker):
    """Says when its question waits for an answer."""

    def __init__(self) -> None:
        super().__init__(ANN, timeout_s=600)
        self.waits: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def tell(self) -> None:
        [approval_id] = self._open
        self.waits.set_result(approval_id)


async def test_a_turn_waits_for_a_person_once_nothing_else_is_under_way(tmp_path: Path) -> None:
    launch, long, asker, changes = Launch(), Long(), TellingAsker(), list[bool]()
    waits = asyncio.Event()

    def on_waiting(now: bool) -> None:
        changes.append(now)
        waits.set()

    script = [
        reply(call("launch", {"text": "now"}, id="c1"), call("long", {"text": "slowly"}, id="c2")),
        reply("Done."),
    ]
    tools = {"launch": launch, "long": long}
    async with stage(tmp_path, *script, tools=tools, asker=asker, on_waiting=on_waiting) as s:
        playing = asyncio.ensure_future(s.play())
        approval_id = await asker.waits
        await long.running.wait()
        assert changes == []
        long.may_end.set()
        await waits.wait()
        assert (changes, long.notes) == ([True], ["slowly"])
        asker.answer(ApprovalAnswered(approval_id, "once", ANN))
        played = await playing
    assert (played.finished.status, changes, launch.notes) == ("completed", [True, False], ["now"])


async def test_an_answer_that_is_given_between_two_processes_counts(tmp_path: Path) -> None:
    launch = Launch()
    async with opened(tmp_path, [reply(call("launch", {"text": "now"}))], launch) as app:
        run_id = await ask(app, "Go.")
        approval_id = await asked(app, run_id)
        await app.hand_over()
        async with asyncio.timeout(30):
            await app.agents.drain(600)
        await app.agents.answer(run_id, approval_id, "once", by=ANN)
    async with opened(tmp_path, [reply("Done.")], launch) as app:
        await app.agents.recover()
        end = await app.agents.finished(run_id)
    assert (end.status, launch.notes) == ("completed", ["now"])


async def test_a_question_that_nobody_can_be_asked_is_answered_here(tmp_path: Path) -> None:
    launch = Launch()
    async with opened(tmp_path, [reply(call("launch", {"text": "now"})), reply("I see.")], launch) as app:
        app.agents.hand_over_questions()
        run_id = (await app.agents.submit(TurnSpec(user("Go."), requester=ANN))).id
        async with asyncio.timeout(30):
            await app.agents.drain(600)
        run = await app.journal.get(run_id)
    assert (run.state, launch.notes) == ("completed", [])


async def test_what_waits_behind_a_question_is_left_with_it(tmp_path: Path) -> None:
    launch = Launch()
    async with opened(tmp_path, [reply(call("launch", {"text": "now"}))], launch) as app:
        runs = [await ask(app, "Go.")]
        approval_id = await asked(app, runs[0])
        runs.append(await ask(app, "And then?"))
        await app.hand_over()
        async with asyncio.timeout(30):
            await app.agents.drain(600)
        assert [(await app.journal.get(run_id)).owner for run_id in runs] == ["", ""]
    async with opened(tmp_path, [reply("Done."), reply("Then this.")], launch) as app:
        assert await app.agents.recover() == runs
        await app.agents.answer(runs[0], approval_id, "once", by=ANN)
        ends = [await app.agents.finished(run_id) for run_id in runs]
    assert [end.output for end in ends] == ["Done.", "Then this."]
    assert launch.notes == ["now"]


async def test_a_question_that_only_this_process_knows_of_is_waited_for(tmp_path: Path) -> None:
    launch = Launch()
    async with opened(tmp_path, [reply(call("launch", {"text": "now"})), reply("Done.")], launch) as app:
        run_id = await ask(app, "Go.", durability="memory")
        approval_id = await asked(app, run_id)
        await app.hand_over()
        await app.agents.answer(run_id, approval_id, "once", by=ANN)
        async with asyncio.timeout(30):
            await app.agents.drain(600)
            end = await app.agents.finished(run_id)
    assert (end.status, launch.notes) == ("completed", ["now"])
