"""How a scene is drawn: the answer as it grows, and beside it what happens. Below each other where there is no room,
and as plain lines where there is no terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

WIDE: Final = 92  # columns from which on the notes stand beside the answer
STYLES: Final = {"·": "dim", "✗": "red", "✓": "green"}


class Board:
    """One scene at a time; what is over stays on the screen."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._title = self._question = self._text = ""
        self._notes: list[tuple[str, str]] = []

    def scene(self, number: int, title: str, question: str) -> AbstractContextManager[object]:
        self._title, self._question, self._text, self._notes = f"{number}  {title}", question, "", []
        if not self._console.is_terminal:
            self._console.print(f"\n{self._title}\n> {question}", highlight=False)
            self._live = None
            return nullcontext()
        self._live = Live(self._drawn(), console=self._console, auto_refresh=False, vertical_overflow="visible")
        return self._live

    def note(self, text: str, mark: str = "·") -> None:
        """Explains what happens. Marks: "·" to know, "✗" a fault, "✓" recovered."""
        self._notes.append((mark, text))
        if self._live is None:
            self._console.print(f"{mark} {text}", highlight=False, markup=False)
        self._draw()

    def show(self, text: str) -> None:
        self._text = text
        self._draw()

    def finish(self) -> None:
        """The answer is complete: where there is no terminal, this is when it is printed."""
        if self._live is None:
            self._console.print(self._text, highlight=False, markup=False)
        self._draw()

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> RenderableType:
        answer = Panel(
            Group(Text(f"❯ {self._question}", style="bold"), Text(""), Text(self._text)),
            title=self._title,
            title_align="left",
            border_style="blue",
        )
        notes = Text()
        for mark, text in self._notes:
            notes.append(f"{mark} {text}\n\n", style=STYLES.get(mark, "yellow"))
        if self._console.width < WIDE:
            return Group(answer, notes)
        beside = Table.grid(padding=(0, 2), expand=True)
        beside.add_column(ratio=3)
        beside.add_column(ratio=2)
        beside.add_row(answer, notes)
        return beside
