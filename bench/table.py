"""A table for a terminal: words to the left, numbers to the right."""

from __future__ import annotations

Cell = str | int | float


class Table:
    """`print` it when the rows are in. Floats get three significant digits, thousands a thin separator."""

    def __init__(self, title: str, *columns: str) -> None:
        self._title = title
        self._columns = columns
        self._rows: list[tuple[Cell, ...]] = []

    def row(self, *cells: Cell) -> None:
        if len(cells) != len(self._columns):
            raise ValueError(f"{len(cells)} cells for {len(self._columns)} columns")
        self._rows.append(cells)

    def __str__(self) -> str:
        shown = [self._columns, *(tuple(_shown(cell) for cell in row) for row in self._rows)]
        widths = [max(len(row[i]) for row in shown) for i in range(len(self._columns))]
        numeric = [all(not isinstance(row[i], str) for row in self._rows) for i in range(len(self._columns))]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            ).rstrip()
            for row in shown
        ]
        return "\n".join([self._title, lines[0], "  ".join("─" * width for width in widths), *lines[1:]])


def _shown(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:.3g}"
