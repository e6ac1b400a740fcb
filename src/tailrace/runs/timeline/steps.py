"""The steps of a sequence in a timeline: an item for each try."""

from __future__ import annotations

from tailrace.events import StepCancelled, StepFailed, StepFinished, StepStarted
from tailrace.runs.timeline.attempts import Attempts
from tailrace.runs.timeline.board import Board
from tailrace.runs.timeline.items import StepItem


class Steps:
    def __init__(self, board: Board, attempts: Attempts) -> None:
        self._board = board
        self._attempts = attempts
        self._open: dict[str, int] = {}  # places of the tries under way
        self._paused: set[str] = set()  # steps whose try a pause has ended: it goes on when the instance does

    def pause(self) -> None:
        self._paused.update(self._open)

    def start(self, event: StepStarted) -> None:
        board = self._board
        if (before := self._open.get(event.block_id)) is not None:  # the same try, resumed after an interruption
            self._attempts.end("interrupted", block_id=event.block_id)
            if event.block_id in self._paused:
                board.end(before, state="paused")
            else:
                board.end(before, state="interrupted")
                self._attempts.taken_over(board.items[before].end, event.block_id)
        self._paused.discard(event.block_id)
        at = board.since_start(event.at)
        self._open[event.block_id] = board.add(
            StepItem(
                seq=board.seq,
                end_seq=board.seq,
                start=at if at is not None else board.now,
                block_id=event.block_id,
                number=event.number,
            )
        )

    def _place(self, block_id: str) -> int:
        """The step's newest try. A step that a retried instance keeps was not begun in this one."""
        place = self._open.pop(block_id, None)
        if place is None:
            board = self._board
            place = board.add(StepItem(seq=board.seq, end_seq=board.seq, start=board.now, block_id=block_id))
        return place

    def fail(self, event: StepFailed) -> None:
        self._attempts.end("failed", event.error.message, block_id=event.block_id)
        retry_at = self._board.since_start(event.retry_at) if event.retry_at is not None else None
        state = "failed" if event.retry_at is None else "retrying"
        self._board.end(self._place(event.block_id), state=state, error=event.error, retry_at=retry_at)

    def finish(self, event: StepFinished) -> None:
        self._attempts.end("answered", block_id=event.block_id)
        self._board.end(self._place(event.block_id), state="finished", output=event.output)

    def cancel(self, event: StepCancelled) -> None:
        self._attempts.end("stopped", block_id=event.block_id)
        self._board.end(self._place(event.block_id), state="cancelled")

    def end_all(self) -> None:
        for place in self._open.values():
            self._board.end(place, state="cancelled")
        self._open = {}
