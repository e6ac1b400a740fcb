"""What the integration tells of a run's log, however the log is cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from custom_components.tailrace.log_view import PASSED_OVER, READ, Ask, Ended, LogView, Say, StartOver, Told
from hypothesis import given
from hypothesis import strategies as st

from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Entry,
    GatewayNotice,
    MessageChunk,
    MessageStop,
    RunFailure,
    RunFinished,
    RunStarted,
    ToolCallChunk,
    ToolCallFinished,
    entry_to_json,
    event_type,
)
from tailrace.journal.fold import fold

ASKED = ApprovalAsked("a1", "terminal", "rm -rf build", "digest", "house", directory="/srv")
EVENTS: list[tuple[int, AnyEvent]] = [
    (0, RunStarted("turn")),
    (1, AttemptStarted("fake", "any")),
    (1, MessageChunk("Let me")),
    (1, MessageChunk(" look.")),
    (1, MessageStop()),
    (1, ToolCallChunk("terminal")),
    (1, ASKED),
    (1, ApprovalAnswered("a1", "once")),
    (1, ToolCallFinished("terminal")),
    (1, Commentary("Whole.")),
    (2, MessageChunk("Wro")),
    (2, MessageChunk("ng")),
    (2, GatewayNotice("stall")),
    (2, AttemptDiscarded("cut")),
    (3, MessageChunk("There is")),
    (3, MessageChunk(" nothing.")),
    (3, MessageStop(final=True)),
    (3, RunFinished("completed", "There is nothing.")),
]
WHOLE = "Let me look.\n\nWhole.\n\nThere is nothing."


def entries_of(events: Sequence[tuple[int, AnyEvent]]) -> list[Entry]:
    return [Entry(seq, event, attempt) for seq, (attempt, event) in enumerate(events, 1)]


def decoded(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [json.loads(entry_to_json(entry)) for entry in entries]


LOG = decoded(entries_of(EVENTS))


def heard(told: Sequence[Told]) -> str:
    """What a listener has of the answer in the end."""
    text = ""
    for each in told:
        if isinstance(each, StartOver):
            text = each.text
        elif isinstance(each, Say):
            text += each.text
    return text


def test_every_event_is_read_or_passed_over_on_purpose() -> None:
    """A new event of the server fails here until somebody decides what is told of it."""
    assert not READ & PASSED_OVER
    assert {str(each.__struct_config__.tag) for each in get_args(AnyEvent)} == READ | PASSED_OVER


def test_a_tool_of_another_server_works_in_no_directory() -> None:
    asked = {
        "seq": 1,
        "type": "approval_asked",
        "approval_id": "a1",
        "tool_name": "home__HassTurnOn",
        "command": 'home__HassTurnOn {"name":"lamp"}',
        "directory": "/srv",
    }
    assert LogView().feed([asked]) == [Ask("a1", "home__HassTurnOn", 'home__HassTurnOn {"name":"lamp"}', "", 1)]


def test_a_command_line_that_begins_with_the_name_of_its_tool_is_asked_about_with_its_directory() -> None:
    asked = {"seq": 1, "type": "approval_asked", "approval_id": "a1", "tool_name": "terminal", "directory": "/srv"}
    asked["command"] = "terminal --clean"
    assert LogView().feed([asked]) == [Ask("a1", "terminal", "terminal --clean", "/srv", 1)]


def test_a_log_is_told() -> None:
    assert LogView().feed(LOG) == [
        Say("Let me"),
        Say(" look."),
        Ask("a1", "terminal", "rm -rf build", "/srv", 7),
        Say("\n\nWhole."),
        Say("\n\nWro"),
        Say("ng"),
        StartOver("Let me look.\n\nWhole."),
        Say("\n\nThere is"),
        Say(" nothing."),
        Ended("completed"),
    ]
    assert heard(LogView().feed(LOG)) == WHOLE


@given(cuts=st.lists(st.integers(0, len(LOG))), again=st.integers(0, len(LOG)))
def test_any_cut_tells_the_same_and_a_repeated_entry_adds_nothing(cuts: list[int], again: int) -> None:
    view, told = LogView(), list[Told]()
    edges = sorted({0, len(LOG), *cuts})
    for start, end in itertools.pairwise(edges):
        told += view.feed(LOG[max(0, start - again) : end])
    assert told == LogView().feed(LOG)
    assert view.text() == WHOLE


@given(at=st.integers(1, len(LOG)), shown=st.integers(0, len(LOG)))
def test_a_snapshot_in_place_of_entries_ends_in_the_same_text(at: int, shown: int) -> None:
    """Whatever was told before it (`shown` entries), and wherever it stands."""
    view = LogView()
    shown = min(shown, at)
    told = view.feed(LOG[:shown])
    entries = entries_of(EVENTS)
    snapshot = Entry(at, fold(entries[:at]).snapshot(), entries[at - 1].attempt)
    told += view.feed([*decoded([snapshot]), *LOG[at:]])
    assert heard(told) == view.text() == WHOLE
    assert told[-1] == Ended("completed")
    assert len([each for each in told if isinstance(each, Ask)]) == (shown >= 7 or at <= 7)


def test_a_view_that_goes_on_after_a_question_tells_the_rest_alone() -> None:
    assert heard(LogView(7).feed(LOG)) == "Whole.\n\nThere is nothing."


def test_an_answer_without_chunks_is_told_from_the_end() -> None:
    log = decoded(entries_of([(0, RunStarted("turn")), (0, RunFinished("completed", "All."))]))
    assert LogView().feed(log) == [Say("All."), Ended("completed")]
    assert LogView(1).feed(log) == [Ended("completed")]


def test_a_failure_is_told_in_words() -> None:
    failed = RunFinished("failed", error=RunFailure("rejected", "no such model"))
    assert LogView().feed(decoded(entries_of([(0, failed)]))) == [Ended("failed", "no such model")]


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (RunFailure("permanent", "Incorrect API key", status=401), "advice_owner"),
        (RunFailure("permanent", "no credit", status=402), "advice_owner"),
        (RunFailure("insufficient_quota", "You exceeded your quota", status=429), "advice_owner"),
        (RunFailure("model_not_found", "no such model", status=404), "advice_owner"),
        (RunFailure("retryable", "slow down", status=429), "advice_later"),
        (RunFailure("retryable", "overloaded", status=529), "advice_later"),
        (RunFailure("cannot_connect", "cannot connect to 127.0.0.1:9"), "advice_later"),
        (RunFailure("context_length_exceeded", "too many", status=400), "advice_anew"),
        (RunFailure("permanent", "prompt is too long: 210000 tokens > 200000 maximum", status=400), "advice_anew"),
        (RunFailure("permanent", "Request Entity Too Large", status=413), "advice_anew"),
        (RunFailure("permanent", "`max_tokens` must be less than the `context_window`", status=400), ""),
        (RunFailure("permanent", "max_output_tokens exceeds the context window", status=400), ""),
        (RunFailure("permanent", "context length: reduce the messages or max_tokens", status=400), "advice_anew"),
        (RunFailure("context_length_exceeded", "too many, lower max_tokens", status=400), "advice_anew"),
        (RunFailure("permanent", "bad field", status=400), ""),
        (RunFailure("internal", "KeyError: 'x'"), ""),
    ],
)
def test_a_failure_has_the_sentence_that_says_what_to_do(failure: RunFailure, advice: str) -> None:
    [ended] = LogView().feed(decoded(entries_of([(0, RunFinished("failed", error=failure))])))
    assert ended == Ended("failed", failure.message, advice)


def test_a_long_answer_costs_the_same_per_chunk() -> None:
    """No chunk looks at the text before it: the pieces stay apart until somebody asks for the whole."""
    chunks = decoded(entries_of([(1, MessageChunk("x" * 10))] * 2_000))
    view = LogView()
    assert view.feed(chunks) == [Say("x" * 10)] * 2_000
    [text] = view._texts
    assert [len(pieces) for _, pieces in text.runs] == [2_000]


@pytest.mark.parametrize("event", [event for _, event in EVENTS], ids=event_type)
def test_the_names_are_those_of_the_wire(event: AnyEvent) -> None:
    assert event_type(event) in READ | PASSED_OVER
