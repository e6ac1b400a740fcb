"""What is shown of a run beside its overview: the question in one line, when it ended, which model answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.app.timeline.question import question_of
from tailrace.events import AttemptStarted, Entry
from tailrace.ports import Journal, Run
from tailrace.tools.typed import preview_line


def title_of(run: Run) -> str:
    """The question in one line."""
    return preview_line(question_of(run), 200)


def ended_at(run: Run) -> float | None:
    """The wall clock; None while it has not ended."""
    return run.finished.at or None if run.finished is not None else None


def duration_s(run: Run) -> float | None:
    """From the question to the end; None while it has not ended. Clocks may be set back: it is never negative."""
    at = ended_at(run)
    return None if at is None else round(max(0.0, at - run.created_at), 3)


def answering_model(run: Run, facts: Iterable[Entry] = ()) -> str:
    """The model that was asked last, as `provider/model`; the one that was wanted where none is on record. The `facts`
    name it where nothing was spent."""
    spent = run.finished.spent if run.finished is not None else ()
    asked = spent or [entry.event for entry in facts if isinstance(entry.event, AttemptStarted)]
    return (asked and "/".join(filter(None, (asked[-1].provider, asked[-1].model)))) or run.new.model


async def answering_models(journal: Journal, runs: Sequence[Run]) -> dict[str, str]:
    """By run. The logs are read of those that failed before anything was spent."""
    unspent = [run.id for run in runs if run.finished is not None and run.finished.error and not run.finished.spent]
    logs = dict(zip(unspent, await journal.facts_of_runs(unspent) if unspent else (), strict=True))
    return {run.id: answering_model(run, logs.get(run.id, ())) for run in runs}
