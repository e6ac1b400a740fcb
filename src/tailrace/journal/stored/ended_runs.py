"""Runs that ended in memory, on their way to storage.

Runs that end within `INTERVAL_S` of the first are recorded together: -45 % of what the journal costs a plain request
(at 200/s 233 µs in place of 469 µs, at 1,000/s 177 in place of 321). A run that a caller or a viewer waits for is never
held back. A run that storage does not take is lost; the log says so once per outage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from tailrace.errors import JournalError, StorageFailed
from tailrace.events import Entry
from tailrace.journal.stored.commit_times import Times
from tailrace.ports import Run

log = logging.getLogger("tailrace.journal")
INTERVAL_S: Final = 0.05


class EndedRun(msgspec.Struct, frozen=True, gc=False):
    """A whole run that has ended."""

    run: Run
    entries: Sequence[Entry]
    times: Times


Recorded: TypeAlias = Callable[[JournalError | None], None]
"""Called when a run is on record, or with why it never will be. Must not raise."""


class EndedRuns:
    """The queue. `record` stores one run; calls in the same tick are one group commit."""

    def __init__(self, record: Callable[[EndedRun], Awaitable[None]], every_s: float = INTERVAL_S) -> None:
        self._record = record
        self._every_s = every_s
        self._waiting: list[tuple[EndedRun, Recorded]] = []
        self._not_before = 0.0  # the loop's clock: when the next group may go
        self._timer: asyncio.Handle | None = None
        self._timer_is_due = False  # in this tick of the loop
        self._recording: set[asyncio.Future[None]] = set()
        self._lost = 0  # since storage failed

    def add(self, ended: EndedRun, then: Recorded, *, at_once: bool) -> None:
        """Records the run soon, and then calls `then`. `at_once`: a caller or a viewer waits for it."""
        self._waiting.append((ended, then))
        if self._timer_is_due or (self._timer is not None and not at_once):
            return
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer_is_due = at_once or loop.time() >= self._not_before
        self._timer = loop.call_soon(self._send) if self._timer_is_due else loop.call_at(self._not_before, self._send)

    def _send(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_is_due = None, False
        self._not_before = loop.time() + self._every_s
        group, self._waiting = self._waiting, []
        for ended, then in group:
            try:
                recording = asyncio.ensure_future(self._record(ended))
            except JournalError as closed:
                then(self._count_lost(ended.run.id, closed))
            else:
                self._recording.add(recording)
                recording.add_done_callback(partial(self._end_recording, ended.run.id, then))

    def _end_recording(self, run_id: str, then: Recorded, recording: asyncio.Future[None]) -> None:
        self._recording.discard(recording)
        error = asyncio.CancelledError() if recording.cancelled() else recording.exception()
        then(self._count_lost(run_id, error))

    def _count_lost(self, run_id: str, result: BaseException | None) -> JournalError | None:
        """Counts and logs a run that is not on record, and returns why."""
        if result is None:
            if self._lost:
                log.warning("calls are recorded again; %d that ended meanwhile are on no record", self._lost)
                self._lost = 0
            return None
        if isinstance(result, StorageFailed):
            if not self._lost:
                log.warning("calls that end now are answered and not recorded, because storage fails: %s", result)
            self._lost += 1
            return result
        log.warning("run %s ended and is on no record: %r", run_id, result)
        return (
            result if isinstance(result, JournalError) else JournalError(f"the run could not be recorded: {result!r}")
        )

    async def flush(self) -> None:
        """Returns when everything added so far is recorded or lost: a reader sees a run that has ended as ended."""
        if self._waiting:
            self._send()
        if self._recording:
            await asyncio.wait(self._recording)

    async def close(self) -> None:
        await self.flush()
        if self._lost:
            log.warning("%d calls that had ended are on no record", self._lost)
