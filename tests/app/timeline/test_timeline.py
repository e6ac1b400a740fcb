"""A timeline: every item of a log, its time and its place, whatever is known of it."""

from __future__ import annotations

from app.timeline.timed_log import ASKED, BEGAN, SPENT, Timed, finished, only, run_of, timeline
from tailrace.app.timeline import timeline_of
from tailrace.app.timeline.items import (
    AttemptItem,
    CompressionItem,
    DeliveryItem,
    FinishItem,
    ForkItem,
    QuestionItem,
    ReasoningItem,
    SignalItem,
    StateItem,
    StepItem,
    TakeoverItem,
    TextItem,
    ToolCallItem,
)
from tailrace.events import (
    AnyEvent,
    AttemptStarted,
    Commentary,
    Delivered,
    Entry,
    GatewayNotice,
    HistoryCompressed,
    LlmDelta,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunForked,
    RunStarted,
    SignalReceived,
    StateChanged,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
    ToolArgumentsChunk,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    UsageRecorded,
)
from tailrace.journal.fold import fold, is_fact
from tailrace.messages import Message, Reasoning, Text, ToolCall, assistant, user


def test_an_answer_has_an_attempt_a_text_and_its_speed() -> None:
    shown = timeline(
        ASKED,
        (0.5, 1, AttemptStarted("near", "small")),
        (1.0, 1, MessageChunk("Because ")),
        (3.0 - 0.5, 1, MessageChunk("of tides.")),
        (2.5, 1, UsageRecorded(SPENT, "near", "small")),
        (2.5, 1, MessageRecorded(assistant("Because of tides."), "end")),
        (2.5, 1, MessageStop(final=True)),
        finished(2.5, "Because of tides."),
    )
    assert shown.items == (
        QuestionItem(seq=2, end_seq=2, start=0.0, end=0.0, text="Why?"),
        AttemptItem(
            seq=3,
            end_seq=7,
            start=0.5,
            end=2.5,
            number=1,
            provider="near",
            model="small",
            outcome="answered",
            first_token_s=0.5,
            usage=SPENT,
        ),
        TextItem(
            seq=4,
            end_seq=5,
            start=1.0,
            end=2.5,
            text="Because of tides.",
            chars=17,
            chunks=2,
            tokens=8,
            tokens_per_s=5.3,
        ),
        FinishItem(seq=9, end_seq=9, start=2.5, end=2.5, status="completed"),
    )
    assert (shown.question, shown.model, shown.status) == ("Why?", "near/small", "completed")
    assert (shown.duration_s, shown.first_token_s, shown.usage) == (2.5, 1.0, SPENT)
    assert shown.times[:3] == ((1, 0.0), (2, 0.0), (3, 0.5))


def test_a_run_whose_commits_share_a_time_ends_when_its_last_event_says() -> None:
    log: list[AnyEvent] = [RunStarted("call", at=BEGAN), MessageChunk("Because")]
    log.append(RunFinished("completed", "Because", at=BEGAN + 0.08))
    entries = [Entry(seq, event) for seq, event in enumerate(log, 1)]
    shown = timeline_of(run_of(entries, kind="call"), entries, [(1, BEGAN)])
    assert only(shown, FinishItem) == [FinishItem(seq=3, end_seq=3, start=0.08, end=0.08, status="completed")]
    assert shown.duration_s == 0.08


def test_thoughts_are_hidden_unless_asked_for() -> None:
    log: list[Timed] = [
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, ReasoningChunk("secret")),
        (1.2, 1, ReasoningChunk(" thought")),
        (1.3, 1, MessageChunk("Hi")),
        (1.3, 1, MessageRecorded(assistant("Hi"), "end")),
        finished(1.3, "Hi"),
    ]
    hidden = timeline(*log)
    assert "secret" not in repr(hidden)
    assert [(i.chars, i.start, i.end) for i in hidden.items if isinstance(i, ReasoningItem)] == [(14, 0.2, 1.2)]
    asked_for = timeline(*log, reasoning=True)
    assert [i.text for i in asked_for.items if isinstance(i, ReasoningItem)] == ["secret thought"]


