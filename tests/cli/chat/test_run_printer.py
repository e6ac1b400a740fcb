"""What `tailrace tail` prints of a log: texts on stdout, all else on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.cli.chat.run_printer import RunPrinter
from tailrace.config.load import load
from tailrace.events import (
    AnyEvent,
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
    ToolCallFinished,
    ToolOutputRecorded,
)
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import NewRun
from tailrace.runs.signals import stop_failure, stop_signal


async def tail(tmp_path: Path, events: Sequence[AnyEvent], end: RunFinished) -> None:
    journal = MemoryJournal()
    run, lease = await journal.start(NewRun("agent"), "me")
    assert lease is not None
    journal.append(lease, events)
    await journal.seal(lease, end)
    printer = RunPrinter(journal, load({}, tmp_path), streamed=True, as_json=False, verbose=True)
    await printer.watch(run.id)


async def test_a_tool_is_told_with_its_progress_and_its_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    events: list[AnyEvent] = [
        MessageChunk("Look:"),
        ToolCallChunk("terminal", "seq 5"),
        ToolCallChunk("terminal", "3"),
        ToolOutputRecorded("c", "terminal", "4\n5\n"),
        ToolCallFinished("terminal", 0.1),
        MessageStop(),
        MessageChunk("Five."),
        MessageStop(final=True),
    ]
    await tail(tmp_path, events, RunFinished("completed", "Five."))
    out, err = capfd.readouterr()
    assert out == "Look:\n\nFive.\n"
    assert err.splitlines() == ["    … 3", "✓ terminal  seq 5  0.1s", "    4", "    5"]


@pytest.mark.parametrize(("by", "line"), [("", "interrupted"), ("telegram:7", "stopped by telegram:7")])
async def test_a_run_that_was_stopped_says_by_whom(
    by: str, line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    end = RunFinished("stopped", "Half", error=stop_failure(stop_signal(by=by)))
    await tail(tmp_path, [MessageChunk("Half"), MessageStop(final=True)], end)
    assert capfd.readouterr() == ("Half\n", f"{line}\n")


async def test_the_steps_of_a_sequence_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    events: list[AnyEvent] = [
        StepStarted("ask"),
        StepStarted("other"),
        LlmDelta("ask", "It "),
        LlmDelta("ask", "is"),
        LlmDelta("other", "No"),
        StepFailed("other", RunFailure("retryable", "cut"), retry_at=3.0),
        StateChanged("paused"),
        StepStarted("other", 2),
        StepFinished("other", {"n": 1}),
        StepFinished("last", {"n": 2}),
    ]
    await tail(tmp_path, events, RunFinished("completed"))
    out, err = capfd.readouterr()
    assert out == '[ask] It is\n[other] No\n{\n  "n": 2\n}\n'
    assert err.splitlines() == ["· ask", "· other", "✗ other failed: cut", "· other (try 2)", "✓ other", "✓ last"]


async def test_J122_nothing_printed_moves_the_cursor(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    events: list[AnyEvent] = [
        MessageChunk("a\x1b[2J"),
        MessageStop(final=True),
        ToolOutputRecorded("c", "t", "\x1b]52;c;x\x07"),
    ]
    await tail(tmp_path, events, RunFinished("completed", "a\x1b[2J"))
    out, err = capfd.readouterr()
    assert "\x1b" not in out + err
