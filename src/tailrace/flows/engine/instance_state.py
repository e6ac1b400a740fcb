"""The state of an instance, as every list and every page shows it.

The journal knows whether a run is executed; whether its instance waits or is paused is a fact in its log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.events import Entry, InstanceState, RunFinished, StateChanged
from tailrace.flows.engine.instance_events import ENDINGS
from tailrace.journal.fold import SEQUENCE
from tailrace.ports import ENDED, Journal, Run


async def instance_states(journal: Journal, runs: Iterable[Run]) -> dict[str, InstanceState]:
    """The state of each of these runs that is an instance of a sequence, by the run's id. The logs of those that had
    not ended are read, all at once. One that has ended since counts as running: its error is not in `runs` yet."""
    instances = [run for run in runs if run.new.kind == SEQUENCE]
    open_runs = [run.id for run in instances if run.state not in ENDED and run.state != "parked"]
    facts = dict(zip(open_runs, await journal.facts_of_runs(open_runs), strict=True)) if open_runs else {}
    return {run.id: instance_state(run, _last_state(facts.get(run.id, ()))) for run in instances}


def instance_state(run: Run, known: InstanceState | None, finished: RunFinished | None = None) -> InstanceState:
    """`known` is the last state in its log, `finished` the log's end: the run may have ended since it was read. The
    state that an instance ends with is recorded before its end, and counts from there on: with its error."""
    if (ending := run.finished or finished) is not None:
        return ENDINGS[ending.status]
    if run.state == "parked":
        return "paused"  # until a `resume` signal
    return "running" if known in ENDINGS.values() else known or "scheduled"


def _last_state(facts: Sequence[Entry]) -> InstanceState | None:
    states = (entry.event.state for entry in reversed(facts) if isinstance(entry.event, StateChanged))
    return next(states, None)
