"""Usage as a table: names to the left, numbers to the right, the sums below. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from tailrace.app.usage.counters import By, UsageRow, total_of
from tailrace.cli.screen.sanitize import sanitized_line

GAP = "  "
MAX_NAME = 60
UNPRICED = "*"


def usage_table(rows: Sequence[UsageRow], *, by: By | None) -> list[str]:
    """A line for each row. `by` is the one name that the rows have; None: key and model."""
    names: tuple[By, ...] = ("key", "model") if by is None else (by,)
    titles = [*names, "calls", "input", "output", "cost"]
    total = total_of(rows)
    body = [[sanitized_line(getattr(row, name), MAX_NAME) for name in names] + _numbers(row) for row in rows]
    foot = [["total", *[""] * (len(names) - 1), *_numbers(total)]] if len(rows) > 1 else []
    widths = [max(cell_len(line[place]) for line in (titles, *body, *foot)) for place in range(len(titles))]
    lines = [_line(line, widths, len(names)) for line in (titles, *body)]
    if foot:
        lines += ["─" * (sum(widths) + len(GAP) * (len(widths) - 1)), _line(foot[0], widths, len(names))]
    notes = [f"{UNPRICED} without {total.unpriced:,} tokens of models that have no list price"] * bool(total.unpriced)
    if total.estimated_tokens:
        notes.append(f"{total.estimated_tokens:,} of the tokens are estimated: their provider has not counted them")
    return [*lines, "", *notes] if notes else lines


def _numbers(row: UsageRow) -> list[str]:
    cost = f"${row.usd:.2f}" if row.usd >= 0.01 or not row.usd else f"${row.usd:.4f}"
    return [
        f"{row.calls:,}",
        f"{row.input_tokens:,}",
        f"{row.output_tokens:,}",
        cost + (UNPRICED if row.unpriced else ""),
    ]


def _line(cells: Sequence[str], widths: Sequence[int], names: int) -> str:
    shown = [
        set_cell_size(cell, width) if place < names else " " * (width - cell_len(cell)) + cell
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return GAP.join(shown).rstrip()
