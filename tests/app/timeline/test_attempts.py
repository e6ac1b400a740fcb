"""The attempts of a timeline: how each ended and why, what it had said, and whether the next one went on from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.timeline.timed_log import ASKED, BEGAN, Timed, finished, only, timeline
from tailrace.app.costs import Costs
from tailrace.app.timeline.items import AttemptItem, FailoverItem, StallItem, TakeoverItem, TextItem
from tailrace.config.load import load
from tailrace.events import (
    AttemptDiscarded,
    AttemptStarted,
    GatewayNotice,
    LlmDelta,
    MessageChunk,
    MessageRecorded,
    RunFailure,
    RunFinished,
    UsageRecorded,
)
from tailrace.messages import Message, ToolCall, Usage, assistant


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
    assert [(a.outcome, a.reason, a.goes_on) for a in attempts if isinstance(a, AttemptItem)] == [
        ("failed", "nothing for 9 s", False),
        ("answered", "", True),
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


def test_a_failed_run_says_why_its_last_attempt_failed() -> None:
    failure = RunFailure("retryable", "the provider is gone", status=503)
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, RunFinished("failed", "", error=failure, at=BEGAN + 0.2)),
    )
    attempt = next(item for item in shown.items if isinstance(item, AttemptItem))
    assert (attempt.outcome, attempt.reason, shown.error) == ("failed", "the provider is gone", failure)


def test_what_an_attempt_cost_is_by_the_prices_of_the_config(tmp_path: Path) -> None:
    own = "providers: {home: {dialect: chat, base_url: 'http://127.0.0.1:1', prices: {own: {input: 2, output: 4}}}}"
    (tmp_path / "config.yaml").write_text(own, encoding="utf-8")
    spent = Usage(1_000_000, 500_000)
    log: list[Timed] = [(0.1, 1, AttemptStarted("home", "own")), (1.0, 1, UsageRecorded(spent, "home", "own"))]
    priced = timeline(ASKED, *log, costs=Costs(load({}, tmp_path)))
    assert (priced.cost_usd, [item.cost_usd for item in priced.items if isinstance(item, AttemptItem)]) == (4.0, [4.0])
    assert timeline(ASKED, *log).cost_usd is None, "no config has a price of it"


@pytest.mark.parametrize(
    ("pieces", "first"), [(("Because", " of tides."), 0.5), (("Because of tides.",), None), (("x" * 201, "y"), None)]
)
def test_when_a_step_that_nobody_watched_began_to_answer_is_not_known(
    pieces: tuple[str, ...], first: float | None
) -> None:
    """Its text is written when a viewer comes, or at its end."""
    log = [(1.0 + at, 1, LlmDelta("a", piece)) for at, piece in enumerate(pieces)]
    shown = timeline((0.5, 1, AttemptStarted("near", "small", block_id="a")), *log, kind="sequence")
    (attempt,) = only(shown, AttemptItem)
    (text,) = only(shown, TextItem)
    assert isinstance(attempt, AttemptItem)
    assert isinstance(text, TextItem)
    assert (attempt.first_token_s, shown.first_token_s) == (first, first and 1.0)
    assert (text.tokens_per_s is None) is (first is None)
