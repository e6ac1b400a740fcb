"""What a fork begins with: any prefix of any log of a turn gives a conversation that providers accept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.agent.context import repaired
from tailrace.agent.endings import limit_warning, stalled_warning, without_warning
from tailrace.agent.fork import ForkedLog, ForkPoint, check_goes_on, has_question, inherited, until
from tailrace.agent.turn import CallModel, SettleTool, Turn, TurnLimits
from tailrace.errors import ForkRefused
from tailrace.events import (
    AnswerKept,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    AttemptStarted,
    Entry,
    HistoryCompressed,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFinished,
    RunForked,
    RunStarted,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    ToolSoFar,
    UsageRecorded,
)
from tailrace.journal.fold import fold, is_fact
from tailrace.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult, Usage, assistant, user
from tailrace.providers.open_attempt import open_attempts

HISTORY = (user("Before."), assistant("Said before."))
SOURCE = "run_source"


# ── any turn ─────────────────────────────────────────────────────────────────────────────────────────────────


class Writing:
    """Writes the log of a turn as the agent does. No text occurs twice."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.entries = [Entry(1, RunStarted("agent"))]
        self.attempt = 1
        self._words = count(1)
        self._calls: list[ToolCall] = []

    def add(self, *events: AnyEvent) -> None:
        for event in events:
            self.entries.append(Entry(len(self.entries) + 1, event, self.attempt))

    def word(self) -> str:
        return f"word{next(self._words)}. "

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def answer(self, calls: int, stop: str) -> None:
        self.attempt += bool(self._calls)
        self.add(AttemptStarted("p", "m"))
        if self.flag():
            self.add(AnswerKept("p", "m", "resp_1"), MessageChunk(self.word()), AttemptDiscarded("cut"))
            self.attempt += 1
            self.add(AttemptStarted("p", "m"))
        thought = self.word() if self.flag() else ""
        self.add(*([ReasoningChunk(thought)] if thought else []))
        pieces = [self.word() for _ in range(self.draw(st.integers(0 if calls else 1, 3)))]
        self.add(*map(MessageChunk, pieces), UsageRecorded(Usage(10, 1)))
        made = [ToolCall(f"c{len(self._calls) + n}", "note", "{}") for n in range(calls)]
        parts: list[Part] = [Reasoning(thought)] if thought else []
        parts += [Text("".join(pieces))] if pieces else []
        self.add(MessageRecorded(Message("assistant", (*parts, *made)), stop))
        self._calls += made
        if made and pieces:
            self.add(MessageStop(final=False))
        for call in made:
            self.tool(call)

    def tool(self, call: ToolCall) -> None:
        index = self._calls.index(call)
        if self.flag():
            asked = ApprovalAsked(f"a{index}", call.name, "x", "digest", call_id=call.id)
            self.add(asked, ApprovalAnswered(f"a{index}", "once"))
        self.add(ToolCallChunk(call.name, "x", {}, index), ToolCallChunk(call.name, "…", index=index))
        self.add(ToolOutputRecorded(call.id, call.name, self.word()), ToolCallFinished(call.name, 0.1, True, index))


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    log = Writing(draw)
    log.add(MessageRecorded(user("The question.")))
    for calls in draw(st.lists(st.integers(1, 3), max_size=3)):
        log.answer(calls, "tools")
        if draw(st.integers(0, 4)) == 0:
            log.add(HistoryCompressed((user("A summary, and the question."),)))
    stop = draw(st.sampled_from(["end", "cut", "stopped", "length"]))
    log.answer(0, stop)
    log.add(MessageStop(final=True), RunFinished("completed" if stop == "end" else "incomplete"))
    return log.entries


def forked(entries: Sequence[Entry], point: ForkPoint, history: Iterable[Message] = HISTORY) -> list[Entry]:
    """The log of the fork, as far as it is inherited."""
    log = ForkedLog(tuple(until(entries, point.after)), False, {})
    return [Entry(1, RunStarted("agent")), *inherited(point, history, log)]


def asked_of_the_model(entries: Sequence[Entry], question: str = "") -> tuple[tuple[Message, ...], str]:
    """What the fork's first request says, and the text that it goes on from: as the runner does what is due."""
    turn = Turn()
    turn.replay(entries)
    if question:
        turn.apply(MessageRecorded(user(question)))
    for command in turn.open_calls():
        assert isinstance(command, SettleTool), "a call of the other run is never simply made"
        turn.apply(ToolOutputRecorded(command.call.id, command.call.name, "interrupted", ok=False))
    (due,) = turn.due()
    assert isinstance(due, CallModel)
    assert open_attempts(entries) == {}, "the answer that a provider keeps is the other run's"
    return turn.messages, due.shown


