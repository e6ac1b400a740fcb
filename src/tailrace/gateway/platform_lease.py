"""Which process polls a chat platform and sends to it: one at a time for each account (L170).

The name of the holder is a value in the journal's small state, replaced by compare-and-set. The holder's heartbeat
(`runs.processes`) says whether it lives. Two processes that poll one bot get each other's messages or are refused, and
two that send do not know of each other's rate limits.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from tailrace.errors import JournalError
from tailrace.journal.key_values import KeyValues
from tailrace.ports import SmallState
from tailrace.runs.processes import Processes

HOLDERS = "platforms.holders"


class PlatformLease:
    """The lease on one account, as this process sees it."""

    def __init__(self, journal: SmallState, processes: Processes, account: str) -> None:
        self.account = account
        self._journal = journal
        self._processes = processes
        self._holders = KeyValues(journal, HOLDERS, str)
        self._lapses: int | None = None  # `Processes.lapses` when it was acquired; None: not held

    @property
    def holds(self) -> bool:
        """Whether this process may poll and send now. False as soon as another one can have taken the lease over, heard
        of or not: ask before each request."""
        return self._lapses is not None and self._processes.is_current and self._processes.lapses == self._lapses

    async def acquire(self) -> str:
        """Returns when this process holds the lease, with the name of the process that it was taken from; empty where
        none had it."""
        while True:
            lapses, holder = self._processes.lapses, await self._holders.get(self.account)
            if holder in (None, self._processes.owner) or await self._processes.is_gone(holder):
                taken = await self._holders.update(self.account, lambda now, gone=holder: self._unless(now, gone))  # type: ignore[misc]
                if taken == self._processes.owner and self._processes.is_current:
                    self._lapses = lapses
                    return holder or ""
            await self._wait_for_change(holder)

    def _unless(self, now: str | None, gone: str | None) -> str | None:
        """The holder after this process has tried: another one may have come first."""
        return self._processes.owner if now in (gone, self._processes.owner) else now

    async def lost(self) -> None:
        """Returns when this process may no longer poll and send."""
        owner = self._processes.owner
        while self.holds:
            try:
                await self._wait_for_change(owner)
                if await self._holders.get(self.account) != owner:
                    break
            except JournalError:  # storage may be back before the heartbeat is too old
                await asyncio.sleep(self._processes.interval_s)
        self._lapses = None

    async def give_up(self) -> None:
        """Lets another process have the lease at once. A no-op where this one does not hold it."""
        self._lapses = None
        owner = self._processes.owner
        await self._holders.update(self.account, lambda now: None if now == owner else now)

    async def _wait_for_change(self, holder: str | None) -> None:
        """Until the holder is another one, or a heartbeat may have stopped."""
        known = None if holder is None else msgspec.json.encode(holder)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._processes.interval_s):
                await self._journal.next_value(HOLDERS, self.account, known)
