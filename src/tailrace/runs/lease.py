"""Holding a run for as long as a block lasts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tailrace.errors import JournalError, RunSealed, StaleEpoch
from tailrace.journal.storage_wait import warning_level
from tailrace.ports import Lease, RunStore

log = logging.getLogger("tailrace.runs")
LEASE_S = 10.0  # `store.lease_s` by default: a process that stops renewing loses its runs after so long
RENEWALS_PER_LEASE = 3  # two may fail or come late before another process may claim
TOGETHER_S = 0.1  # renewals that are due within so long are one commit: each by itself costs as much as several tokens


@asynccontextmanager
async def held(
    journal: RunStore, lease: Lease, *, lease_s: float = LEASE_S, asked_at: float | None = None
) -> AsyncIterator[Lease]:
    """Renews the lease while the block runs; afterwards gives the run back unless it has ended. `asked_at`: when it was
    asked for, on the loop's clock, where that is not just now.

    A lost lease does not interrupt the block: the next `append`, `commit` or `signals` raises `StaleEpoch`.
    """
    renewing = asyncio.create_task(_renew(journal, lease, lease_s, asked_at or asyncio.get_running_loop().time()))
    try:
        yield lease
    finally:
        renewing.cancel()
        try:
            await asyncio.wait([renewing])  # `await renewing` could not tell its cancellation from the block's own
        finally:
            await journal.release(lease)


async def _renew(journal: RunStore, lease: Lease, lease_s: float, asked_at: float) -> None:
    """Each renewal is due a period after the last one was asked for, however long storage took."""
    loop, period_s = asyncio.get_running_loop(), lease_s / RENEWALS_PER_LEASE
    while True:
        due_at = asked_at + period_s
        await asyncio.sleep(due_at - due_at % min(TOGETHER_S, period_s / 4) - loop.time())
        asked_at = loop.time()
        try:
            await journal.renew(lease, lease_s=lease_s)
        except (StaleEpoch, RunSealed):
            return
        except JournalError as exc:  # storage may be back before the lease has run out
            log.log(warning_level(exc), "the lease of run %s was not renewed: %s", lease.run_id, exc)
        except Exception:
            log.exception("the lease of run %s was not renewed", lease.run_id)
