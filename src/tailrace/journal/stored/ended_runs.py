"""Runs that ended in memory, on their way to storage: several at once, and off their callers' way.

The first after a pause is stored at once. What ends within `INTERVAL_S` of it is stored together with it: a hand-over
to the writer costs more than the write. A run that somebody waits for is never held back.

A run that nobody waits for and that storage fails to take is kept, and so are those that end while any is kept. They
are stored in the order of their ends, a group at a time, once storage takes writes again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias

from tailrace.errors import JournalError, StorageFailed
from tailrace.journal.stored.unrecorded_runs import EndedRun, Recorded, UnrecordedRun, UnrecordedRuns

INTERVAL_S: Final = 0.05
RETRY_FIRST_S: Final = 0.5  # the pause after storage failed; doubled at each failure
RETRY_MAX_S: Final = 5.0
STORED_TOGETHER: Final = 64  # of the runs that were kept

RecordRuns: TypeAlias = Callable[[Sequence[EndedRun]], Awaitable[Sequence[JournalError | None]]]
"""Stores these runs; returns why each of them was not stored, None where it was."""


class EndedRuns:
    """The queue."""

    def __init__(self, record: RecordRuns, unrecorded: UnrecordedRuns | None = None) -> None:
        self._record = record
        self._waiting: list[UnrecordedRun] = []
        self._not_before = 0.0  # the loop's clock: when the next group may go
        self._timer: asyncio.TimerHandle | None = None
        self._sent_soon = False  # in this tick of the loop
        self._storing: set[asyncio.Task[None]] = set()
        self._kept = UnrecordedRuns() if unrecorded is None else unrecorded
        self._ends = itertools.count()
        self._storing_kept = False  # a group of those, and then the next
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = RETRY_FIRST_S

    def add(
        self, ended: EndedRun, then: Recorded, *, at_once: bool, when_kept: Callable[[], None] | None = None
    ) -> None:
        """Stores the run soon, and then calls `then`, which must not raise. `at_once`: somebody waits for it. With
        `when_kept`, which must not raise either, the run is kept where storage cannot take it now: that is called then,
        and `then` when the run is stored or lost."""
        self._waiting.append(UnrecordedRun(next(self._ends), ended, then, when_kept))
        if self._sent_soon or (self._timer is not None and not at_once):
            return
        loop = asyncio.get_running_loop()
        if at_once or loop.time() >= self._not_before:
            self._sent_soon = True
            loop.call_soon(self._send)
        else:
            self._timer = loop.call_at(self._not_before, self._send)

    def _send(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sent_soon = False
        self._not_before = loop.time() + INTERVAL_S
        group, self._waiting = self._waiting, []
        if self._kept:
            self._kept.add(each for each in group if each.when_kept is not None)
            group = [each for each in group if each.when_kept is None]
        if group:
            self._begin(self._store(group))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _store(self, group: Sequence[UnrecordedRun]) -> None:
        refused: list[UnrecordedRun] = []
        failure: StorageFailed | None = None
        for each, why in zip(group, await self._errors(group), strict=True):
            if each.when_kept is not None and isinstance(why, StorageFailed):
                refused.append(each)
                failure = why
            else:
                each.then(why)
        if failure is not None:
            self._kept.add_refused(refused, failure)
            self._retry_later()

    def _retry_later(self) -> None:
        if self._retry is None and not self._storing_kept:
            self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._store_kept_soon)
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _store_kept_soon(self) -> None:
        self._cancel_retry()
        if not self._storing_kept:
            self._storing_kept = True
            self._begin(self._store_kept())

    async def _store_kept(self) -> None:
        """A group, and then the next: whoever waits for what is under way does not wait for all of them."""
        group = self._kept.take(STORED_TOGETHER)
        failure: StorageFailed | None = None
        for each, why in zip(group, await self._errors(group), strict=True):
            if isinstance(why, StorageFailed):
                failure = why
            else:
                self._kept.settle(each, why)
        if failure is None and self._kept:
            self._begin(self._store_kept())
            return
        self._storing_kept = False
        if failure is not None:
            self._kept.give_back(group, failure)
            self._retry_later()
        else:
            self._kept.note_recovery()
            self._retry_s = RETRY_FIRST_S

    async def _errors(self, group: Sequence[UnrecordedRun]) -> Sequence[JournalError | None]:
        """Why each run was not stored, None where it was."""
        try:
            return await self._record([each.ended for each in group])
        except JournalError as error:
            return [error] * len(group)
        except Exception as exc:  # noqa: BLE001 - each run's caller is told; the queue must go on
            return [JournalError(f"ended runs could not be stored: {exc!r}")] * len(group)

    def withdraw(self, run_id: str) -> None:
        """A run that is kept was deleted: it is not to be stored."""
        self._kept.withdraw(run_id)

    async def flush_run(self, run_id: str) -> None:
        """As `flush`; also where the run was kept and is on its way to storage now."""
        await self.flush()
        while self._kept.is_in_flight(run_id):
            await self.flush()

    async def flush(self) -> None:
        """Returns when everything added is stored, could not be, or is kept. For readers: a run that has ended is on
        record, or has ended in memory."""
        if self._waiting:
            self._send()
        if self._storing:
            await asyncio.wait(self._storing)

    async def close(self) -> None:
        """Stores what can be stored. What storage does not take now is lost, and the log says how much that is."""
        await self.flush()
        if self._kept:
            self._store_kept_soon()
        while self._storing:
            await asyncio.wait(self._storing)
        self._cancel_retry()
        self._kept.lose_all()

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
