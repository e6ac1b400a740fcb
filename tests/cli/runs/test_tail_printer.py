"""What `tailrace tail` prints of a log."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.cli.runs.tail_printer import TailPrinter
from tailrace.events import (
    AnyEvent,
    Entry,
    GatewayNotice,
    LlmDelta,
    MessageChunk,
    MessageStop,
    RunFailure,
    RunFinished,
    StateChanged,
    StepFailed,
    StepFinished,
    StepStarted,
    ToolCallChunk,
    ToolOutputRecorded,
)
from tailrace.runs.signals import stop_failure, stop_signal

TOOL: list[AnyEvent] = [
    MessageChunk("Look:"),
    ToolCallChunk("terminal", "seq 5"),
    GatewayNotice("tool_progress", "3", {"tool_name": "terminal"}),
    GatewayNotice("tool_progress", "5", {"tool_name": "terminal"}),
    ToolOutputRecorded("c", "terminal", "1\n2\n3\n4\n5\n"),
    MessageChunk("Five."),
    MessageStop(final=True),
]


def printed(events: Sequence[AnyEvent], *, live_after: int) -> str:
    printer = TailPrinter(live_after)
    return "".join(printer.text_of(Entry(seq, event)) for seq, event in enumerate(events, 1))


def test_a_tool_that_ended_is_told_whole() -> None:
    lines = printed(TOOL, live_after=99).splitlines()
    assert lines == ["Look:", "· terminal seq 5", "  │ 1", "  │ 2", "  │ 3", "  │ 4", "  │ 5", "Five."]


def test_a_tool_under_way_shows_its_progress_and_not_its_output_again() -> None:
    assert printed(TOOL, live_after=0).splitlines() == ["Look:", "· terminal seq 5", "  │ 3", "  │ 5", "Five."]


def test_a_tool_without_progress_shows_its_output_once_it_ended() -> None:
    events: list[AnyEvent] = [ToolCallChunk("read_file", "a"), ToolOutputRecorded("c", "read_file", "no", ok=False)]
    assert printed(events, live_after=0) == "· read_file a\n  │ no\n  ✗ read_file failed\n"


@pytest.mark.parametrize(("by", "line"), [("", "interrupted"), ("telegram:7", "stopped by telegram:7")])
def test_a_run_that_was_stopped_says_by_whom(by: str, line: str) -> None:
    end = RunFinished("stopped", "Half", error=stop_failure(stop_signal(by=by)))
    assert printed([MessageChunk("Half"), MessageStop(final=True), end], live_after=0) == f"Half\n[stopped] {line}\n"


def test_the_steps_of_a_sequence_are_told() -> None:
    events: list[AnyEvent] = [
        StepStarted("ask"),
        StepStarted("other"),
        LlmDelta("ask", "It "),
        LlmDelta("ask", "is"),
        LlmDelta("other", "No"),
        StepFailed("other", RunFailure("retryable", "cut"), retry_at=3.0),
        StateChanged("paused"),
        StepFinished("ask", {"message": {"content": "It is"}}),
        StepStarted("other", 2),
        StepFinished("other", {"n": 1}),
    ]
    assert printed(events, live_after=99).splitlines() == [
        *("· ask", "· other", "[ask] It is", "[other] No", "✗ other failed, trying again: cut", "… paused"),
        *("✓ ask", "· other (try 2)", "✓ other", "  │ {", '  │   "n": 1', "  │ }"),
    ]


def test_J122_nothing_printed_moves_the_cursor() -> None:
    assert "\x1b" not in printed(
        [MessageChunk("a\x1b[2J"), ToolOutputRecorded("c", "t", "\x1b]52;c;x\x07")], live_after=9
    )
