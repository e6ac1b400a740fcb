"""How far each step of an instance has come: state, tries, time, tokens, cost, words. A fold of its log with times.

Pure. A step's time is the time in which it was executed: a pause and the wait before another try do not count, nor what
a process did of it before it died.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, assert_never

import msgspec

from tailrace.events import Entry, InstanceState, RunFailure, RunFinished, Snapshot
from tailrace.flows.engine.instance_events import ENDINGS
from tailrace.journal.stored.commit_times import Times, timed_stretches
from tailrace.messages import Usage
from tailrace.runs.view import RunView, changes

ProgressState = Literal["running", "retrying", "finished", "failed", "cancelled"]


class StepProgress:
    """One step. `tries` is 0 for one whose output came from the instance that this one retries. `begun`: how often the
    last of them was, the first time and after interruptions."""

    def __init__(self, block_id: str) -> None:
        self.block_id = block_id
        self.state: ProgressState = "running"
        self.tries = 0
        self.begun = 0
        self.output: Any = None
        self.error: RunFailure | None = None
        self.retry_at: float | None = None
        self._spent_s = 0.0
        self._since: float | None = None  # it is executed since
        self._timed = False

    def duration_s(self, now: float) -> float | None:
        """None where the log has no times of it."""
        if not self._timed:
            return None
        return self._spent_s + (max(0.0, now - self._since) if self._since is not None else 0.0)

    @property
    def usage(self) -> Usage:
        """Of the answer that stands, where the step asked a model."""
        try:
            return msgspec.convert(self._said("usage", {}), Usage)
        except msgspec.ValidationError:
            return Usage()

    @property
    def cost_usd(self) -> float | None:
        cost = self._said("cost_usd", None)
        return float(cost) if isinstance(cost, int | float) else None

    def _said(self, name: str, otherwise: Any) -> Any:
        return self.output.get(name, otherwise) if isinstance(self.output, dict) else otherwise

    def start(self, number: int, at: float | None) -> None:
        number = max(number, 1)
        self.begun = self.begun + 1 if number == self.tries else 1
        self.state, self.tries, self.retry_at = "running", number, None
        self._since = at
        self._timed = self._timed or at is not None

    def stop(self, at: float | None) -> None:
        """It is not executed from here on."""
        if self._since is not None and at is not None:
            self._spent_s += max(0.0, at - self._since)
        self._since = None


class InstanceProgress:
    """All steps of an instance that have begun, in the order in which they did."""

    def __init__(self) -> None:
        self.steps: dict[str, StepProgress] = {}
        self.state: InstanceState = "scheduled"
        self.usage = Usage()  # of every attempt
        self.error: RunFailure | None = None
        self.created_at = 0.0
        self.finished: RunFinished | None = None
        self._view = RunView()

    def duration_s(self, now: float) -> float:
        ended = self.finished.at if self.finished is not None and self.finished.at else now
        return max(0.0, ended - self.created_at)

    def replay(self, entries: Iterable[Entry], times: Times) -> None:
        """Entries may be left out, as the pieces of answers are."""
        for at, stretch in timed_stretches(entries, times):
            for entry in stretch:
                self.apply(entry, at)

    def apply(self, entry: Entry, at: float | None) -> None:
        """`at` is when the entry was committed, where that is known."""
        for change in self._view.apply(entry):
            self._fold(change, at)

    def _fold(self, change: changes.Change, at: float | None) -> None:
        match change:
            case changes.RunBegan(started=started):
                self.created_at = started.at
            case changes.Ended(finished=finished):
                self.finished, self.state = finished, ENDINGS[finished.status]
                self.usage, self.error = finished.usage, finished.error
                self._interrupt(finished.at or at)
                for step in self.steps.values():
                    if step.state in ("running", "retrying"):
                        step.state = "cancelled"  # with the instance
            case changes.InstanceMoved(state=state):
                self.state = state
                if state == "paused":
                    self._interrupt(at)
            case changes.Spent(usage=usage):
                self.usage += usage
            case changes.Restored(state=snapshot):
                self._restore(snapshot)
            case changes.StepMoved(block_id=block_id):
                self._move(self._step(block_id), change, at)
            case _:
                pass

    def abandon(self, times: Times) -> None:
        """Its process has died: no step is executed since the last entry, which may be one that `replay` was not given,
        such as a piece of an answer."""
        self._interrupt(times[-1][1] if times else None)

    def _step(self, block_id: str) -> StepProgress:
        return self.steps.setdefault(block_id, StepProgress(block_id))

    def _move(self, step: StepProgress, change: changes.StepMoved, at: float | None) -> None:
        if change.state == "started":
            step.start(change.number, change.at or at)
            return
        step.stop(at)
        step.state = change.state
        match change.state:
            case "finished":
                step.output, step.error = change.output, None
            case "failed" | "retrying":
                step.error, step.tries, step.retry_at = change.error, change.number, change.retry_at
            case "cancelled":
                pass
            case _:
                assert_never(change.state)

    def _interrupt(self, at: float | None) -> None:
        for step in self.steps.values():
            step.stop(at)

    def _restore(self, state: Snapshot) -> None:
        self.state = state.state or self.state
        self.usage = state.usage
        for known in state.steps:
            step = self._step(known.block_id)
            step.state, step.output, step.error = known.state, known.output, known.error
            step.tries = max(step.tries, known.number)
