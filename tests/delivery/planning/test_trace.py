"""The planner's trace: what goes in and what is due, without the texts and without what a tool was given."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from proof.memory_platform import Fault

from delivery.planning.played_plans import Stage, answer, numbered
from tailrace.delivery.planning import planner
from tailrace.delivery.port import AnyAction, Refused, Send
from tailrace.events import (
    AnyEvent,
    ApprovalAsked,
    Commentary,
    MessageChunk,
    MessageStop,
    RunFinished,
    RunStarted,
    ToolCallChunk,
)

SECRET = "sk-" + 40 * "7"
CONFIRMED = "Delivered(key=t0.0, state=confirmed, message_id=m1, number=1, final=True)"


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def traced() -> Iterator[list[str]]:
    handler, level = _Lines(), planner.log.level
    planner.log.addHandler(handler)
    planner.log.setLevel(logging.DEBUG)
    yield handler.lines
    planner.log.removeHandler(handler)
    planner.log.setLevel(level)


def test_each_fact_reply_and_action_is_one_line(traced: list[str]) -> None:
    stage = Stage()
    stage.feed(numbered(answer("Water leaves", " the mill.")))
    stage.finish()
    assert traced == [
        "d1 <- 1 RunStarted(kind=agent)",
        "d1 <- 2 MessageChunk()",
        "d1 <- 3 MessageChunk()",
        "d1 <- 4 MessageStop(final=True)",
        "d1 <- 5 RunFinished(status=completed)",
        "d1 -> Send(key=d1.t0.0.0, markup=True, final=True)",
        f"d1 <- Sent(message_id=m1, pause_s=0.0), recorded: {CONFIRMED}",
    ]


def test_a_trace_has_no_text(traced: list[str]) -> None:
    def refuse(action: AnyAction) -> Fault:
        return Refused(f"no rights: https://example.org/bot{SECRET}") if isinstance(action, Send) else None

    stage = Stage(fault=refuse)
    events: list[AnyEvent] = [
        RunStarted("agent"),
        Commentary(f"I look for the key, it is {SECRET}"),
        ToolCallChunk("terminal", f"curl -H {SECRET}", args={"command": f"curl -H {SECRET}"}),
        ApprovalAsked("apr_1", "terminal", f"curl -H {SECRET}", "digest"),
        *(MessageChunk(character) for character in SECRET),
        MessageStop(final=True),
        RunFinished("completed", SECRET),
    ]
    stage.stream(events)
    assert any("Refused" in line for line in traced)
    assert not any(SECRET[:4] in line for line in traced)
    assert not any("curl" in line or "example.org" in line for line in traced)
    assert not any("'s'" in line for line in traced), "pieces of a text add up to the text"


@pytest.mark.usefixtures("traced")
def test_without_debug_nothing_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(_value: object) -> str:
        raise AssertionError("described although the trace is off")

    monkeypatch.setattr(planner, "traced", describe)
    planner.log.setLevel(logging.INFO)
    stage = Stage()
    stage.stream(answer("Yes."))
    assert stage.chat.texts == ("Yes.",)
