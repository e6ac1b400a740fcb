"""A kept answer in a run's log: found by whoever goes on, skipped as far as it is on record, lost with a notice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.config.load import Config, load
from tailrace.events import (
    AnswerKept,
    AnyEvent,
    AttemptDiscarded,
    AttemptStarted,
    Entry,
    GatewayNotice,
    LlmDelta,
    MessageChunk,
    MessageRecorded,
    ProviderEvents,
    ReasoningChunk,
    StepFinished,
    ToolArgumentsChunk,
)
from tailrace.flows.definition.definition import Definition, parsed
from tailrace.messages import assistant, user
from tailrace.providers.open_attempt import ResumableAnswer, open_attempts
from tailrace.testing.provider import Break, FaultyProvider, Offset, Scenario, call, reply

TEXT = "One two three four five"
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(60, per_cent=True)))
KEPT = AnswerKept("up", "m", "resp_1")
KEPT_OF_STEP = AnswerKept("up", "m", "resp_1", "a")


@pytest.mark.parametrize(
    ("events", "kept"),
    [
        ([AttemptStarted("up", "m")], None),
        ([KEPT], ResumableAnswer("up", "m", "resp_1", 1, input_tokens=9)),
        (
            [KEPT, MessageChunk("ab"), ReasoningChunk("why"), MessageChunk("c")],
            ResumableAnswer("up", "m", "resp_1", 1, "abc", 3, input_tokens=9),
        ),
        (
            [KEPT, ProviderEvents("responses", ({"sequence_number": 4}, {"sequence_number": 7}, {}))],
            ResumableAnswer("up", "m", "resp_1", 1, last_event=7, input_tokens=9),
        ),
        ([KEPT_OF_STEP, LlmDelta("a", "x")], ResumableAnswer("up", "m", "resp_1", 1, "x", input_tokens=9)),
        (
            [
                KEPT,
                ToolArgumentsChunk("note", 2, '{"a'),
                ToolArgumentsChunk("note", 2, '":'),
                ToolArgumentsChunk("note", 3, ""),
            ],
            ResumableAnswer("up", "m", "resp_1", 1, arguments={2: 5, 3: 0}, input_tokens=9),
        ),
        ([KEPT, AttemptDiscarded("no")], None),
        ([KEPT, MessageRecorded(assistant("abc"))], None),
        ([KEPT, AttemptStarted("other", "m")], None),
        ([KEPT_OF_STEP, StepFinished("a")], None),
    ],
)
def test_the_log_names_the_answer_that_is_under_way(events: list[AnyEvent], kept: ResumableAnswer | None) -> None:
    block_id = "a" if any(isinstance(event, LlmDelta | StepFinished) for event in events) else ""
    log = [AttemptStarted("up", "m", block_id, input_tokens=9), *events]
    left = open_attempts(Entry(seq, event, 1) for seq, event in enumerate(log, 1)).get(block_id)
    assert (left.resumable if left is not None else None) == kept


def config_of(home: Path, server: FaultyProvider) -> Config:
    (home / "config.yaml").write_text(
        "model: {provider: up, name: ok}\n"
        f"providers: {{up: {{dialect: responses, base_url: '{server.url}', reattach: true, backoff_s: 0.001}}}}\n"
        "store: {lease_s: 1}\n",
        encoding="utf-8",
    )
    return load({}, home)


def sequence(**step: object) -> Definition:
    params = {"prompt": "count", "stream": True}
    block = {"type": "step", "id": "a", "handler": "llm_call", "params": params, **step}
    return parsed({"name": "s", "blocks": [block]})


async def until(app: App, run_id: str, kind: type[AnyEvent]) -> None:
    async for batch in app.journal.tail(run_id):
        if any(isinstance(entry.event, kind) for entry in batch):
            return


def posts(server: FaultyProvider) -> int:
    return sum(request.path == "/v1/responses" for request in server.requests)


async def events_of(app: App, run_id: str) -> list[AnyEvent]:
    return [entry.event for entry in await app.journal.read(run_id)]


async def test_an_answer_that_is_lost_between_processes_is_continued_with_a_notice(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED, "ok", "ok", reply(TEXT)]) as server:
        config = config_of(tmp_path, server)
        async with open_app(config, directory=tmp_path) as app:
            run = await app.agents.submit(TurnSpec(user("count")), session="s")
            await until(app, run.id, MessageChunk)
        server.kept.forget()
        async with open_app(config, directory=tmp_path) as app:
            assert await app.agents.recover() == [run.id]
            end = await app.agents.finished(run.id)
            events = await events_of(app, run.id)
        assert (end.status, end.output, posts(server)) == ("completed", TEXT, 2)
        assert [event.kind for event in events if isinstance(event, GatewayNotice)] == ["answer_lost"]
        assert "".join(event.text for event in events if isinstance(event, MessageChunk)) == TEXT


async def test_a_tool_call_that_was_open_is_read_to_its_end_and_run_once(tmp_path: Path) -> None:
    asks = reply("I look.", call("terminal", {"command": "echo done >> effects.txt"}, id="c1"))
    halfway = Scenario(reply=asks, broken=Break("stall", Offset(70, per_cent=True)))
    async with FaultyProvider(script=[halfway, "ok", reply("All done.")]) as server:
        config = config_of(tmp_path, server)
        async with open_app(config, directory=tmp_path) as app:
            run = await app.agents.submit(TurnSpec(user("go"), yolo=True), session="s")
            await until(app, run.id, MessageChunk)
        async with open_app(config, directory=tmp_path) as app:
            await app.agents.recover()
            end = await app.agents.finished(run.id)
        assert (end.status, end.output, posts(server)) == ("completed", "All done.", 2)
        assert (tmp_path / "effects.txt").read_text(encoding="utf-8") == "done\n"


async def test_a_step_that_is_paused_goes_on_with_its_answer(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED]) as server, open_app(config_of(tmp_path, server)) as app:
        run = await app.flows.start(sequence())
        async with app.flows.watched(run.id):
            await until(app, run.id, LlmDelta)
            await app.flows.signal(run.id, "pause")
            await server.requests[0].over.wait()
            await app.flows.signal(run.id, "resume")
            end = await app.flows.finished(run.id)
        events = await events_of(app, run.id)
        assert (end.status, posts(server), server.kept.cancelled) == ("completed", 1, [])
        assert "".join(event.delta for event in events if isinstance(event, LlmDelta)) == TEXT
        assert not [event for event in events if isinstance(event, AttemptDiscarded)]


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_a_step_that_nobody_waits_for_is_cancelled_at_the_provider(tmp_path: Path, how: str) -> None:
    step = {"timeout_secs": 0.5} if how == "timeout" else {}
    async with FaultyProvider(script=[STALLED]) as server, open_app(config_of(tmp_path, server)) as app:
        run = await app.flows.start(sequence(**step))
        async with app.flows.watched(run.id):
            await until(app, run.id, LlmDelta)
            if how == "cancel":
                await app.flows.signal(run.id, "cancel")
            end = await app.flows.finished(run.id)
        assert end.status == ("stopped" if how == "cancel" else "failed")
        assert len(server.kept.cancelled) == 1


async def test_a_step_whose_answer_is_lost_starts_over(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED, "ok", "ok", reply(TEXT)]) as server:
        config = config_of(tmp_path, server)
        async with open_app(config) as app:
            run = await app.flows.start(sequence())
            async with app.flows.watched(run.id):
                await until(app, run.id, LlmDelta)
        server.kept.forget()
        async with open_app(config) as app:
            await app.flows.recover()
            async with app.flows.watched(run.id):
                end = await asyncio.wait_for(app.flows.finished(run.id), 30)
            state = await app.journal.snapshot(run.id)
        assert (end.status, posts(server)) == ("completed", 2)
        assert [step.text.text for step in state.event.steps] == [TEXT]  # type: ignore[union-attr]
