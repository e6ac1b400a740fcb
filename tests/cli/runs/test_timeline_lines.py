"""A timeline in the terminal: what happened, when, and nothing longer than the window."""

from __future__ import annotations

import msgspec
import pytest
from rich.cells import cell_len

from tailrace.app.timeline import Timeline, timeline_of
from tailrace.cli.runs.timeline_lines import TimelineHead, clock, timeline_lines
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    Entry,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    RunFailure,
    RunFinished,
    RunStarted,
    StepFailed,
    StepFinished,
    StepStarted,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    UsageRecorded,
)
from tailrace.messages import Message, ToolCall, Usage, assistant, user
from tailrace.ports import NewRun, Run
from tailrace.runs.signals import stop_failure, stop_signal

LONG = "\n".join(f"line {number}" for number in range(1, 21))
CALL = ToolCall("c1", "terminal", '{"command": "make"}')
EVENTS: list[tuple[float, AnyEvent]] = [
    (0.0, RunStarted("agent", at=1000.0)),
    (0.0, MessageRecorded(user("Build it, and tell me what you think of the result in a few words, please"))),
    (0.25, AttemptStarted("fake", "small")),
    (0.5, MessageChunk("I will ")),
    (3.5, MessageChunk("build.")),
    (3.5, AttemptStarted("back", "big", previous_failure="HTTP 500: boom")),
    (4.0, MessageChunk(" Now.")),
    (4.0, MessageStop()),
    (4.0, UsageRecorded(Usage(1204, 88), "back", "big")),
    (4.0, MessageRecorded(Message("assistant", (CALL,)))),
    (4.0, ApprovalAsked("a1", "terminal", "make", "d", "ada", "c1", "writes outside", "src")),
    (7.0, ApprovalAnswered("a1", "once", "ada")),
    (7.0, ToolCallChunk("terminal", "make", {"command": "make"})),
    (9.0, ToolOutputRecorded("c1", "terminal", LONG + "\n\x1b[31m[exit code 2]", ok=False)),
    (9.0, ToolCallFinished("terminal", 2.0, ok=False)),
    (75.2, MessageRecorded(assistant("It failed."))),
    (75.2, RunFinished("completed", at=1075.2, usage=Usage(1204, 88))),
]


def a_timeline(
    told: list[tuple[float, AnyEvent]], new: NewRun | None = None, *, timed: bool = True, claims: int = 1
) -> Timeline:
    entries = [Entry(seq, event) for seq, (_, event) in enumerate(told, 1)]
    times = [(seq, 1000.0 + at) for seq, (at, _) in enumerate(told, 1)] if timed else []
    run = Run("run_1", new or NewRun("agent", model="fake/small"), "completed", len(told), 1, 1000.0, claims)
    return timeline_of(run, entries, times)


def shown(timeline: Timeline, *, width: int | None = 100, full: bool = False) -> list[str]:
    lines = timeline_lines(timeline, TimelineHead("run_1", "completed"), width=width, full=full)
    return [line.plain for line in lines]


def test_a_run_under_way_says_how_long_it_has_run() -> None:
    timeline = a_timeline(EVENTS[:3])
    lines = timeline_lines(timeline, TimelineHead("run_1", "running", running_s=67.2), width=None)
    assert lines[1].plain.endswith(" · 1m 07s so far")
    assert "took" not in lines[1].plain


