"""What the screen says while no text comes: that the model thinks, reads or writes, and how often it was tried."""

from __future__ import annotations

import pytest

from cli.screen.drawn_text import Clock, Drawn, done
from tailrace.cli.screen.call_progress import CallProgress
from tailrace.cli.screen.transcript import QUIET_S
from tailrace.events import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    AttemptStarted,
    Entry,
    GatewayNotice,
    MessageChunk,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStarted,
)
from tailrace.runs.view import RunView


def test_a_spinner_while_nothing_comes_and_the_notice_on_a_stall() -> None:
    drawn = Drawn(width=100)
    drawn.transcript.waiting()
    drawn.draw()
    assert drawn.moving == []  # an answer that comes at once shows none
    drawn.clock.now += QUIET_S
    drawn.draw()
    assert drawn.moving[1].endswith(" thinking")
    drawn.clock.now += 5
    drawn.see(GatewayNotice("stalled", "⚠️ No response from provider for 240s … Reconnecting…"))
    assert drawn.settled == ["  ⚠️ No response from provider for 240s … Reconnecting…"]
    assert drawn.moving[1][4:].startswith("thinking 5 s · ⚠️ No response")
    drawn.see(MessageChunk("Here."))
    assert drawn.moving == ["", "● Here."]
    drawn.see(MessageStop(final=True), done())
    assert not drawn.transcript.spinning


def test_a_model_whose_thoughts_are_hidden_is_said_to_think_while_they_come() -> None:
    drawn = Drawn(width=100)
    drawn.transcript.waiting()
    for _ in range(30):
        drawn.clock.now += 0.1
        drawn.see(ReasoningChunk("Hm. "))
    assert drawn.moving[1].endswith(" thinking 3 s")
    drawn.see(MessageChunk("Here."))
    assert drawn.moving == ["", "● Here."]


@pytest.mark.parametrize("requester", ["", "telegram:1"])
def test_the_model_is_not_said_to_think_while_somebody_is_asked(requester: str) -> None:
    drawn = Drawn()
    drawn.transcript.waiting()
    drawn.see(ApprovalAsked("apr_1", "terminal", "rm -rf x", "digest", requester=requester))
    drawn.clock.now += 24
    drawn.draw()
    assert not any("thinking" in line for line in drawn.moving)
    drawn.see(ApprovalAnswered("apr_1", "once", "cli"))
    drawn.clock.now += 24
    drawn.draw()
    assert any("thinking 48 s" in line for line in drawn.moving)


def test_an_answer_that_stands_still_is_not_said_to_be_thought_about() -> None:
    drawn = Drawn()
    drawn.transcript.waiting()
    drawn.see(MessageChunk("Here is"))
    drawn.clock.now += QUIET_S
    drawn.draw()
    assert drawn.moving == ["", "● Here is"]
    drawn.clock.now += 3
    drawn.draw()
    assert drawn.moving[-1][4:] == "no new text for 3 s"
    drawn.see(MessageChunk(" more."))
    assert drawn.moving == ["", "● Here is more."]


def test_without_streaming_the_spinner_says_that_it_writes() -> None:
    drawn = Drawn(streamed=False)
    drawn.transcript.waiting()
    drawn.see(MessageChunk("x" * 400))
    drawn.clock.now += 12
    drawn.draw()
    assert drawn.moving[1][4:] == "writing 12 s · 100 tokens"


def test_retries_are_counted_while_they_happen_and_told_when_they_failed() -> None:
    progress = CallProgress(lambda _provider: 3, lambda _failure, provider: f"look at {provider}")
    drawn = Drawn(progress=progress, width=100)
    drawn.transcript.waiting()
    drawn.see(RunStarted("agent", at=10.0), AttemptStarted("fake", "small"), AttemptDiscarded("boom"))
    assert drawn.moving[1][4:] == "waiting · boom · try 2 of 3 follows"
    drawn.see(AttemptStarted("fake", "small"), attempt=2)
    assert drawn.moving[1][4:] == "thinking · try 2 of 3"
    drawn.see(AttemptDiscarded("boom"), AttemptStarted("other", "large"), attempt=3)
    assert drawn.moving[1][4:] == "thinking · asking other/large instead"
    failure = RunFailure("retryable", "other: boom", status=500)
    drawn.see(RunFinished("failed", error=failure, at=12.1))
    assert drawn.settled == [
        "  ✗ other/large: HTTP 500 “boom”, 3 tries in 2.1 s",
        "    look at other · /retry asks again",
    ]


def test_the_wait_that_a_provider_asks_for_counts_down() -> None:
    now = Clock()
    drawn = Drawn(progress=CallProgress(lambda _provider: 3, lambda _failure, _provider: "", wall_clock=now), width=100)
    drawn.transcript.waiting()
    drawn.see(RunStarted("agent"), AttemptStarted("fake", "small"), AttemptDiscarded("slow down", retry_at=now() + 20))
    assert drawn.moving[1][4:] == "waiting · slow down · try 2 of 3 in 20 s"
    now.now += 4.2
    drawn.draw()
    assert drawn.moving[1][4:] == "waiting · slow down · try 2 of 3 in 16 s"
    now.now += 30
    drawn.draw()
    assert drawn.moving[1][4:] == "waiting · slow down · try 2 of 3 follows"


def test_a_turn_does_not_begin_with_why_the_one_before_failed() -> None:
    progress = CallProgress(lambda _provider: 3, lambda _failure, _provider: "")
    failed = RunFinished("failed", error=RunFailure("refused", "no images"))
    view = RunView()
    for event in (RunStarted("agent"), AttemptStarted("fake", "small"), AttemptDiscarded("no images"), failed):
        for change in view.apply(Entry(1, event)):
            progress.note(change)
    for change in RunView().apply(Entry(1, RunStarted("agent"))):
        progress.note(change)
    assert progress.status == ""