def test_history_forks_deliveries_and_notices() -> None:
    shown = timeline(
        (0.0, 1, HistoryCompressed((user("before"),))),
        (0.0, 1, RunForked("run_0", 7)),
        ASKED,
        (0.1, 1, GatewayNotice("compressing", "Summarising …")),
        (2.0, 1, HistoryCompressed((user("summary"), user("Why?")))),
        (2.1, 1, Commentary("Whole.")),
        (2.2, 1, Delivered("chat/1", "sent", "m1")),
        (2.3, 1, MessageRecorded(assistant("Whole."), "stopped")),
        (2.3, 1, RunFinished("stopped", "", at=BEGAN + 2.3)),
    )
    assert only(shown, CompressionItem, ForkItem, DeliveryItem) == [
        CompressionItem(seq=2, end_seq=2, start=0.0, end=0.0, messages=1),
        ForkItem(seq=3, end_seq=3, start=0.0, end=0.0, run_id="run_0", after=7),
        CompressionItem(seq=6, end_seq=6, start=0.1, end=2.0, messages=2),
        DeliveryItem(seq=8, end_seq=8, start=2.2, end=2.2, key="chat/1", state="sent", message_id="m1"),
    ]
    assert shown.forked_from == ForkItem(seq=3, end_seq=3, start=0.0, end=0.0, run_id="run_0", after=7)
    assert [i.text for i in shown.items if isinstance(i, TextItem)] == ["Whole."]


def test_the_steps_of_a_sequence_with_their_tries() -> None:
    failure = RunFailure("retryable", "busy")
    shown = timeline(
        (0.0, 1, StateChanged("running")),
        (0.1, 1, StepStarted("a", 1, BEGAN + 0.1)),
        (0.1, 1, StepStarted("b", 1, BEGAN + 0.1)),
        (0.2, 1, AttemptStarted("near", "small", "a")),
        (0.3, 1, LlmDelta("a", "He")),
        (0.3, 1, LlmDelta("b", "other")),
        (0.4, 1, LlmDelta("a", "y")),
        (0.5, 1, StepFailed("a", failure, 1, BEGAN + 1.5)),
        (1.5, 1, StepStarted("a", 2, BEGAN + 1.5)),
        (1.6, 1, SignalReceived(1, "nudge", {"x": 1}, "me")),
        (3.0, 1, StepStarted("a", 2, BEGAN + 3.0)),
        (3.1, 1, StepFinished("a", {"ok": True})),
        (3.2, 1, StepCancelled("b")),
        (3.2, 1, RunFinished("completed", '{"a":{"ok":true}}', at=BEGAN + 3.2)),
        kind="sequence",
        claims=2,
    )
    steps = [item for item in shown.items if isinstance(item, StepItem)]
    assert [(s.block_id, s.number, s.state, s.start, s.end) for s in steps] == [
        ("a", 1, "retrying", 0.1, 0.5),
        ("b", 1, "cancelled", 0.1, 3.2),
        ("a", 2, "interrupted", 1.5, 3.0),
        ("a", 2, "finished", 3.0, 3.1),
    ]
    assert (steps[0].error, steps[0].retry_at, steps[3].output) == (failure, 1.5, {"ok": True})
    assert [(i.block_id, i.text, i.seq, i.end_seq) for i in shown.items if isinstance(i, TextItem)] == [
        ("a", "Hey", 6, 8),
        ("b", "other", 7, 7),
    ]
    attempt = next(item for item in shown.items if isinstance(item, AttemptItem))
    assert (attempt.block_id, attempt.outcome, attempt.reason) == ("a", "failed", "busy")
    assert len(only(shown, TakeoverItem)) == 1
    assert only(shown, StateItem, SignalItem) == [
        StateItem(seq=2, end_seq=2, start=0.0, end=0.0, state="running"),
        SignalItem(seq=11, end_seq=11, start=1.6, end=1.6, name="nudge", payload={"x": 1}, by="me"),
    ]


