"""An attempt that ended with its process is paid for: the process that goes on counts it, as an estimate and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.test_takeover import config_of, killed, recovering, victim
from tailrace.app import App, open_app
from tailrace.events import (
    AttemptDiscarded,
    AttemptStarted,
    Entry,
    LlmDelta,
    MessageChunk,
    MessageRecorded,
    ProviderEvents,
    ReasoningChunk,
    RunFinished,
    RunForked,
    StepFinished,
    UsageRecorded,
)
from tailrace.messages import Usage, user
from tailrace.providers.open_attempt import open_attempts
from tailrace.runs.recovery import finished
from tailrace.testing.provider import Break, FaultyProvider, Offset, Scenario, reply

TEXT = "Seventeen hundred characters notwithstanding everything continues"
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(50, per_cent=True)))
STALLED_LATER = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(85, per_cent=True)))


def log_of(*facts: tuple[object, int]) -> list[Entry]:
    return [Entry(seq, event, attempt) for seq, (event, attempt) in enumerate(facts, 1)]  # type: ignore[arg-type]


STARTED = AttemptStarted("p", "m", input_tokens=10)
BEGUN = ((STARTED, 2), (ReasoningChunk("hmm "), 2), (MessageChunk("Hell"), 2), (MessageChunk("o"), 2))
LOST = UsageRecorded(Usage(10, 2, estimated_tokens=12), "p", "m")


def lost_in(entries: list[Entry]) -> dict[str, tuple[int, UsageRecorded]]:
    """By block: the number of the attempt and what it has used."""
    found = open_attempts(entries).items()
    return {block_id: (each.number, lost) for block_id, each in found if (lost := each.lost_usage) is not None}


def test_an_attempt_is_lost_until_its_usage_is_on_record() -> None:
    assert lost_in(log_of(*BEGUN)) == {"": (2, LOST)}
    assert lost_in(log_of(*BEGUN, (AttemptDiscarded(), 2))) == {"": (2, LOST)}
    assert lost_in(log_of(*BEGUN, (UsageRecorded(Usage(1, 1), "p", "m"), 2))) == {}
    assert lost_in(log_of(*BEGUN, (UsageRecorded(Usage(1, 1), "p", "m"), 1))) != {}, "of another attempt"
    assert lost_in(log_of(*BEGUN, (MessageRecorded(user("Hello")), 2))) == {}
    assert lost_in(log_of(*BEGUN, (RunForked("run_1", 4), 2))) == {}, "it is the other run's"


def test_a_provider_that_had_not_begun_to_answer_is_owed_nothing() -> None:
    assert lost_in(log_of((STARTED, 1))) == {}
    assert lost_in(log_of(*BEGUN, (STARTED, 3))) == {}
    begun = log_of((STARTED, 1), (ProviderEvents("responses", ({"type": "x"},)), 1))
    assert lost_in(begun) == {"": (1, UsageRecorded(Usage(10, 0, estimated_tokens=10), "p", "m"))}


def test_each_step_has_its_own() -> None:
    """A recorded usage names its block: the steps beside it may have asked the same model as often."""
    log = log_of(
        *((AttemptStarted("p", "m", block), 1) for block in "abc"),
        *((LlmDelta(block, "four"), 1) for block in "abc"),
        (UsageRecorded(Usage(1, 1), "p", "m", "b"), 1),
        (StepFinished("c"), 1),
    )
    assert lost_in(log) == {"a": (1, UsageRecorded(Usage(0, 1, estimated_tokens=1), "p", "m", "a"))}


async def spent(app: App, run_id: str) -> tuple[list[tuple[int, Usage]], RunFinished, Usage]:
    """What the log says was used, by attempt; how the run ended; and what `tailrace usage` shows."""
    end = await finished(app.journal, run_id)
    entries = await app.journal.read(run_id)
    await app.agents.left(run_id)
    await app.calls.left(run_id)
    rows = await app.usage.rows()
    shown = Usage(
        sum(row.input_tokens for row in rows),
        sum(row.output_tokens for row in rows),
        estimated_tokens=sum(row.estimated_tokens for row in rows),
    )
    return (
        [(entry.attempt, entry.event.usage) for entry in entries if isinstance(entry.event, UsageRecorded)],
        end,
        shown,
    )


@pytest.mark.parametrize("kind", ["agent", "call", "step"])
async def test_the_usage_of_a_killed_process_is_estimated_by_the_one_that_goes_on(tmp_path: Path, kind: str) -> None:
    async with (
        FaultyProvider(script=[STALLED, reply(TEXT)]) as server,
        open_app(config_of(tmp_path, server), directory=tmp_path) as app,
        recovering(app),
        victim(tmp_path, kind) as (process, run_id),
    ):
        await killed(process)
        recorded, end, shown = await spent(app, run_id)
    (lost_number, lost), (number, answered) = recorded
    assert (lost_number, number) == (1, 2)
    assert lost.input_tokens > 0
    assert lost.output_tokens > 0
    assert lost.estimated_tokens == lost.input_tokens + lost.output_tokens
    assert answered.estimated_tokens == 0
    assert end.usage == lost + answered
    assert shown == end.usage


async def test_two_processes_that_go_on_count_a_lost_attempt_once(tmp_path: Path) -> None:
    """The first of them gives the run back in the middle of an attempt of its own, which it counts itself."""
    async with FaultyProvider(script=[STALLED, STALLED_LATER, reply(TEXT)]) as server:
        config = config_of(tmp_path, server)
        async with victim(tmp_path, "agent") as (process, run_id):
            await killed(process)
        async with open_app(config, directory=tmp_path) as app, recovering(app):
            async for batch in app.journal.tail(run_id):
                if any(isinstance(entry.event, MessageChunk) and entry.attempt == 2 for entry in batch):
                    break
        async with open_app(config, directory=tmp_path) as app, recovering(app):
            recorded, end, shown = await spent(app, run_id)
    assert [number for number, _ in recorded] == [1, 2, 3]
    assert shown == end.usage == sum((usage for _, usage in recorded), Usage())


@pytest.mark.parametrize("kind", ["agent", "call"])
async def test_a_run_that_is_stopped_while_no_process_executes_it_has_what_it_used(tmp_path: Path, kind: str) -> None:
    async with (
        FaultyProvider(script=[STALLED]) as server,
        open_app(config_of(tmp_path, server), directory=tmp_path) as app,
        victim(tmp_path, kind) as (process, run_id),
    ):
        await killed(process)
        await (app.agents if kind == "agent" else app.calls).stop(run_id)
        recorded, end, shown = await spent(app, run_id)
    [(number, lost)] = recorded
    assert (number, end.status) == (1, "stopped")
    assert lost.input_tokens > 0
    assert lost.output_tokens > 0
    assert shown == end.usage == lost
