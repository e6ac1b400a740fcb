"""What is told of each step: the fold of an instance's log with its times."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.events import (
    AnyEvent,
    Entry,
    LlmDelta,
    RunFailure,
    RunFinished,
    RunStarted,
    StateChanged,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
    UsageRecorded,
)
from tailrace.flows.engine.step_progress import InstanceProgress
from tailrace.messages import Usage

FAILURE = RunFailure("retryable", "cut")
ANSWER = {"message": {"content": "Hello"}, "usage": {"input_tokens": 5, "output_tokens": 2}, "cost_usd": 0.5}


def folded(*timed: tuple[float, AnyEvent]) -> InstanceProgress:
    progress = InstanceProgress()
    entries = [Entry(seq, event) for seq, (_, event) in enumerate(timed, 1)]
    progress.replay(entries, [(seq, at) for seq, (at, _) in enumerate(timed, 1)])
    return progress


def shown(progress: InstanceProgress, now: float = 1000.0) -> list[tuple[str, str, int, float | None]]:
    return [(step.block_id, step.state, step.tries, step.duration_s(now)) for step in progress.steps.values()]


def test_a_step_has_its_state_tries_time_tokens_and_cost() -> None:
    progress = folded(
        (100, RunStarted("sequence", at=100)),
        (100, StateChanged("running")),
        (100, StepStarted("a", 1, 100)),
        (100, StepStarted("b", 1, 100)),
        (101, LlmDelta("a", "Hel")),
        (103, StepFailed("a", FAILURE, 1, retry_at=110)),
        (110, StepStarted("a", 2, 110)),
        (111, UsageRecorded(Usage(9, 9))),
        (112, StepFinished("a", ANSWER)),
        (112, StepCancelled("b")),
        (113, RunFinished("completed", "", Usage(9, 9), at=113)),
    )
    assert shown(progress) == [("a", "finished", 2, 5.0), ("b", "cancelled", 1, 12.0)]
    step = progress.steps["a"]
    assert (step.usage, step.cost_usd, step.error) == (Usage(5, 2), 0.5, None)
    assert (progress.state, progress.usage, progress.duration_s(1000)) == ("completed", Usage(9, 9), 13.0)


def test_neither_a_pause_nor_what_a_dead_process_did_counts_as_time_of_a_step() -> None:
    crashed: Sequence[tuple[float, AnyEvent]] = [
        (100, RunStarted("sequence", at=100)),
        (100, StepStarted("a", 1, 100)),
        (104, LlmDelta("a", "Hel")),  # the process died after this
        (500, StepStarted("a", 1, 500)),
    ]
    assert shown(folded(*crashed), now=502) == [("a", "running", 1, 2.0)]
    paused = folded(*crashed, (503, StateChanged("paused")))
    assert (paused.state, shown(paused)) == ("paused", [("a", "running", 1, 3.0)])
    ended = folded(*crashed, (503, StateChanged("paused")), (600, StepStarted("a", 1, 600)), (601, StepFinished("a")))
    assert shown(ended) == [("a", "finished", 1, 4.0)]


def test_a_step_whose_process_died_was_executed_until_its_last_word() -> None:
    crashed: Sequence[tuple[float, AnyEvent]] = [
        (100, RunStarted("sequence", at=100)),
        (100, StepStarted("a", 1, 100)),
        (104, LlmDelta("a", "Hel")),
    ]
    facts = [Entry(seq, event) for seq, (_, event) in enumerate(crashed, 1) if not isinstance(event, LlmDelta)]
    times = [(seq, float(at)) for seq, (at, _) in enumerate(crashed, 1)]
    progress = InstanceProgress()
    progress.replay(facts, times)
    progress.abandon(times)
    assert shown(progress) == [("a", "running", 1, 4.0)]


def test_an_instance_that_goes_on_after_a_crash_has_all_the_time_from_its_beginning() -> None:
    progress = folded(
        (100, RunStarted("sequence", at=100)),
        (100, StepStarted("a", 1, 100)),  # the process died after this
        (500, StepStarted("a", 1, 500)),
        (501, StepFinished("a", "x")),
        (501, RunFinished("completed", at=501)),
    )
    assert progress.duration_s(1000) == 401.0


def test_what_a_retried_instance_has_kept_has_no_time_of_its_own() -> None:
    progress = folded((100, RunStarted("sequence", at=100)), (100, StepFinished("a", "x")))
    assert shown(progress) == [("a", "finished", 0, None)]
