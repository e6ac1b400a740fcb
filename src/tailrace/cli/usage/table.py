"""Usage as a table: names to the left, numbers to the right, the sums below. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from tailrace.app.usage.counters import By, UsageRow, total_of
from tailrace.cli.screen.fitted_table import Column, FittedTable, no_style
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.cli.screen.words import dollars

MAX_NAME = 60
UNPRICED = "*"


def usage_table(rows: Sequence[UsageRow], *, by: By | None) -> list[str]:
    """A line for each row. `by` is the one name that the rows have; None: key and model."""
    names: tuple[By, ...] = ("key", "model") if by is None else (by,)
    columns = [Column(name, style=no_style) for name in names]
    columns += [Column(title, right=True) for title in ("calls", "input", "output", "cost")]
    total = total_of(rows)
    body = [[sanitized_line(getattr(row, name), MAX_NAME) for name in names] + _numbers(row) for row in rows]
    foot = ["total", *[""] * (len(names) - 1), *_numbers(total)] if len(rows) > 1 else ()
    lines = [line.plain for line in FittedTable(columns, names[0], 1).lines(body, None, total=foot)]
    if foot:
        lines.insert(-1, "─" * cell_len(lines[0]))
    notes = [f"{UNPRICED} without {total.unpriced:,} tokens of models that have no list price"] * bool(total.unpriced)
    if total.estimated_tokens:
        notes.append(f"{total.estimated_tokens:,} of the tokens are estimated: their provider has not counted them")
    return [*lines, "", *notes] if notes else lines


def _numbers(row: UsageRow) -> list[str]:
    return [
        f"{row.calls:,}",
        f"{row.input_tokens:,}",
        f"{row.output_tokens:,}",
        dollars(row.usd) + (UNPRICED if row.unpriced else ""),
    ]