def test_a_step_that_goes_on_after_a_pause_was_not_taken_over() -> None:
    shown = timeline(
        (0.0, 1, StepStarted("a", 1, BEGAN)),
        (1.0, 1, StateChanged("paused")),
        (2.0, 1, StateChanged("running")),
        (2.0, 1, StepStarted("a", 1, BEGAN + 2.0)),
        (3.0, 1, StepFinished("a", {})),
        (3.0, 1, RunFinished("completed", '{"a":{}}', at=BEGAN + 3.0)),
        kind="sequence",
    )
    assert [item.state for item in shown.items if isinstance(item, StepItem)] == ["paused", "finished"]
    assert only(shown, TakeoverItem) == []


def test_a_log_without_times_stays_in_order() -> None:
    entries = [
        Entry(1, RunStarted("agent", at=BEGAN)),
        Entry(2, MessageRecorded(user("Why?"))),
        Entry(3, AttemptStarted("near", "small")),
        Entry(4, MessageChunk("So.")),
        Entry(5, MessageRecorded(assistant("So."), "end")),
        Entry(6, RunFinished("completed", "So.", at=BEGAN + 4)),
    ]
    shown = timeline_of(run_of(entries), entries, [])
    assert [(item.seq, item.start) for item in shown.items] == [(2, 0.0), (3, None), (4, None), (6, 4.0)]
    assert shown.duration_s == 4.0


def test_a_compacted_log_has_whole_texts_and_the_tools_durations() -> None:
    call = ToolCall("c1", "terminal", '{"command": "ls"}')
    thought = Message("assistant", (Reasoning("hm"), Text("Looking."), call))
    log: list[AnyEvent] = [
        RunStarted("agent", at=BEGAN),
        MessageRecorded(user("Why?")),
        AttemptStarted("near", "small"),
        MessageChunk("Look"),
        MessageChunk("ing."),
        MessageRecorded(thought, "tools"),
        MessageStop(),
        ToolCallChunk("terminal", "$ ls", {"command": "ls"}, 0),
        ToolOutputRecorded("c1", "terminal", "x"),
        ToolCallFinished("terminal", 2.0, index=0),
        RunFinished("completed", "", at=BEGAN + 9),
    ]
    whole = [Entry(seq, event) for seq, event in enumerate(log, 1)]
    state = fold(whole[:-1]).entry()
    facts = [entry for entry in whole if is_fact(entry.event)]
    times = [(1, BEGAN), (3, BEGAN + 1), (6, BEGAN + 5), (9, BEGAN + 8), (11, BEGAN + 9)]
    shown = timeline_of(run_of(whole), [state, *facts], times)
    assert [(i.text, i.end) for i in shown.items if isinstance(i, TextItem)] == [("Looking.", 5.0)]
    tool = next(item for item in shown.items if isinstance(item, ToolCallItem))
    assert (tool.preview, tool.start, tool.end, tool.duration_s, tool.state) == ("$ ls", 6.0, 8.0, 2.0, "done")
    assert (shown.compacted, shown.first_token_s) == (True, None)
    assert "hm" not in repr([i.text for i in shown.items if isinstance(i, ReasoningItem)])


def test_a_run_under_way_shows_what_is_open() -> None:
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, MessageChunk("So")),
        (0.3, 1, ToolArgumentsChunk("terminal", 0, '{"a')),
    )
    assert shown.status == "running"
    attempt = next(item for item in shown.items if isinstance(item, AttemptItem))
    call = next(item for item in shown.items if isinstance(item, ToolCallItem))
    assert (attempt.outcome, attempt.end, call.state, call.arguments_text) == ("running", None, "writing", '{"a')


def test_a_long_answer_is_one_item_however_many_pieces_it_has() -> None:
    entries = [Entry(1, RunStarted("agent", at=BEGAN)), Entry(2, AttemptStarted("near", "small"))]
    entries += [Entry(seq, MessageChunk("word ")) for seq in range(3, 20_003)]
    times = [(entry.seq, BEGAN + entry.seq / 1000) for entry in entries]
    shown = timeline_of(run_of(entries), entries, times)
    assert [item.end_seq - item.seq for item in only(shown, TextItem)] == [19_999]
    assert len(shown.items) == 2
