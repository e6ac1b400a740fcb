"""What is shown of a run beside its overview: the question in one line, when it ended, which model answered. Pure."""

from __future__ import annotations

from tailrace.app.timeline.question import question_of
from tailrace.ports import Run
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


def answering_model(run: Run) -> str:
    """The model that was asked last, as `provider/model`; the one that was wanted where none is on record."""
    spent = run.finished.spent if run.finished is not None else ()
    if not spent or not spent[-1].model:
        return run.new.model
    last = spent[-1]
    return f"{last.provider}/{last.model}" if last.provider else last.model
