"""A Markdown table in a window: as a table, or row by row where its columns would be too narrow to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import TableElement
from rich.table import Table
from rich.text import Text

MIN_COLUMN: Final = 8  # columns of the terminal; below that no cell can be read
LONG_WORD: Final = 16  # a column that is wider may cut words
GAP: Final = 2  # between two columns of a table
HANG: Final = 2  # of a value that goes on below itself


class MarkdownTable(TableElement):
    """Loses nothing: a word that is wider than its column goes on below itself."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = [cell.content for cell in self.header.row.cells] if self.header and self.header.row else []
        rows = [[cell.content for cell in row.cells] for row in self.body.rows] if self.body else []
        widths = [max(cell.cell_len for cell in column) for column in zip(names, *rows, strict=False)]
        words = [len(word) for row in rows for cell in row for word in cell.plain.split()]
        if rows and is_too_narrow(widths, options.max_width, longest_word=max(words, default=0)):
            yield from _records(console, options.max_width, names, rows)
            return
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                for column in part.columns:
                    column.overflow = "fold"
            yield part


def is_too_narrow(widths: Sequence[int], room: int, *, longest_word: int = 0) -> bool:
    """Whether a column that must give way would have less than `MIN_COLUMN`, or cut words. The widest ones give way
    first."""
    left = room - GAP * (len(widths) - 1)
    for number, width in enumerate(sorted(widths)):
        share = left // (len(widths) - number)
        if width > share:
            return share < max(MIN_COLUMN, min(longest_word, LONG_WORD))
        left -= width
    return False


def _records(console: Console, width: int, names: Sequence[Text], rows: Sequence[Sequence[Text]]) -> RenderResult:
    for row in rows:
        yield Text()
        for name, value in zip(names, row, strict=False):
            line = Text.assemble((f"{name.plain}: " if name.plain else "", "bold"), value)
            for number, piece in enumerate(line.wrap(console, max(1, width - HANG), overflow="fold")):
                yield Text.assemble(" " * HANG if number else "", piece)
