"""The steps of a sequence in a timeline: an item for each try."""

from __future__ import annotations

from tailrace.app.timeline.attempts import Attempts
from tailrace.app.timeline.board import Board
from tailrace.app.timeline.items import AttemptOutcome, StepItem
from tailrace.runs.view.changes import StepMoved

_OUTCOMES: dict[str, AttemptOutcome] = {  # of the attempt under way, by the step's new state
    "finished": "answered",
    "failed": "failed",
    "retrying": "failed",
    "cancelled": "stopped",
}


class Steps:
    def __init__(self, board: Board, attempts: Attempts) -> None:
        self._board = board
        self._attempts = attempts
        self._open: dict[str, int] = {}  # places of the tries under way
        self._paused: set[str] = set()  # steps whose try a pause has ended: it goes on when the instance does

    def pause(self) -> None:
        self._paused.update(self._open)

    def move(self, change: StepMoved) -> None:
        if change.state == "started":
            self._start(change)
            return
        reason = change.error.message if change.error is not None else ""
        self._attempts.end(_OUTCOMES[change.state], reason, block_id=change.block_id)
        retry_at = self._board.since_start(change.retry_at) if change.retry_at is not None else None
        place = self._open.pop(change.block_id, None)
        if place is None:  # a step that a retried instance keeps was not begun in this one
            place = self._board.add_now(StepItem, ends=False, block_id=change.block_id)
        self._board.end(place, state=change.state, output=change.output, error=change.error, retry_at=retry_at)

    def _start(self, change: StepMoved) -> None:
        board, block_id = self._board, change.block_id
        if (before := self._open.get(block_id)) is not None:  # the same try, resumed after an interruption
            self._attempts.end("interrupted", block_id=block_id)
            if block_id in self._paused:
                board.end(before, state="paused")
            else:
                board.end(before, state="interrupted")
                self._attempts.taken_over(board.items[before].end, block_id)
        self._paused.discard(block_id)
        at = board.since_start(change.at)
        start = at if at is not None else board.now
        self._open[block_id] = board.add_now(StepItem, ends=False, start=start, block_id=block_id, number=change.number)

    def end_all(self) -> None:
        for place in self._open.values():
            self._board.end(place, state="cancelled")
        self._open = {}
