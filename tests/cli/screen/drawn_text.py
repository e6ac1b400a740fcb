"""What is drawn, as text: rows, and what a transcript has settled and still moves; and the clock of both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tailrace.cli.screen.call_progress import CallProgress
from tailrace.cli.screen.painter import Painter, Piece, Rows
from tailrace.cli.screen.transcript import Transcript
from tailrace.events import (
    AnyEvent,
    Entry,
    RunFailure,
    RunFinished,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
)

WIDTH = 60


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def drawn(rows: Rows, width: int = 80) -> list[str]:
    return ["".join(segment.text for segment in line) for line in Painter().lines([rows], width)]


class Drawn:
    """A transcript and everything it has settled, as text; without the borders of boxes unless they are asked for."""

    def __init__(
        self,
        *,
        streamed: bool = True,
        width: int = WIDTH,
        progress: CallProgress | None = None,
        with_borders: bool = False,
    ) -> None:
        self._hidden = () if with_borders else ("╭", "╰")
        self.clock = Clock()
        self.transcript = Transcript(self.clock, streamed=streamed, progress=progress)
        self.painter = Painter()
        self.width = width
        self.settled: list[str] = []
        self.moving: list[str] = []

    def see(self, *events: AnyEvent, attempt: int = 1) -> Drawn:
        for event in events:
            self.transcript.apply(Entry(1, event, attempt))
            self.draw()
        return self

    def draw(self) -> None:
        settled, moving = self.transcript.next_update()
        self.settled += self.text(settled)
        self.moving = self.text(moving)

    def text(self, pieces: Iterable[Piece]) -> list[str]:
        lines = ("".join(segment.text for segment in line) for line in self.painter.lines(pieces, self.width))
        return [line for line in lines if not line.startswith(self._hidden)]


def done(status: str = "completed", error: RunFailure | None = None) -> RunFinished:
    return RunFinished(status, "", error=error)  # type: ignore[arg-type]


def tool(index: int, output: str, *, ok: bool = True, **recorded: Any) -> tuple[AnyEvent, ...]:
    return (
        ToolCallChunk("terminal", "make", {"command": "make"}, index=index),
        ToolOutputRecorded("c", "terminal", output, ok, **recorded),
        ToolCallFinished("terminal", 3.14, ok, index),
    )
