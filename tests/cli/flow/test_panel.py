"""The live panel and the table of steps: what they show, that they fit, and that they leave nothing behind."""

from __future__ import annotations

import io
import re

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tailrace.cli.flow.panel import LivePanel, panel_lines
from tailrace.cli.flow.rows import MAX_ROWS, summary_table
from tailrace.cli.screen.words import output_text
from tailrace.events import (
    AnyEvent,
    Entry,
    LlmDelta,
    RunFailure,
    RunFinished,
    RunStarted,
    StateChanged,
    StepFailed,
    StepFinished,
    StepStarted,
)
from tailrace.flows.engine.step_progress import InstanceProgress
from tailrace.messages import Usage

ID = "ins_" + "0" * 24
ANSWER = {"message": {"content": "Hello"}, "usage": {"input_tokens": 5, "output_tokens": 2}, "cost_usd": 0.5}


def progress_of(*events: AnyEvent) -> InstanceProgress:
    progress = InstanceProgress()
    for seq, event in enumerate([RunStarted("sequence", at=100), StateChanged("running"), *events], 1):
        progress.apply(Entry(seq, event), 104.0)
    return progress


def several() -> InstanceProgress:
    return progress_of(
        StepStarted("outline", 1, 100),
        StepFinished("outline", ANSWER),
        StepStarted("each[0].card", 1, 104),
        StepStarted("each[1].card", 1, 104),
        LlmDelta("each[0].card", "The wheel turns,\nand the water goes"),
        StepFailed("each[1].card", RunFailure("retryable", "cut\x1b[2J off"), 1, retry_at=108),
    )


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def panel(progress: InstanceProgress, width: int = 78, height: int = 20, now: float = 106.0) -> list[str]:
    return plain(panel_lines(progress, "postcards", ID, now=now, width=width, height=height))


def test_each_step_has_a_row_with_its_mark_time_tokens_and_last_words() -> None:
    assert panel(several()) == [
        f"postcards  {ID}" + " " * 14 + "  running · 6.0s · 1 done",
        "✓ outline          4.0s      5/2",
        "⠋ each[0].card     2.0s       ~8  The wheel turns, and the water goes",
        "↻ each[1].card     0.0s           try 2 in 2.0s: cut off",
    ]


def test_while_it_is_paused_nothing_turns() -> None:
    progress = progress_of(StepStarted("a", 1, 102), StateChanged("paused"))
    assert panel(progress)[1:] == panel(progress, now=500.3)[1:] == ["‖ a        2.0s"]
    assert "paused · 6.0s" in panel(progress)[0]


def test_where_one_step_runs_alone_its_words_stand_below() -> None:
    progress = progress_of(StepStarted("a", 1, 104), LlmDelta("a", "one\n" * 9 + "The end of it is near, it seems."))
    assert panel(progress, width=30)[1:] == [
        "⠋ a        2.0s      ~17",
        *["  │ one"] * 4,
        "  │ The end of it is near, it",
        "  │ seems.",
    ]


def test_many_rows_are_folded_to_what_fits_and_what_runs_stays() -> None:
    names = [f"each[{n}].card" for n in range(100)]
    events: list[AnyEvent] = [StepStarted(name, 1, 104) for name in names]
    events += [StepFinished(name, ANSWER) for name in names[:90]]
    events += [StepFailed(names[95], RunFailure("permanent", "no key"))]
    lines = panel(progress_of(*events), height=14)
    assert len(lines) == 14
    assert lines[1] == "… 88 more: 88 finished"
    assert [line.split()[1] for line in lines[2:]] == names[88:]
    assert "no key" in lines[9]
    few = panel(progress_of(*events), height=6)
    assert (len(few), few[1]) == (6, "… 96 more: 90 finished, 5 running, 1 failed")


@given(
    width=st.integers(20, 200),
    height=st.integers(3, 30),
    names=st.lists(st.text(min_size=1, max_size=60), max_size=40, unique=True),
    words=st.text(max_size=300),
)
def test_no_panel_is_larger_than_the_terminal(width: int, height: int, names: list[str], words: str) -> None:
    events: list[AnyEvent] = []
    for name in names:
        events += [StepStarted(name, 1, 104), LlmDelta(name, words)]
    lines = panel_lines(progress_of(*events), words or "x", ID, now=106, width=width, height=height)
    assert 1 <= len(lines) <= height
    for line in lines:
        assert cell_len(line.plain) <= width
        assert "\x1b" not in line.plain
        assert "\n" not in line.plain


def test_a_panel_is_redrawn_in_place_and_what_stands_above_it_stays() -> None:
    screen = pyte.Screen(60, 12)
    stream = pyte.Stream(screen)
    file = io.StringIO()
    drawn = LivePanel(file, Console(file=file, force_terminal=True, width=60, height=12, highlight=False))

    def shown() -> list[str]:
        stream.feed(file.getvalue().replace("\n", "\r\n"))
        file.seek(0)
        file.truncate()
        return [line.rstrip() for line in screen.display if line.strip()]

    stream.feed("$ tailrace flow run x\r\n")
    drawn.draw([Text("head"), Text("⠋ a"), Text("⠋ b")])
    assert shown()[1:] == ["head", "⠋ a", "⠋ b"]
    drawn.draw([Text("head"), Text("⠙ b")], above="the answer of a\n")
    assert shown()[1:] == ["the answer of a", "head", "⠙ b"]
    drawn.close()
    assert shown() == ["$ tailrace flow run x", "the answer of a"]
    assert not screen.cursor.hidden


def test_the_table_has_a_line_for_each_step_and_one_for_all() -> None:
    progress = several()
    progress.apply(Entry(99, RunFinished("failed", "", Usage(7, 3), RunFailure("permanent", "cut"), 110.0)), 110.0)
    assert plain(summary_table(progress, now=200, cost=0.5, width=None)) == [
        "step          state      tries  time  tokens   cost",
        "outline       finished       1  4.0s     5/2  $0.50",
        "each[0].card  cancelled      1  6.0s",
        "each[1].card  cancelled      1  0.0s",
        "total         failed             10s     7/3  $0.50",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_the_table_fits_the_terminal(width: int) -> None:
    progress = progress_of(StepStarted("a" * 90, 1, 100), StepFinished("a" * 90, ANSWER), StepStarted("b", 1, 100))
    lines = plain(summary_table(progress, now=106, cost=0.5, width=width))
    assert all(cell_len(line) <= width for line in lines)
    assert re.match(r"aaa\w*…? +finished", lines[1])


def test_the_iterations_of_a_long_loop_share_a_line() -> None:
    names = [f"each[{n}].card" for n in range(MAX_ROWS + 1)]
    events: list[AnyEvent] = [StepStarted(name, 1, 100) for name in names]
    events += [StepFinished(name, ANSWER) for name in names[1:]]
    lines = plain(summary_table(progress_of(*events), now=106, cost=None, width=None))
    assert lines[1].split() == [
        "each.card",
        "×41",
        "1",
        "running,",
        "40",
        "finished",
        "41",
        "2m",
        "46s",
        "200/80",
        "$20.00",
    ]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (ANSWER, "Hello"),
        ({"run_id": "run_1", "text": "Done.", "usage": {}}, "Done."),
        ("plain", "plain"),
        ({"n": 1}, '{\n  "n": 1\n}'),
        (None, "null"),
    ],
)
def test_outputs_as_people_read_them(output: object, text: str) -> None:
    assert output_text(output) == text
