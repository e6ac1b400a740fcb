"""A table that fits the terminal: one column gives way, and the least needed columns are left out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

GAP = 2  # columns between two cells


class Column(NamedTuple):
    """`need`: where the window is narrow, the columns with the lowest are left out first; a column of 0 stays, also
    where every cell is empty. `widest` cuts cells, in a terminal alone. `style` is that of a cell, by its text."""

    title: str
    right: bool = False
    need: int = 0
    widest: int | None = None
    style: Callable[[str], str] = lambda _cell: "dim"


def no_style(_cell: str) -> str:
    return ""


class FittedTable(NamedTuple):
    """`flexible` is the title of the column that gives way; the others are left out before it has fewer than
    `narrowest` columns."""

    columns: Sequence[Column]
    flexible: str
    narrowest: int
    header_style: str = "bold"

    def lines(self, rows: Sequence[Sequence[str]], width: int | None, *, total: Sequence[str] = ()) -> list[Text]:
        """The header, a line for each row, and the row `total` below them. No line is longer than `width`; None: the
        output is not a terminal, and no cell is cut."""
        everything = [[column.title for column in self.columns], *rows, *([total] if total else [])]
        widths = {
            place: max(cell_len(cells[place]) for cells in everything)
            for place, column in enumerate(self.columns)
            if not column.need or any(cells[place] for cells in everything[1:])
        }
        if width is not None:
            self._fit(widths, width)
        header = self._line(everything[0], widths, self.header_style)
        foot = [self._line(total, widths, "bold")] if total else []
        return [header, *(self._line(row, widths, "") for row in rows), *foot]

    def _fit(self, widths: dict[int, int], width: int) -> None:
        flexible = next(place for place, column in enumerate(self.columns) if column.title == self.flexible)
        widths.update({place: min(size, self.columns[place].widest or size) for place, size in widths.items()})

        def room() -> int:
            others = sum(size for place, size in widths.items() if place != flexible)
            return width - others - GAP * (len(widths) - 1)

        wanted = min(widths[flexible], self.narrowest)
        for place in sorted((each for each in widths if self.columns[each].need), key=lambda e: self.columns[e].need):
            if room() >= wanted:
                break
            del widths[place]
        widths[flexible] = max(1, min(widths[flexible], room()))

    def _line(self, cells: Sequence[str], widths: Mapping[int, int], style: str) -> Text:
        line = Text(no_wrap=True, end="")
        for number, (place, size) in enumerate(widths.items()):
            column, cell = self.columns[place], cells[place]
            line.append(" " * GAP if number else "")
            line.append(padded(cell, size, right=column.right), style=style or column.style(cell))
        line.rstrip()
        return line


def padded(text: str, size: int, *, right: bool = False) -> str:
    """The text in exactly so many columns of the terminal; `…` says that it was cut."""
    length = cell_len(text)
    if length > size:
        return set_cell_size(set_cell_size(text, size - 1).rstrip() + "…", size) if size > 0 else ""
    space = " " * (size - length)
    return space + text if right else text + space


def folded(line: str, room: int) -> list[str]:
    """The line in pieces of at most so many columns; words stay whole where they can."""
    rows, row = [], ""
    for word in line.split(" "):
        joined = f"{row} {word}" if row else word
        if cell_len(joined) <= room:
            row = joined
            continue
        if row:
            rows.append(row)
        *whole, row = chop_cells(word, room) or [""]
        rows += whole
    return [*rows, row]
