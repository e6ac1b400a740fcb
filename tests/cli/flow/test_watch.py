"""What `tailrace flow run` and `resume` show of an instance that waits for a signal, or whose process died."""

from __future__ import annotations

import re
import sys

import pytest

from flows.stages import step
from tailrace.cli.flow.watch import PlainLines, drawn_text
from tailrace.cli.words import output_text
from tailrace.events import AnyEvent, Entry, RunFailure, RunStarted, StateChanged, StepFailed, StepFinished, StepStarted
from tailrace.flows.definition.public_ids import public_id
from tailrace.flows.engine.step_progress import InstanceProgress
from tailrace.journal.fold import SEQUENCE
from tailrace.ports import Batch, NewRun, Run
from tailrace.system.own_program import typed

RUN = Run(
    f"run_{'0' * 24}",
    NewRun(
        SEQUENCE, {"definition": {"name": "report", "blocks": [step("a"), step("w", {"signal": "go"}, "wait_signal")]}}
    ),
    "running",
    last_seq=6,
    first_seq=1,
    created_at=0.0,
    claims=1,
)
WAITING: list[AnyEvent] = [
    RunStarted(SEQUENCE, at=100),
    StateChanged("running"),
    StepStarted("a", 1, 100),
    StepFinished("a", "Three things."),
    StepStarted("w", 1, 101),
    StateChanged("waiting"),
]
MARKDOWN = "## Mills\n\n- **one**\n- two"
JSON = '{"a": "**b**"}'


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ({"message": {"content": MARKDOWN}}, "  Mills\n\n   • one\n   • two\n"),
        ({"message": {"content": JSON}}, JSON),
        ("**as it is**", "**as it is**"),
    ],
)
def test_an_answer_is_drawn_as_the_chat_draws_it(output: object, shown: str) -> None:
    assert drawn_text(output_text(output), output) == shown


WORDS = f"… waiting for {typed(f'flow signal {public_id(RUN)} go')}"


def told(events: list[AnyEvent]) -> tuple[Batch, InstanceProgress]:
    """A batch, and how far the instance has come with it."""
    batch, progress = Batch(Entry(seq, event) for seq, event in enumerate(events, 1)), InstanceProgress()
    for entry in batch:
        progress.apply(entry, 104.0)
    return batch, progress


def test_what_is_waited_for_stands_below_the_outputs_before_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    for stream in (sys.stdout, sys.stderr):  # the same terminal
        monkeypatch.setattr(stream, "isatty", lambda: True)
        monkeypatch.setattr(stream, "write", written.append)
    PlainLines(RUN).show(*told(WAITING))
    shown = "".join(written)
    assert shown.index("Three things.") < shown.index(WORDS)
    assert capsys.readouterr().out == ""


def test_a_wait_that_is_over_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    PlainLines(RUN).show(*told(WAITING))
    assert WORDS in re.sub(r"\s+", " ", capsys.readouterr().err)
    PlainLines(RUN).show(*told([*WAITING, StateChanged("running"), StepFinished("w", {"payload": {}})]))
    assert "waiting" not in capsys.readouterr().err


def test_a_sleep_has_no_line_of_a_wait(capsys: pytest.CaptureFixture[str]) -> None:
    sleeping: list[AnyEvent] = [*WAITING[:4], StepStarted("z", 1, 101), StateChanged("waiting")]
    PlainLines(RUN).show(*told(sleeping))
    assert capsys.readouterr().err.splitlines()[1:] == ["· a", "✓ a 4.0 s", "· z"]


def test_each_try_and_a_pause_have_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    failed = RunFailure("model", "gone")
    again = StepFailed("a", failed, 1, 105.0)
    events: list[AnyEvent] = [*WAITING[:3], again, StepStarted("a", 2, 105), StateChanged("paused")]
    PlainLines(RUN).show(*told(events))
    lines = ["· a", "✗ a failed, trying again: gone", "· a (try 2)", "… paused"]
    assert capsys.readouterr().err.splitlines()[1:] == lines
