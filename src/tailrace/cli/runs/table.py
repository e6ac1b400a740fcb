"""The list of runs as a table that fits the terminal: what is asked takes the room that the other columns leave.

Pure: rows in, lines out. Columns that do not fit are left out, the least needed first; those that are empty in every
row are left out too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from tailrace.cli.runs.words import STYLES, dollars, duration, tokens, when
from tailrace.cli.screen.columns import padded
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.runs.run_overview import RunOverview

GAP = 2  # columns between two cells
MIN_QUESTION = 18
MAX_MODEL = 26
MAX_QUESTION = 300  # characters that are looked at: no terminal is wider
MAX_PIPED = 100  # columns of a question where the output is no terminal: one long question would widen every line


class Column(NamedTuple):
    """`need`: the columns with the lowest are left out first; those of 0 stay."""

    title: str
    right: bool = False
    need: int = 0


COLUMNS = (
    Column("run", need=4),
    Column("when", need=5),
    Column("question"),
    Column("model", need=2),
    Column("status"),
    Column("time", right=True, need=6),
    Column("tokens", right=True, need=3),
    Column("cost", right=True, need=1),
)
QUESTION = 2


def cells_of(overview: RunOverview, *, name: str, cost: float | None, now: float) -> list[str]:
    """One row, in the order of `COLUMNS`. `name` is how the run is named in the list."""
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
    used = [place for place, _ in enumerate(COLUMNS) if place == QUESTION or any(row[place] for row in rows)]
    widths = {
        place: max(cell_len(COLUMNS[place].title), *(cell_len(row[place]) for row in rows)) if rows else 0
        for place in used
    }
    if width is None:
        widths[QUESTION] = min(widths[QUESTION], MAX_PIPED)
    else:
        _fit(widths, width)
    titles = [column.title for column in COLUMNS]
    return [_line(titles, widths, header=True), *(_line(row, widths) for row in rows)]


def _fit(widths: dict[int, int], width: int) -> None:
    """Leaves columns out until the question has room, then gives it what is left."""
    model = next(place for place, column in enumerate(COLUMNS) if column.title == "model")
    if model in widths:
        widths[model] = min(widths[model], MAX_MODEL if width >= 100 else 16)
    wanted = min(widths[QUESTION], MIN_QUESTION)

    def room() -> int:
        others = sum(size for place, size in widths.items() if place != QUESTION)
        return width - others - GAP * (len(widths) - 1)

    for place in sorted((each for each in widths if COLUMNS[each].need), key=lambda each: COLUMNS[each].need):
        if room() >= wanted:
            break
        del widths[place]
    widths[QUESTION] = max(1, min(widths[QUESTION], room()))


def _line(cells: Sequence[str], widths: Mapping[int, int], *, header: bool = False) -> Text:
    line = Text(no_wrap=True, end="")
    for number, (place, size) in enumerate(widths.items()):
        cell = Text(padded(cells[place], size, right=COLUMNS[place].right), style=_style(place, cells[place], header))
        line.append(" " * GAP if number else "").append_text(cell)
    line.rstrip()
    return line


def _style(place: int, cell: str, header: bool) -> str:
    if header:
        return "bold"
    title = COLUMNS[place].title
    return STYLES.get(cell, "") if title == "status" else "" if title == "question" else "dim"


def plain(lines: Iterable[Text]) -> str:
    return "".join(f"{line.plain}\n" for line in lines)
