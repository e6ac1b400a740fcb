"""The fold: what each event means for the state of a run."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalSoFar,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Entry,
    GatewayNotice,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStarted,
    Snapshot,
    TextSoFar,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    ToolSoFar,
    UsageRecorded,
    from_json,
    to_json,
)
from tailrace.journal.fold import Fold, fold, is_fact
from tailrace.messages import SpentTokens, Usage, assistant


def numbered(*events: AnyEvent | tuple[AnyEvent, int]) -> list[Entry]:
    """Entries from 1 on; `(event, attempt)` where it is not the first."""
    pairs = [event if isinstance(event, tuple) else (event, 1) for event in events]
    return [Entry(seq, event, attempt) for seq, (event, attempt) in enumerate(pairs, 1)]


def test_a_whole_run() -> None:
    asked = ApprovalAsked("a1", "terminal", "rm x", "d")
    started = RunStarted("agent", "m", "s", 1.0)
    state = fold(
        numbered(
            started,
            AttemptStarted("p", "m"),
            ReasoningChunk("hm"),
            MessageChunk("Let me "),
            MessageChunk("look."),
            MessageStop(),
            ToolCallChunk("terminal", "rm x", {"command": "rm x"}, 0),
            asked,
            ApprovalAnswered("a1", "once", "me"),
            LongToolHint("terminal", 9.0),
            ToolOutputRecorded("c", "terminal", "gone"),
            ToolCallFinished("terminal", 9.5, index=0),
            Commentary("half way"),
            GatewayNotice("stall"),
            UsageRecorded(Usage(1, 2)),
            UsageRecorded(Usage(3, 4)),
            MessageChunk("Done"),
            MessageChunk("."),
            MessageStop(final=True),
            MessageRecorded(assistant("Done.")),
            RunFinished("incomplete", "Done.", error=RunFailure("cut", "it was cut")),
        )
    )
    assert state.snapshot() == Snapshot(
        "incomplete",
        started,
        (
            TextSoFar("Let me look.", ((1, 12),), stopped=True),
            TextSoFar("half way", ((1, 8),), stopped=True, commentary=True),
            TextSoFar("Done.", ((1, 5),), stopped=True, final=True),
        ),
        TextSoFar("hm", ((1, 2),)),
        (ToolSoFar("terminal", 0, 1, "rm x", {"command": "rm x"}, True, 9.5),),
        (ApprovalSoFar(asked, "once", "me"),),
        Usage(4, 6),
        "Done.",
        RunFailure("cut", "it was cut"),
        spent=(SpentTokens("", "", Usage(4, 6)),),
    )
    assert state.seq == 21


def test_an_approval_knows_the_call_that_it_was_asked_about_wherever_the_log_is_cut() -> None:
    def question(approval_id: str) -> ApprovalAsked:
        return ApprovalAsked(approval_id, "terminal", "rm x", "digest")

    log = numbered(
        ToolCallChunk("terminal", "ls", index=0),
        ToolCallFinished("terminal", index=0),
        question("a1"),
        ApprovalAnswered("a1", "once", "me"),
        ToolCallChunk("terminal", "rm x", index=1),
        ToolCallFinished("terminal", index=1),
        ToolCallChunk("read_file", "x", index=2),
        ToolCallFinished("read_file", index=2),
        question("a2"),
        ApprovalAnswered("a2", "deny", "timeout"),
        ToolCallChunk("terminal", "rm x", index=3),
        ToolCallFinished("terminal", ok=False, index=3),
        question("a3"),
    )
    for cut in range(len(log)):
        state = fold([fold(log[:cut]).entry(), *log[cut:]]).snapshot()
        assert [(each.asked.approval_id, each.index) for each in state.approvals] == [
            ("a1", 1),
            ("a2", 3),
            ("a3", None),
        ]


def test_the_output_is_the_text_since_the_last_tool_boundary() -> None:
    log = numbered(MessageChunk("a"), MessageStop(), MessageChunk("b"), MessageChunk("c"), MessageStop(final=True))
    assert [fold(log[:length]).output for length in range(6)] == ["", "a", "", "b", "bc", "bc"]


def test_a_discarded_attempt_is_withdrawn_and_a_continued_one_is_not() -> None:
    state = fold(
        numbered(
            (MessageChunk("kept "), 1),
            (ToolCallChunk("read_file", index=0), 1),
            (ToolCallFinished("read_file", index=0), 1),
            (MessageChunk("wrong"), 2),
            (ReasoningChunk("bad idea"), 2),
            (Commentary("wrong too"), 2),
            (ToolCallChunk("terminal", index=1), 2),
            (ToolCallFinished("write_file", index=2), 2),
            (AttemptDiscarded("invalid"), 2),
            (MessageChunk("right"), 3),
        )
    ).snapshot()
    assert state.output == "kept right"
    assert state.messages == (TextSoFar("kept right", ((1, 5), (3, 5))),)
    assert state.reasoning == TextSoFar()
    # what it showed is gone; what it did is done
    assert [(tool.tool_name, tool.ok) for tool in state.tools] == [("read_file", True), ("write_file", True)]


def test_a_discarded_end_is_no_end() -> None:
    state = fold(
        numbered(
            MessageChunk("wrong"),
            MessageStop(final=True),
            AttemptDiscarded(),
            (MessageChunk("right"), 2),
            (MessageStop(final=True), 2),
        )
    )
    assert state.output == "right"
    assert state.snapshot().messages == (TextSoFar("right", ((2, 5),), stopped=True, final=True),)


def test_facts_are_what_compaction_keeps() -> None:
    kept: list[AnyEvent] = [
        RunStarted("agent"),
        MessageRecorded(assistant("x")),
        ToolOutputRecorded("c", "t", "o"),
        AttemptDiscarded(),
    ]
    dropped: list[AnyEvent] = [
        MessageChunk("x"),
        ReasoningChunk("x"),
        MessageStop(),
        GatewayNotice("k"),
        Commentary("c"),
        Snapshot(),
    ]
    assert [is_fact(event) for event in (*kept, *dropped)] == [True] * 4 + [False] * 6


TEXTS = st.text(max_size=4)
EVENTS: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(MessageChunk, TEXTS),
    st.builds(MessageChunk, TEXTS),
    st.builds(ReasoningChunk, TEXTS),
    st.builds(MessageStop, st.booleans()),
    st.builds(Commentary, TEXTS),
    st.builds(ToolCallChunk, TEXTS, index=st.integers(0, 3)),
    st.builds(ToolCallFinished, TEXTS, ok=st.booleans(), index=st.integers(0, 3)),
    st.builds(AttemptDiscarded),
    st.builds(ApprovalAsked, st.sampled_from("ab"), TEXTS, TEXTS, TEXTS),
    st.builds(ApprovalAnswered, st.sampled_from("ab"), st.sampled_from(["once", "deny"])),
    st.builds(UsageRecorded, st.builds(Usage, st.integers(0, 9), st.integers(0, 9))),
    st.builds(RunFinished, st.sampled_from(["completed", "failed"])),
)
LOGS = st.lists(st.tuples(EVENTS, st.integers(1, 3)), max_size=25).map(lambda pairs: numbered(*pairs))


@given(LOGS, st.data())
def test_a_snapshot_and_the_rest_fold_like_the_whole(log: list[Entry], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    state = fold(log[:cut])
    told = from_json(to_json(state.snapshot()))  # as a client gets it
    assert told == state.snapshot()
    again = fold([Entry(state.seq, told, state.attempt), *log[cut:]])
    assert again.entry() == fold(log).entry()
    assert again.output == fold(log).output


def test_F75_the_cost_of_an_entry_does_not_grow_with_the_log() -> None:
    def cost(state: Fold, first: int) -> float:
        entries = [Entry(seq, MessageChunk("token ")) for seq in range(first, first + 5000)]
        before = time.process_time()
        for entry in entries:
            state.apply(entry)
        return time.process_time() - before

    state = Fold()
    early = min(cost(state, 1 + 5000 * turn) for turn in range(5))
    for turn in range(20):
        cost(state, 50_000 + 5000 * turn)
    late = min(cost(state, 200_000 + 5000 * turn) for turn in range(5))
    assert late < 10 * early  # a quadratic fold would be at thirty and more


def test_a_snapshot_says_no_more_than_it_must() -> None:
    assert msgspec.json.decode(to_json(fold(numbered(MessageChunk("Hi"))).snapshot()))["messages"] == [
        {"text": "Hi", "pieces": [[1, 2]]}
    ]


@pytest.mark.parametrize("final", [True, False])
def test_an_empty_message_is_no_message(final: bool) -> None:
    assert fold(numbered(MessageStop(final=final))).snapshot() == Snapshot()
