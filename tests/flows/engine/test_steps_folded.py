"""The facts of a sequence in the run's fold: its output, its snapshots, and what a withdrawn attempt leaves behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import OutputMismatch
from tailrace.events import (
    AnyEvent,
    AttemptDiscarded,
    AttemptStarted,
    Entry,
    LlmDelta,
    RunFailure,
    RunFinished,
    RunStarted,
    SignalReceived,
    StateChanged,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
    from_json,
    to_json,
)
from tailrace.journal.fold import Fold, fold, is_fact, outputs_text
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import NewRun

STARTED = RunStarted("sequence")
IDS = st.sampled_from(["a", "b", "each[0].a"])
EVENTS: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(StateChanged, st.sampled_from(["running", "waiting", "paused"])),
    st.builds(StepStarted, IDS, st.integers(1, 3)),
    st.builds(StepFailed, IDS, st.just(RunFailure("retryable", "x")), st.integers(1, 3), st.none() | st.just(9.5)),
    st.builds(StepFinished, IDS, st.integers() | st.text(max_size=3) | st.just({"z": 1, "a": [None]})),
    st.builds(StepCancelled, IDS),
    st.builds(SignalReceived, st.integers(1, 5), st.just("go")),
    st.builds(AttemptStarted, block_id=IDS),
    st.builds(AttemptDiscarded, block_id=IDS),
    st.builds(LlmDelta, IDS, st.text(max_size=3)),
)


def entries(events: list[tuple[AnyEvent, int]]) -> list[Entry]:
    return [Entry(seq, event, attempt) for seq, (event, attempt) in enumerate([(STARTED, 1), *events], 1)]


@given(st.lists(st.tuples(EVENTS, st.integers(1, 3)), max_size=20), st.integers(0, 20))
def test_a_snapshot_and_what_follows_give_the_same_as_everything(events: list[tuple[AnyEvent, int]], at: int) -> None:
    log = entries(events)
    whole = fold(log)
    begun = fold(log[: at + 1])
    state = Fold()
    state.apply(Entry(begun.seq, from_json(to_json(begun.snapshot())), begun.attempt))
    for entry in log[at + 1 :]:
        state.apply(entry)
    assert state.snapshot() == whole.snapshot()
    assert state.output == whole.output


def test_the_output_is_what_finished_steps_gave_in_one_fixed_order() -> None:
    facts: list[tuple[AnyEvent, int]] = [
        (StepStarted("b"), 1),
        (StepFinished("b", {"y": 1, "x": 2}), 1),
        (StepFinished("a", "text"), 1),
        (StepFailed("c", RunFailure("permanent", "no")), 1),
        (StepCancelled("d"), 1),
    ]
    assert fold(entries(facts)).output == '{"a":"text","b":{"x":2,"y":1}}'
    assert fold(entries([])).output == "{}" == outputs_text({})


def test_a_discarded_attempt_takes_its_own_blocks_text_back_and_no_others() -> None:
    log = entries(
        [
            (LlmDelta("a", "wrong"), 1),
            (LlmDelta("b", "stays"), 1),
            (AttemptDiscarded("cut", "a"), 1),
            (LlmDelta("a", "right"), 2),
        ]
    )
    texts = {step.block_id: step.text.text for step in fold(log).snapshot().steps}
    assert texts == {"a": "right", "b": "stays"}


def test_compaction_keeps_every_fact_of_a_sequence_and_drops_its_deltas() -> None:
    assert not is_fact(LlmDelta("a", "x"))
    kept: list[AnyEvent] = [StepStarted("a"), StepFinished("a"), StepCancelled("a"), SignalReceived(1, "go")]
    assert all(is_fact(event) for event in kept)


async def test_a_sequence_is_not_sealed_with_outputs_that_its_log_does_not_show() -> None:
    journal = MemoryJournal()
    _, lease = await journal.start(NewRun("sequence"), "me")
    assert lease is not None
    journal.append(lease, [StepFinished("a", 1)])
    with pytest.raises(OutputMismatch):
        await journal.seal(lease, RunFinished("completed", outputs_text({"a": 2})))
    await journal.seal(lease, RunFinished("completed", outputs_text({"a": 1})))
