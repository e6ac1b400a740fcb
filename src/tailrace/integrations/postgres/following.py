"""The runs that viewers watch here and other processes execute: what announces their entries, and what reads them.

A NOTIFY names the runs that grew, and they are read, all in one query. Where there is a bus, it carries the entries
themselves; a slow poll finds what the bus of another process could not send.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from weakref import finalize

from tailrace.errors import JournalError
from tailrace.journal.bus import Bus, Committed
from tailrace.journal.live_tail import PAGE_ENTRIES, Tail
from tailrace.journal.storage_wait import warning_level
from tailrace.journal.stored.group_commit import PendingAppend
from tailrace.journal.stored.journal import RETRY_FIRST_S, RETRY_MAX_S
from tailrace.journal.stored.rows import MOST_BYTES
from tailrace.ports import Batch

logger = logging.getLogger("tailrace.journal")
POLL_S = 1.0  # where there is a bus: how often storage is asked for what it did not bring


class Following:
    """Publishes what other processes have written. `watched` gives the tails of those runs that are watched here and
    executed elsewhere, of the ones named or of all; `read` is one query; `follow` reads one run to its end."""

    def __init__(
        self,
        watched: Callable[[Collection[str] | None], list[tuple[str, Tail]]],
        read: Callable[[Mapping[str, int]], Awaitable[dict[str, Batch]]],
        follow: Callable[[str, Tail], Awaitable[JournalError | None]],
        bus: Bus | None,
    ) -> None:
        self._watched = watched
        self._read = read
        self._follow = follow
        self._bus = bus
        self._on_bus: set[str] = set()  # runs whose entries the bus was asked for
        self._woken = asyncio.Event()
        self._grown: set[str] = set()

    # ── what tells of them ──

    def look_at(self, run_ids: Collection[str] | None) -> None:
        """Another process may have written to these runs; None stands for all."""
        grown = [run_id for run_id, _ in self._watched(run_ids)]
        if grown:
            self._grown.update(grown)
            self._woken.set()

    def arrived(self, run_id: str, batch: Batch) -> None:
        """The bus has brought entries."""
        for _, tail in self._watched([run_id]):
            tail.publish(batch)
            if tail.ended:
                self.unwatch(run_id)

    def missed(self) -> None:
        """The bus may have lost entries."""
        self.look_at(None)

    @property
    def names_runs(self) -> bool:
        """Whether a NOTIFY must name the runs that grew."""
        return self._bus is None or not self._bus.connected

    def publish(self, appends: Sequence[PendingAppend]) -> None:
        """This process has committed these entries."""
        if self._bus is not None:
            self._bus.publish([Committed(part.log.run_id, part.batch) for part in appends])

    def watch(self, run_id: str, tail: Tail) -> None:
        """A viewer here follows a run that another process executes."""
        if self._bus is not None and run_id not in self._on_bus and self._watched([run_id]):
            self._on_bus.add(run_id)
            self._bus.watch(run_id, tail.last_seq)
            finalize(tail, self.unwatch, run_id).atexit = False

    def unwatch(self, run_id: str) -> None:
        """No viewer is left, the run has ended, or this process executes it now."""
        if self._bus is not None and run_id in self._on_bus:
            self._on_bus.discard(run_id)
            self._bus.unwatch(run_id)

    # ── reading ──

    async def run(self) -> None:
        """Until it is cancelled. A run that cannot be read is tried again after a pause."""
        pause_s = RETRY_FIRST_S
        while True:
            await self._next_look()
            grown, self._grown = self._grown, set()
            failed = await self._publish_grown(self._watched(grown))
            if not failed:
                pause_s = RETRY_FIRST_S
                continue
            run_id, failure = next(iter(failed.items()))
            level = warning_level(failure)
            logger.log(level, "run %s cannot be followed (%s); trying again in %g s", run_id, failure, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            self.look_at(list(failed))

    async def _next_look(self) -> None:
        if self._bus is None:
            await self._woken.wait()
        else:
            try:
                async with asyncio.timeout(POLL_S):
                    await self._woken.wait()
            except TimeoutError:
                self.look_at(None)
        self._woken.clear()

    async def _publish_grown(self, followed: Sequence[tuple[str, Tail]]) -> dict[str, JournalError]:
        """Returns the runs that could not be read, and why."""
        if not followed:
            return {}
        cursors = {run_id: tail.last_seq for run_id, tail in followed}
        try:
            pages = await self._read(cursors)
        except JournalError:
            pages = {}  # each run is read alone then, and its viewers get its error
        failed: dict[str, JournalError] = {}
        for run_id, tail in self._watched(list(cursors)):
            page = pages.get(run_id)
            is_whole = page is not None and len(page) < PAGE_ENTRIES and page.stored_bytes < MOST_BYTES
            if page and tail.last_seq == cursors[run_id]:
                tail.publish(page)
            if is_whole:
                tail.unreadable = None
            elif (failure := await self._follow(run_id, tail)) is not None:
                failed[run_id] = failure
        return failed
