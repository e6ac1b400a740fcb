"""Playbooks of a turn that is given messages while it is under way: apply these facts, then that is due."""

from __future__ import annotations

import pytest

from tailrace.agent.steering import facts_of, steer_signal, take_back_signal
from tailrace.agent.turn import CallModel, Finish, GiveUp, RunTool, Turn, TurnLimits
from tailrace.events import (
    AnyEvent,
    HistoryCompressed,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    SteerAccepted,
    SteerCommitted,
    SteerReturned,
    ToolOutputRecorded,
)
from tailrace.events.steers import MAX_PENDING_CHARS, MAX_PENDING_STEERS, SteerInput, Steers
from tailrace.messages import Image, Message, Text, ToolCall, ToolResult, assistant, user

LS = ToolCall("c1", "terminal", '{"command":"ls"}')
LOOKING = Message("assistant", (Text("Looking."), LS))
RESULT = ToolOutputRecorded("c1", "terminal", "a b")


def turn(*facts: AnyEvent, limits: TurnLimits | None = None) -> Turn:
    made = Turn(limits=limits)
    for fact in (MessageRecorded(user("hi")), *facts):
        made.apply(fact, 1)
    return made


def commit(under_way: Turn) -> list[AnyEvent]:
    facts = under_way.commit_steers()
    for fact in facts:
        under_way.apply(fact, 1)
    return facts


def test_the_next_model_call_has_the_messages_in_the_order_of_their_acceptance() -> None:
    under_way = turn(MessageRecorded(LOOKING, "tools"), SteerAccepted("s1", "also b"), SteerAccepted("s2", "and c"))
    assert under_way.due() == [RunTool(0, LS)]
    under_way.apply(RESULT)
    assert under_way.due() == [CallModel()]
    assert commit(under_way) == [SteerCommitted("s1"), SteerCommitted("s2")]
    assert under_way.messages[-3:] == (Message("tool", (ToolResult("c1", "a b"),)), user("also b"), user("and c"))
    assert under_way.due() == [CallModel()]
    assert under_way.commit_steers() == []


def test_N165_a_turn_that_would_end_makes_one_more_call() -> None:
    over = turn(MessageChunk("Done."), MessageRecorded(assistant("Done."), "end"))
    assert over.due() == [Finish("completed", "Done.")]
    over.apply(SteerAccepted("s1", "more"))
    assert over.due() == [CallModel()]
    assert commit(over) == [MessageStop(final=False), SteerCommitted("s1")]
    over.apply(MessageChunk("More."), 1)
    over.apply(MessageRecorded(assistant("More."), "end"), 1)
    assert over.due() == [Finish("completed", "More.")]
    assert [message.text for message in over.messages] == ["hi", "Done.", "more", "More."]


@pytest.mark.parametrize("stop", ["cut", "stopped", "limit"])
def test_N165_a_turn_that_was_stopped_or_broke_off_makes_none(stop: str) -> None:
    over = turn(MessageChunk("Do"), MessageRecorded(assistant("Do"), stop), SteerAccepted("s1", "more"))
    (due,) = over.due()
    assert isinstance(due, Finish)


@pytest.mark.parametrize("limits", [TurnLimits(max_calls=1), TurnLimits(max_tokens=0)])
def test_N165_a_turn_at_its_limit_ends_as_it_would_have(limits: TurnLimits) -> None:
    over = turn(MessageChunk("Done."), MessageRecorded(assistant("Done."), "end"), limits=limits)
    over.apply(SteerAccepted("s1", "more"))
    assert over.due() == [Finish("completed", "Done.")]


def test_N165_a_turn_whose_time_is_up_ends_as_it_would_have() -> None:
    over = turn(MessageChunk("Done."), MessageRecorded(assistant("Done."), "end"), SteerAccepted("s1", "more"))
    over.is_late = True
    assert over.due() == [Finish("completed", "Done.")]


def test_a_limit_that_is_reached_among_tools_gives_up_and_commits_nothing() -> None:
    under_way = turn(MessageRecorded(LOOKING, "tools"), RESULT, limits=TurnLimits(max_calls=1))
    under_way.apply(SteerAccepted("s1", "more"))
    assert isinstance(under_way.due()[0], GiveUp)


def test_what_was_taken_back_is_not_due() -> None:
    over = turn(MessageRecorded(assistant("Done."), "end"), SteerAccepted("s1", "x"), SteerReturned("s1", "taken_back"))
    assert over.commit_steers() == []
    assert over.due() == [Finish("incomplete", "", "the model gave no answer")]


def test_N164_facts_that_are_replayed_commit_once() -> None:
    facts: list[AnyEvent] = [MessageRecorded(LOOKING, "tools"), RESULT, SteerAccepted("s1", "b"), SteerCommitted("s1")]
    again = turn(*facts, SteerCommitted("s1"), SteerReturned("s1", "run_ended"))
    assert again.messages[-1] == user("b")
    assert [message.text for message in again.messages].count("b") == 1
    assert again.steers.all[0].state == "committed"


def test_a_compression_leaves_what_waits_alone() -> None:
    under_way = turn(MessageRecorded(LOOKING, "tools"), RESULT, SteerAccepted("s1", "b"))
    under_way.apply(HistoryCompressed((user("summary"),)))
    commit(under_way)
    assert under_way.messages == (user("summary"), user("b"))


# ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_N164_a_signal_that_the_last_owner_has_recorded_records_nothing_again() -> None:
    steers, sent = Steers(), steer_signal("s1", "b", "ann")
    (accepted,) = facts_of(sent, steers)
    assert accepted == SteerAccepted("s1", "b", "ann")
    steers.apply(accepted)
    assert facts_of(sent, steers) == []
    assert facts_of(take_back_signal("s1", "ann"), steers) == [SteerReturned("s1", "taken_back")]
    steers.apply(SteerCommitted("s1"))
    assert facts_of(take_back_signal("s1", "ann"), steers) == []


def test_a_message_beyond_the_limit_is_returned_at_once() -> None:
    steers = Steers()
    for number in range(MAX_PENDING_STEERS):
        steers.apply(SteerAccepted(f"s{number}", "x"))
    facts = facts_of(steer_signal("late", "x", ""), steers)
    assert facts == [SteerAccepted("late", "x"), SteerReturned("late", "too_many")]


def test_messages_that_are_too_large_together_are_returned_at_once() -> None:
    """One alone is as large as its request may be."""
    steers, large = Steers(), "x" * (MAX_PENDING_CHARS + 1)
    image: SteerInput = (Image(data="x" * MAX_PENDING_CHARS, media_type="image/png"),)
    (first,) = facts_of(steer_signal("first", large, ""), steers)
    assert isinstance(first, SteerAccepted)
    steers.apply(first)
    waiting: tuple[SteerInput, ...] = ("x", image)
    for given in waiting:
        facts = facts_of(steer_signal("late", given, ""), steers)
        assert facts == [SteerAccepted("late", given), SteerReturned("late", "too_many")]
    steers.apply(SteerCommitted("first"))
    assert facts_of(steer_signal("late", image, ""), steers) == [SteerAccepted("late", image)]