def assert_no_loose_pairs(messages: Sequence[Message]) -> None:
    """Each call is followed by its result, and each result stands after its call."""
    assert repaired(messages) == tuple(messages)
    calls = [call.id for message in messages for call in message.tool_calls]
    results = [part.call_id for message in messages for part in message.parts if isinstance(part, ToolResult)]
    assert results == calls


def words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in text.split()]


def unique_words(found: Iterable[str]) -> list[str]:
    return [word for word in found if word.startswith("word")]


def texts_of(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        yield message.text
        yield from (part.text for part in message.parts if isinstance(part, ToolResult))


def assert_nothing_twice(messages: Sequence[Message], shown: str = "") -> None:
    said = unique_words(words([*texts_of(messages), shown]))
    assert len(said) == len(set(said))


def kept_before(entries: Sequence[Entry], after: int) -> list[str]:
    """The words on record by then, as the other run itself would send them."""
    turn = Turn(HISTORY)
    turn.replay(until(entries, after))
    turn.apply(RunForked("", 0))
    for event in turn.last_words():
        turn.apply(event)
    return words(texts_of(turn.messages))


@given(logs(), st.data())
def test_a_fork_with_a_question_has_the_whole_conversation_up_to_any_entry(
    log: list[Entry], data: st.DataObject
) -> None:
    after = data.draw(st.integers(0, len(log)))
    point = ForkPoint(SOURCE, after, asks=True)
    entries = forked(log, point)
    messages, shown = asked_of_the_model(entries, "And now?")
    assert_no_loose_pairs(messages)
    assert_nothing_twice(messages)
    assert (messages[-1], shown) == (user("And now?"), "")
    question_is_open = words(texts_of(messages[:-1])) != kept_before(log, after)
    if question_is_open:
        assert kept_before(log, after)[-2:] == ["The", "question."], "the question alone is replaced"
        assert words(texts_of(messages[:-1])) == kept_before(log, after)[:-2]
    assert fold(entries).output == ""


@given(logs(), st.data())
def test_a_fork_without_a_question_goes_on_from_any_entry(log: list[Entry], data: st.DataObject) -> None:
    after = data.draw(st.integers(2, len(log)))
    kept = until(log, after)
    assert has_question(kept, None)
    try:
        check_goes_on(kept, SOURCE)
    except ForkRefused:
        assert isinstance(log[-1].event, RunFinished)
        assert log[-1].event.status == "completed"
        assert after >= len(log) - 2, "only a complete answer leaves nothing to do"
        return
    entries = forked(log, ForkPoint(SOURCE, after))
    messages, shown = asked_of_the_model(entries)
    assert_no_loose_pairs(messages)
    assert_nothing_twice(messages, shown)
    said = unique_words(words([*texts_of(messages), shown]))
    assert said == unique_words(kept_before(log, after)), "nothing is missing"
    assert fold(entries).snapshot().usage == Usage(), "what was used is the other run's"
    turn = Turn()
    turn.replay(entries)
    assert fold(entries).output == turn.output, "the fork can be sealed"
    assert all(entry.seq == at for at, entry in enumerate(entries, 1))


@given(logs(), st.data())
def test_a_fork_of_a_fork_has_the_same_conversation(log: list[Entry], data: st.DataObject) -> None:
    """A fork's log is like any other: all of it is there, whichever of its entries it is forked after."""
    first = ForkPoint(SOURCE, data.draw(st.integers(0, len(log))), asks=True)
    mid = forked(log, first)
    mid.append(Entry(len(mid) + 1, MessageRecorded(user("And now?"))))
    before = asked_of_the_model(mid)[0]
    again = forked(mid, ForkPoint("run_fork", len(mid)), history=())
    assert asked_of_the_model(again)[0] == before
    other = forked(mid, ForkPoint("run_fork", data.draw(st.integers(1, len(mid))), asks=True), history=())
    assert asked_of_the_model(other, "Or this?")[0] == (*before[:-1], user("Or this?"))


@given(logs(), st.data())
def test_a_compacted_log_gives_the_same_but_for_text_under_way(log: list[Entry], data: st.DataObject) -> None:
    after = data.draw(st.integers(0, len(log)))
    facts = [entry for entry in log if is_fact(entry.event)]
    whole, compacted = (forked(kept, ForkPoint(SOURCE, after, asks=True)) for kept in (log, facts))
    said, left = (words(texts_of(asked_of_the_model(entries, "And now?")[0])) for entries in (whole, compacted))
    under_way = Turn()
    under_way.replay(until(log, after))
    if not under_way.shown:
        assert left == said


# ── single cases ─────────────────────────────────────────────────────────────────────────────────────────────

CALL = ToolCall("c1", "terminal", '{"command":"ls"}')
CALLING = Message("assistant", (Text("Looking."), CALL))


def log_of(*events: AnyEvent) -> list[Entry]:
    return [Entry(seq, event) for seq, event in enumerate((RunStarted("agent"), *events), 1)]


def test_viewers_of_the_fork_see_what_was_there() -> None:
    asked = ApprovalAsked("a1", "terminal", "ls", "d", call_id="c1")
    log = log_of(
        MessageRecorded(user("hi")),
        AttemptStarted("p", "m"),
        MessageChunk("Look"),
        MessageChunk("ing."),
        MessageRecorded(CALLING, "tools"),
        MessageStop(),
        asked,
        ApprovalAnswered("a1", "once"),
        ToolCallChunk("terminal", "ls", {"command": "ls"}, 0),
        ToolOutputRecorded("c1", "terminal", "a b"),
        ToolCallFinished("terminal", 0.2, True, 0),
        MessageChunk("There "),
        MessageChunk("are"),
    )
    tools = {0: ToolSoFar("terminal", 0, 1, "ls", {"command": "ls"}, True, 0.2)}
    entries = inherited(ForkPoint(SOURCE, len(log)), HISTORY, ForkedLog(tuple(log), False, tools))
    assert [entry.event for entry in entries] == [
        HistoryCompressed(HISTORY),
        MessageRecorded(user("hi")),
        MessageChunk("Looking."),
        MessageRecorded(CALLING, "tools"),
        MessageStop(),
        ApprovalAsked("a1", "terminal", "ls", "", call_id="c1"),
        ApprovalAnswered("a1", "once"),
        ToolCallChunk("terminal", "ls", {"command": "ls"}, 0),
        ToolOutputRecorded("c1", "terminal", "a b"),
        ToolCallFinished("terminal", 0.2, True, 0),
        MessageChunk("There are"),
        RunForked(SOURCE, len(log)),
    ]


@pytest.mark.parametrize("answered", [False, True])
def test_an_approval_of_the_other_run_lets_nothing_run_in_the_fork(answered: bool) -> None:
    """Also one that was given: its call may have been made."""
    waiting: list[AnyEvent] = [
        MessageRecorded(CALLING, "tools"),
        ApprovalAsked("a1", "terminal", "ls", "d", call_id="c1"),
    ]
    log = log_of(MessageRecorded(user("hi")), *waiting, *([ApprovalAnswered("a1", "once")] if answered else []))
    entries = forked(log, ForkPoint(SOURCE, len(log)), ())
    assert not [entry for entry in entries if isinstance(entry.event, ApprovalAsked | ApprovalAnswered)]
    turn = Turn()
    turn.replay(entries)
    assert turn.due() == [SettleTool(0, CALL)]


@pytest.mark.parametrize("warning", [stalled_warning(["terminal"], "Half"), limit_warning("ran out of time", "Half")])
def test_an_answer_that_broke_off_goes_on_without_its_warning(warning: str) -> None:
    text = f"Half{warning}"
    assert without_warning(text) == "Half"
    log = log_of(MessageRecorded(user("hi")), MessageChunk(text), MessageRecorded(assistant(text), "cut"))
    assert asked_of_the_model(forked(log, ForkPoint(SOURCE, len(log)), ())) == ((user("hi"),), "Half")


def test_a_fork_counts_its_own_calls_against_its_budget() -> None:
    log = log_of(
        MessageRecorded(user("hi")), MessageRecorded(CALLING, "tools"), ToolOutputRecorded("c1", "terminal", "x")
    )
    turn = Turn(limits=TurnLimits(max_calls=1))
    turn.replay(forked(log, ForkPoint(SOURCE, len(log)), ()))
    assert turn.due() == [CallModel()]


def test_the_attempts_of_a_fork_are_no_attempts_of_the_other_run() -> None:
    """One that is withdrawn takes no text along that was there before it."""
    log = log_of(MessageRecorded(user("hi")), AttemptStarted("p", "m"), MessageChunk("Hel"))
    turn = Turn()
    turn.replay(forked(log, ForkPoint(SOURCE, len(log)), ()))
    turn.apply(AttemptDiscarded(), turn.attempt + 1)
    assert turn.due() == [CallModel("Hel")]
    assert Turn().attempt == 0
    fresh = Turn()
    fresh.replay(forked(log, ForkPoint(SOURCE, 2), ()))
    assert fresh.attempt == 0
