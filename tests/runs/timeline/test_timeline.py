"""A timeline: every item of a log, its time and its place, whatever is known of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Delivered,
    Entry,
    GatewayNotice,
    HistoryCompressed,
    LlmDelta,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    NotExecuted,
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
from tailrace.messages import FileChange, Message, Reasoning, Text, ToolCall, Usage, assistant, user
from tailrace.ports import NewRun, Run
from tailrace.runs.timeline import AnyItem, Timeline, timeline_of
from tailrace.runs.timeline.items import (
    ApprovalItem,
    AttemptItem,
    CompressionItem,
    DeliveryItem,
    FailoverItem,
    FinishItem,
    ForkItem,
    NoticeItem,
    QuestionItem,
    ReasoningItem,
    SignalItem,
    StallItem,
    StateItem,
    StepItem,
    TakeoverItem,
    TextItem,
    ToolCallItem,
)

BEGAN = 1000.0
Timed = tuple[float, int, AnyEvent]  # seconds after the beginning, the attempt, the event


def run_of(entries: Sequence[Entry], *, kind: str = "agent", claims: int = 1) -> Run:
    last = entries[-1].event
    finished = last if isinstance(last, RunFinished) else None
    return Run(
        "run_1",
        NewRun(kind),
        finished.status if finished else "running",
        entries[-1].seq,
        1,
        BEGAN,
        claims,
        finished=finished,
    )


def timeline(*timed: Timed, kind: str = "agent", claims: int = 1, reasoning: bool = False) -> Timeline:
    log: list[Timed] = [(0.0, 1, RunStarted(kind, at=BEGAN)), *timed]
    entries = [Entry(seq, event, attempt) for seq, (_, attempt, event) in enumerate(log, 1)]
    times = [(seq, BEGAN + at) for seq, (at, _, _) in enumerate(log, 1)]
    return timeline_of(run_of(entries, kind=kind, claims=claims), entries, times, reasoning=reasoning)


def only(shown: Timeline, *kinds: type[AnyItem]) -> list[AnyItem]:
    return [item for item in shown.items if isinstance(item, kinds)]


ASKED: Timed = (0.0, 1, MessageRecorded(user("Why?")))
SPENT = Usage(10, 8)


def finished(at: float, text: str) -> Timed:
    return at, 1, RunFinished("completed", text, SPENT, at=BEGAN + at)


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
            text_chars=17,
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


def test_a_cut_goes_on_elsewhere_and_says_why() -> None:
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, MessageChunk("Because ")),
        (9.2, 1, GatewayNotice("stalled", "⚠️ No response", {"provider": "near", "silent_s": 9.0})),
        (9.3, 2, AttemptStarted("far", "large", previous_failure="nothing for 9 s")),
        (9.4, 2, MessageChunk("of tides.")),
        (9.4, 2, MessageRecorded(assistant("Because of tides."), "end")),
        finished(9.5, "Because of tides."),
    )
    attempts = only(shown, AttemptItem)
    assert [(a.outcome, a.reason, a.goes_on, a.text_chars) for a in attempts if isinstance(a, AttemptItem)] == [
        ("failed", "nothing for 9 s", False, 8),
        ("answered", "", True, 9),
    ]
    assert only(shown, StallItem, FailoverItem, TakeoverItem) == [
        StallItem(
            seq=5, end_seq=5, start=0.2, end=9.2, silent_s=9.0, gave_up=True, provider="near", text="⚠️ No response"
        ),
        FailoverItem(
            seq=6,
            end_seq=6,
            start=9.3,
            end=9.3,
            from_provider="near",
            from_model="small",
            to_provider="far",
            to_model="large",
            reason="nothing for 9 s",
        ),
    ]


def test_a_withdrawn_attempt_stays_in_sight() -> None:
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, MessageChunk("Wrong")),
        (0.3, 1, AttemptDiscarded("cut")),
        (0.4, 2, AttemptStarted("near", "small", previous_failure="cut")),
        (0.5, 2, MessageChunk("Right")),
        (0.5, 2, MessageRecorded(assistant("Right"), "end")),
        finished(0.5, "Right"),
    )
    assert [(t.text, t.withdrawn) for t in shown.items if isinstance(t, TextItem)] == [
        ("Wrong", True),
        ("Right", False),
    ]
    outcomes = [(a.outcome, a.reason, a.goes_on, a.restarts) for a in shown.items if isinstance(a, AttemptItem)]
    assert outcomes == [("discarded", "cut", False, False), ("answered", "", False, True)]


def test_a_pause_that_the_stream_survives_is_a_stall() -> None:
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, MessageChunk("a")),
        (5.2, 1, MessageChunk("b")),
        finished(5.2, "ab"),
    )
    assert [(i.start, i.end) for i in only(shown, TextItem)] == [(0.2, 0.2), (5.2, 5.2)]
    assert only(shown, StallItem) == [StallItem(seq=5, end_seq=5, start=0.2, end=5.2, silent_s=5.0, provider="near")]


def test_an_attempt_that_said_nothing_has_nothing_to_withdraw() -> None:
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.3, 1, AttemptDiscarded("HTTP 500")),
        (0.4, 2, AttemptStarted("near", "small", previous_failure="HTTP 500")),
        (0.5, 2, MessageChunk("Right")),
        (0.5, 2, MessageRecorded(assistant("Right"), "end")),
        finished(0.5, "Right"),
    )
    outcomes = [(a.outcome, a.reason, a.try_number) for a in shown.items if isinstance(a, AttemptItem)]
    assert outcomes == [("failed", "HTTP 500", 1), ("answered", "", 2)]


def test_the_attempts_of_a_second_call_are_counted_from_one() -> None:
    call = ToolCall("c1", "terminal", '{"command": "ls"}')
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 2, AttemptStarted("near", "small", previous_failure="HTTP 500")),
        (0.3, 2, MessageRecorded(Message("assistant", (call,)), "tools")),
        (0.4, 3, AttemptStarted("near", "small")),
        (0.5, 3, MessageChunk("Beca")),
        (0.6, 4, AttemptStarted("far", "large", previous_failure="cut")),
        (0.7, 4, MessageChunk("use")),
        (0.7, 4, MessageRecorded(assistant("Because"), "end")),
        finished(0.7, "Because"),
    )
    counted = [(a.number, a.call, a.try_number) for a in shown.items if isinstance(a, AttemptItem)]
    assert counted == [(1, 1, 1), (2, 1, 2), (3, 2, 1), (4, 2, 2)]
    assert [(t.text, t.call, t.try_number) for t in shown.items if isinstance(t, TextItem)] == [
        ("Beca", 2, 1),
        ("use", 2, 2),
    ]


@pytest.mark.parametrize(("claims", "outcome"), [(1, "failed"), (2, "interrupted")])
def test_an_attempt_that_nothing_ended_was_interrupted(claims: int, outcome: str) -> None:
    """Only where another claim was made: an old log does not say why an attempt failed."""
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, MessageChunk("Beca")),
        (7.0, 2, AttemptStarted("near", "small")),
        (7.1, 2, MessageChunk("use")),
        (7.1, 2, MessageRecorded(assistant("Because"), "end")),
        finished(7.1, "Because"),
        claims=claims,
    )
    first, second = (item for item in shown.items if isinstance(item, AttemptItem))
    assert (first.outcome, second.goes_on) == (outcome, True)
    taken = [TakeoverItem(seq=5, end_seq=5, start=0.2, end=7.0, claims=2)]
    assert only(shown, TakeoverItem) == (taken if claims == 2 else [])


CALL = ToolCall("c1", "terminal", '{"command": "ls"}')


def test_a_tool_call_from_its_first_letter_to_its_exit_code() -> None:
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, MessageChunk("Looking.")),
        (0.3, 1, ToolArgumentsChunk("terminal", 0, '{"comm')),
        (0.6, 1, ToolArgumentsChunk("terminal", 0, 'and": "ls"}')),
        (0.7, 1, MessageRecorded(Message("assistant", (Text("Looking."), CALL)), "tools")),
        (0.7, 1, MessageStop()),
        (0.8, 1, ApprovalAsked("a1", "terminal", "ls", "d", "me", "c1", "why", "/src")),
        (3.8, 1, ApprovalAnswered("a1", "once", "me", "fine")),
        (3.9, 1, ToolCallChunk("terminal", "ls", {"command": "ls"}, 0)),
        (4.0, 1, LongToolHint("terminal", 31.0)),
        (5.0, 1, ToolOutputRecorded("c1", "terminal", "x\n[exit code 2]", ok=False)),
        (5.0, 1, ToolCallFinished("terminal", 1.1, ok=False, index=0)),
        finished(5.0, ""),
    )
    assert only(shown, ToolCallItem, ApprovalItem) == [
        ToolCallItem(
            seq=5,
            end_seq=14,
            start=3.9,
            end=5.0,
            tool_name="terminal",
            call_id="c1",
            state="failed",
            preview="ls",
            arguments={"command": "ls"},
            writing_start=0.3,
            writing_end=0.6,
            output="x\n[exit code 2]",
            ok=False,
            exit_code=2,
            duration_s=1.1,
        ),
        ApprovalItem(
            seq=9,
            end_seq=10,
            start=0.8,
            end=3.8,
            approval_id="a1",
            tool_name="terminal",
            command="ls",
            directory="/src",
            reason="why",
            requester="me",
            call_id="c1",
            decision="once",
            by="me",
            answer_reason="fine",
            waited_s=3.0,
        ),
    ]
    assert only(shown, NoticeItem) == [
        NoticeItem(
            seq=12, end_seq=12, start=4.0, end=4.0, about="long_tool", text="terminal is still running after 31 s"
        )
    ]
    attempt = next(item for item in shown.items if isinstance(item, AttemptItem))
    assert (attempt.outcome, attempt.first_token_s) == ("called_tools", 0.1)


def call_ends(name: str, arguments: str, output: ToolOutputRecorded) -> ToolCallItem:
    call = ToolCall("c1", name, arguments)
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, MessageRecorded(Message("assistant", (call,)), "tools")),
        (0.3, 1, output),
        (0.3, 1, ToolCallFinished(name, 0.0, output.ok, 0)),
        finished(0.4, ""),
    )
    item = only(shown, ToolCallItem)[0]
    assert isinstance(item, ToolCallItem)
    return item


def test_writes_show_what_they_changed() -> None:
    patched = "a.py, from line 3:\n same\n-old\n+new\n+more"
    item = call_ends("patch", "{}", ToolOutputRecorded("c1", "patch", patched))
    assert (item.diff, item.added, item.removed) == (" same\n-old\n+new\n+more", 2, 1)
    created = ToolOutputRecorded("c1", "write_file", "Created a.txt (2 lines)")
    item = call_ends("write_file", '{"path": "a.txt", "content": "x\\ny\\n"}', created)
    assert (item.diff, item.added, item.removed) == ("+x\n+y", 2, 0)
    known = ToolOutputRecorded("c1", "write_file", "Replaced a.txt", change=FileChange("a.txt", 5, 6, "-a\n+b"))
    item = call_ends("write_file", "{}", known)
    assert (item.diff, item.added, item.removed) == ("-a\n+b", 5, 6)


def test_a_denied_call_was_not_executed() -> None:
    denied = NotExecuted("terminal", "rm -rf /", "denied", "denied")
    item = call_ends("terminal", "{}", ToolOutputRecorded("c1", "terminal", "no", ok=False, not_executed=denied))
    assert (item.state, item.not_executed, item.exit_code, item.duration_s) == ("not_executed", denied, None, 0.0)


def test_a_call_that_breaks_off_and_one_that_the_client_runs() -> None:
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, ToolArgumentsChunk("terminal", 0, '{"comm')),
        (0.3, 2, AttemptStarted("near", "small", previous_failure="cut")),
        (0.4, 2, MessageRecorded(Message("assistant", (ToolCall("c9", "mine", "{}"),)), "tools")),
        finished(0.4, ""),
    )
    calls = [item for item in shown.items if isinstance(item, ToolCallItem)]
    assert [(c.tool_name, c.state, c.arguments_text, c.call_id) for c in calls] == [
        ("terminal", "broken_off", '{"comm', ""),
        ("mine", "returned", "", "c9"),
    ]


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
    assert [(i.text, i.commentary) for i in shown.items if isinstance(i, TextItem)] == [("Whole.", True)]


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


def test_a_failed_run_says_why_its_last_attempt_failed() -> None:
    failure = RunFailure("retryable", "the provider is gone", status=503)
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, RunFinished("failed", "", error=failure, at=BEGAN + 0.2)),
    )
    attempt = next(item for item in shown.items if isinstance(item, AttemptItem))
    assert (attempt.outcome, attempt.reason, shown.error) == ("failed", "the provider is gone", failure)


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
