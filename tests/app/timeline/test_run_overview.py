"""What is told of a run in one line, made of its facts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tailrace.app.timeline.run_overview import ShownState, overview_of, tries_of_last_call
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    Entry,
    InstanceState,
    MessageRecorded,
    RunFailure,
    RunFinished,
    RunForked,
    StateChanged,
    UsageRecorded,
)
from tailrace.messages import SpentTokens, Usage, assistant, user
from tailrace.ports import NewRun, Run, RunState


def a_run(state: RunState = "running", new: NewRun | None = None, finished: RunFinished | None = None) -> Run:
    given = new or NewRun("agent", {"message": msgspec.to_builtins(user("Why?"))}, "fake/small")
    parked = RunFailure("crash_loop", "it kept dying") if state == "parked" else None
    return Run("run_1", given, state, 9, 1, 100.0, 1, finished=finished, parked=parked)


def log(*events: AnyEvent) -> list[Entry]:
    return [Entry(seq, event) for seq, event in enumerate(events, 1)]


def test_the_tries_are_those_of_the_last_call() -> None:
    failed = AttemptStarted("fake", "small", previous_failure="HTTP 500")
    first = (AttemptStarted("fake", "small"), failed, MessageRecorded(assistant("I will."), "tools"))
    assert tries_of_last_call(log(*first)) == 2
    assert tries_of_last_call(log(*first, AttemptStarted("fake", "small"), failed, failed)) == 3
    cut = (AttemptStarted("fake", "small"), MessageRecorded(assistant("I wi"), "cut"), failed)
    assert tries_of_last_call(log(*cut)) == 2, "the same call goes on"


def test_the_question_is_what_its_user_typed() -> None:
    whole = user("Fix @a.py\n\n<file path='a.py'>\nx = 1\n</file>")
    given = NewRun(
        "agent", {"message": msgspec.to_builtins(whole), "shown": "Fix @a.py\n  + a.py, 1 line"}, "fake/small"
    )
    assert overview_of(a_run(new=given), [], now=101.0).question == "Fix @a.py\n  + a.py, 1 line"
    assert overview_of(a_run(), [], now=101.0).question == "Why?"


ASKED = ApprovalAsked("apr_1", "terminal", "rm -r build", "digest")


def test_a_run_that_ended_tells_who_answered_how_long_it_took_and_what_it_used() -> None:
    finished = RunFinished("completed", "So.", Usage(30, 7), at=103.5)
    facts = log(
        AttemptStarted("fake", "small"),
        UsageRecorded(Usage(10, 2), "fake", "small"),
        AttemptStarted("back", "big"),
        UsageRecorded(Usage(10, 2), "back", "big"),
        UsageRecorded(Usage(10, 3), "back", "big"),
        finished,
    )
    shown = overview_of(a_run("completed", finished=finished), facts, now=999.0)
    assert (shown.state, shown.question, shown.models) == ("completed", "Why?", ("fake/small", "back/big"))
    assert (shown.duration_s, shown.usage) == (3.5, Usage(30, 7))
    spent = (SpentTokens("fake", "small", Usage(10, 2)), SpentTokens("back", "big", Usage(20, 5)))
    assert shown.spent == spent


def test_a_live_run_counts_what_was_used_so_far_and_its_age() -> None:
    shown = overview_of(a_run(), log(UsageRecorded(Usage(10, 2), "fake", "small")), now=160.0)
    assert (shown.usage, shown.duration_s, shown.models) == (Usage(10, 2), 60.0, ("fake/small",))


def test_a_fork_counts_from_where_it_begins() -> None:
    facts = log(
        AttemptStarted("fake", "small"),
        UsageRecorded(Usage(10, 2), "fake", "small"),
        RunForked("run_0", 2),
        AttemptStarted("back", "big"),
        UsageRecorded(Usage(5, 1), "back", "big"),
    )
    shown = overview_of(a_run(), facts, now=160.0)
    assert (shown.models, shown.usage) == (("back/big",), Usage(5, 1))


def test_a_call_whose_usage_stands_in_its_end_alone_is_its_models() -> None:
    finished = RunFinished("completed", usage=Usage(3, 4))
    run = a_run("completed", NewRun("call", {"request": {"messages": []}}, "big"), finished)
    shown = overview_of(run, log(AttemptStarted("back", "big"), finished), now=0.0)
    assert shown.spent == (SpentTokens("back", "big", Usage(3, 4)),)
    assert shown.duration_s is None, "the end has no time"


@pytest.mark.parametrize(
    ("state", "orphaned", "events", "told"),
    [
        ("running", False, [], "running"),
        ("running", True, [], "orphaned"),
        ("running", False, [ASKED], "asking"),
        ("running", False, [ASKED, ApprovalAnswered("apr_1", "deny")], "running"),
        ("running", True, [ASKED], "orphaned"),
        ("pending", True, [], "pending"),
        ("pending", False, [ASKED], "asking"),
        ("pending", False, [ASKED, ApprovalAnswered("apr_1", "once")], "pending"),
        ("parked", False, [ASKED], "parked"),
    ],
)
def test_the_state_of_a_turn(state: RunState, orphaned: bool, events: Sequence[AnyEvent], told: ShownState) -> None:
    shown = overview_of(a_run(state), log(*events), now=0.0, orphaned=orphaned)
    assert shown.state == told
    assert shown.approvals == ((ASKED,) if told in ("asking", "orphaned") and events else ())
    assert shown.problem == ("it kept dying" if state == "parked" else "")


@pytest.mark.parametrize(
    ("state", "changes", "told"),
    [
        ("running", ["running", "paused"], "paused"),
        ("running", ["running", "paused", "running"], "running"),
        ("running", ["waiting"], "waiting"),
        ("pending", ["paused"], "paused"),
        ("pending", [], "scheduled"),
        ("stopped", ["running"], "cancelled"),
        ("completed", ["running"], "completed"),
    ],
)
def test_the_state_of_a_sequence_is_its_own(
    state: RunState, changes: Sequence[InstanceState], told: ShownState
) -> None:
    run = a_run(state, NewRun("sequence", {"definition": {"name": "nightly"}}))
    shown = overview_of(run, log(*map(StateChanged, changes)), now=0.0)
    assert (shown.state, shown.question) == (told, "nightly")