def test_a_turn_is_told_with_its_times() -> None:
    lines = [" ".join(line.split()) for line in shown(a_timeline(EVENTS), width=None)]
    wanted = [
        "2 +0.00 question Build it, and tell me what you think of the result in a few words, please",
        "3 +0.25 call 1 fake/small",
        "3 +0.50 first token after 0.25s",
        "5 +0.50 stall fake: nothing came for 3.0s, then the stream went on",
        "6 +3.50 failed call 1: HTTP 500: boom",
        "6 +3.50 call 1 try 2 back/big goes on with the text",
        "6 +3.50 failover fake/small → back/big",
        "6 +4.00 first token after 0.50s",
        "10 +4.00 tokens 1,204 in, 88 out",
        "11 +4.00 approval? make in src",
        "12 +7.00 approved once by ada after 3.0s",
        "15 +7.00 terminal make ✗ exit 2 · 2.0s",
        "│ line 1",
        "┊ 15 more lines, all with --full",
        "│ [exit code 2]",
        "17 +1:15.2 completed after 1m 15s · 1,204 in, 88 out",
    ]
    missing = [line for line in wanted if line not in lines]
    assert not missing, "\n".join(lines)
    times = [line.split()[1] for line in lines if line[:1].isdigit()]
    assert times == sorted(times, key=lambda text: (":" in text, text)), "in the order of time"


@pytest.mark.parametrize("width", [40, 60, 76, 100, 200])
@pytest.mark.parametrize("full", [False, True])
def test_no_line_is_longer_than_the_window(width: int, full: bool) -> None:
    lines = shown(a_timeline(EVENTS), width=width, full=full)
    assert max(map(cell_len, lines)) <= width
    assert ("line 10" in "\n".join(lines)) is full
    assert "\x1b" not in "".join(lines)  # J122


def test_full_has_arguments_and_outputs_whole() -> None:
    text = "\n".join(shown(a_timeline(EVENTS), full=True))
    assert "│ command: make" in text
    assert "more lines" not in text


def test_a_log_without_times_is_told_in_its_order() -> None:
    lines = shown(a_timeline(EVENTS[:8], timed=False))
    assert ["question" in lines[3], "call 1" in lines[4]] == [True, True]


def test_a_sequence_shows_its_steps() -> None:
    told: list[tuple[float, AnyEvent]] = [
        (0.0, RunStarted("sequence", at=1000.0)),
        (0.1, StepStarted("ask", at=1000.1)),
        (1.1, StepFinished("ask", {"message": {"content": "It is 42."}})),
        (1.1, StepStarted("send", at=1001.1)),
        (2.0, StepFailed("send", RunFailure("permanent", "no route"))),
        (2.0, RunFinished("failed", error=RunFailure("permanent", "no route"), at=1002.0)),
    ]
    new = NewRun("sequence", {"definition": {"name": "nightly"}})
    text = "\n".join(" ".join(line.split()) for line in shown(a_timeline(told, new)))
    for line in (
        "+0.10 step ask",
        "+1.10 finished ask ✓ 1.0s",
        "│ It is 42.",
        "+2.00 failed send ✗ 0.9s",
        "│ no route",
    ):
        assert line in text


def test_a_run_that_was_stopped_says_by_whom() -> None:
    end = RunFinished("stopped", error=stop_failure(stop_signal(by="telegram:7", newer=True)), at=1001.0)
    told: list[tuple[float, AnyEvent]] = [(0.0, RunStarted("agent", at=1000.0)), (1.0, end)]
    assert shown(a_timeline(told))[-1].endswith("│ interrupted by a newer message from telegram:7")


def test_an_attempt_that_ended_with_its_process_says_so() -> None:
    told: list[tuple[float, AnyEvent]] = [
        (0.0, RunStarted("agent", at=1000.0)),
        (0.1, AttemptStarted("near", "small")),
        (0.2, MessageChunk("Beca")),
        (7.0, AttemptStarted("near", "small")),
        (7.1, MessageRecorded(assistant("Because"), "end")),
        (7.1, RunFinished("completed", at=1007.1)),
    ]
    [line] = [line for line in shown(a_timeline(told, claims=2)) if "interrupted" in line]
    assert line.endswith("its process ended before it did")


def test_clocks_as_people_read_them() -> None:
    assert [clock(at) for at in (None, 0.0, 0.314, 59.99, 65.2, 3_723.4)] == [
        *("", "+0.00", "+0.31", "+59.99", "+1:05.2", "+1:02:03")
    ]


def test_a_timeline_is_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(a_timeline(EVENTS)))["items"][0]["kind"] == "question"
