"""The table of steps: what it shows, and that it fits."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len
from rich.text import Text

from tailrace.cli.flow.watch import MAX_ROWS, summary_table
from tailrace.cli.words import output_text
from tailrace.events import (
    AnyEvent,
    Entry,
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
        StepFailed("each[1].card", RunFailure("retryable", "cut\x1b[2J off"), 1, retry_at=108),
    )


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


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
