"""Holding a run for as long as a block lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tailrace.errors import JournalError, RunSealed, StaleEpoch
from tailrace.ports import Journal, Lease

RENEWALS_PER_LEASE = 3  # two may fail or come late before anybody else may claim


@asynccontextmanager
async def held(journal: Journal, lease: Lease, *, lease_s: float = 30.0) -> AsyncIterator[Lease]:
    """Renews the lease while the block runs; afterwards gives the run back unless it has ended.

    A lease that is lost is not an interruption: the next `append`, `commit` or `signals` raises `StaleEpoch`.
    """
    renewing = asyncio.create_task(_renew(journal, lease, lease_s))
    try:
        yield lease
    finally:
        renewing.cancel()
        try:
            await asyncio.wait([renewing])  # not `await renewing`: that would take a cancellation of ours for its own
        finally:
            await journal.release(lease)


async def _renew(journal: Journal, lease: Lease, lease_s: float) -> None:
    while True:
        await asyncio.sleep(lease_s / RENEWALS_PER_LEASE)
        try:
            await journal.renew(lease, lease_s=lease_s)
        except (StaleEpoch, RunSealed):
            return
        except JournalError:
            continue  # storage may be back before the lease has run out
