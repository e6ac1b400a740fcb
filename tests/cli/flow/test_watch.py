"""What `tailrace flow run` and `resume` show of an instance that waits for a signal."""

from __future__ import annotations

import re
import sys

import pytest

from flows.stages import step
from tailrace.cli.flow.watch import PanelView
from tailrace.events import AnyEvent, Entry, RunStarted, StateChanged, StepFinished, StepStarted
from tailrace.flows.engine.step_progress import InstanceProgress
from tailrace.journal.fold import SEQUENCE
from tailrace.ports import Batch, NewRun, Run
from tailrace.runs.public_ids import public_id
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
    view = PanelView(RUN)
    view.show(*told(WAITING))
    shown = "".join(written)
    assert shown.index("Three things.") < shown.index(WORDS)
    assert capsys.readouterr().out == ""


def test_a_wait_that_is_over_is_not_told_beside_a_panel(capsys: pytest.CaptureFixture[str]) -> None:
    PanelView(RUN).show(*told(WAITING))
    assert WORDS in re.sub(r"\s+", " ", capsys.readouterr().err)
    PanelView(RUN).show(*told([*WAITING, StateChanged("running"), StepFinished("w", {"payload": {}})]))
    assert "waiting" not in capsys.readouterr().err
