"""The list of runs: what is asked takes the room that the other columns leave. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from tailrace.app.costs import dollars
from tailrace.app.timeline.run_overview import RunOverview
from tailrace.cli.screen.fitted_table import Column, FittedTable, no_style, padded
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.cli.words import STYLES, duration, tokens, when

MAX_MODEL = 26
MAX_QUESTION = 300  # characters that are looked at: no terminal is wider
MAX_PIPED = 100  # columns of a question where the output is no terminal: one long question would widen every line

QUESTION = 2


def _table(widest_model: int) -> FittedTable:
    columns = (
        Column("run", need=4),
        Column("when", need=5),
        Column("question", style=no_style),
        Column("model", need=2, widest=widest_model),
        Column("status", style=lambda state: STYLES.get(state, "")),
        Column("time", right=True, need=6),
        Column("tokens", right=True, need=3),
        Column("cost", right=True, need=1),
    )
    return FittedTable(columns, flexible="question", narrowest=18)


def cells_of(overview: RunOverview, *, name: str, cost: float | None, now: float) -> list[str]:
    """One row, in the order of the columns. `name` is how the run is named in the list."""
    question = sanitized_line(overview.question, MAX_QUESTION)
    if overview.problem and overview.state in ("failed", "parked", "incomplete"):
        question = f"{question} · {sanitized_line(overview.problem, MAX_QUESTION)}" if question else overview.problem
    return [
        name,
        when(overview.created_at, now),
        sanitized_line(question, MAX_QUESTION),
        _model(overview.models),
        overview.state,
        duration(overview.duration_s),
        tokens(overview.usage),
        dollars(cost),
    ]


def _model(models: Sequence[str]) -> str:
    if not models:
        return ""
    more = f" +{len(models) - 1}" if len(models) > 1 else ""
    return sanitized_line(models[-1], 100) + more


def table(rows: Sequence[Sequence[str]], width: int | None) -> list[Text]:
    """The header and a line for each row, none longer than `width`; None where the output is no terminal: the question
    alone is cut then, at `MAX_PIPED`."""
    if width is None:
        longest = min(max((cell_len(row[QUESTION]) for row in rows), default=0), MAX_PIPED)
        rows = [[*row[:QUESTION], padded(row[QUESTION], longest), *row[QUESTION + 1 :]] for row in rows]
    return _table(MAX_MODEL if width is None or width >= 100 else 16).lines(rows, width)
