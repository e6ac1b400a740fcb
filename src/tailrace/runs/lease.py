"""Holding a run for as long as a block lasts."""

from __future__ import annotations

import asyncio
import logging

from tailrace.errors import JournalError, RunSealed, StaleEpoch
from tailrace.events import RunFinished
from tailrace.journal.storage_wait import warning_level
from tailrace.ports import Lease, RunStore
from tailrace.system.own_task import until_done

log = logging.getLogger("tailrace.runs")
LEASE_S = 10.0  # `store.lease_s` by default: a process that stops renewing loses its runs after so long
RENEWALS_PER_LEASE = 3  # two may fail or come late before another process may claim
TOGETHER_S = 0.1  # renewals that are due within so long are one commit: each by itself costs as much as several tokens


class HeldLease:
    """Renews the lease while the block runs; then releases the run unless it is `finished`. A task begins when the
    first renewal is due: most runs are shorter. `asked_at`: when the lease was asked for, on the loop's clock; from
    then, however long storage took, each renewal is due.

    A lost lease does not interrupt the block: the next `append`, `commit` or `signals` raises `StaleEpoch`.
    """

    def __init__(
        self, journal: RunStore, lease: Lease, *, lease_s: float = LEASE_S, asked_at: float | None = None
    ) -> None:
        self._journal = journal
        self._lease = lease
        self._lease_s = lease_s
        self._loop = asyncio.get_running_loop()
        self._asked_at = asked_at or self._loop.time()
        self._renewing: asyncio.Task[None] | None = None
        self.finished: RunFinished | None = None  # how the run has ended: then there is nothing to release

    async def __aenter__(self) -> Lease:
        self._schedule()
        return self._lease

    async def __aexit__(self, *_: object) -> None:
        self._due.cancel()
        try:
            if self._renewing is not None:
                self._renewing.cancel()
                await until_done(self._renewing)
        finally:
            if self.finished is None:
                await self._journal.release(self._lease)

    def _schedule(self) -> None:
        period_s = self._lease_s / RENEWALS_PER_LEASE
        due_at = self._asked_at + period_s
        self._due = self._loop.call_at(due_at - due_at % min(TOGETHER_S, period_s / 4), self._begin)

    def _begin(self) -> None:
        self._renewing = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        self._asked_at = self._loop.time()
        try:
            await self._journal.renew(self._lease, lease_s=self._lease_s)
        except (StaleEpoch, RunSealed):
            return
        except JournalError as exc:  # storage may be back before the lease has run out
            log.log(warning_level(exc), "the lease of run %s was not renewed: %s", self._lease.run_id, exc)
        except Exception:
            log.exception("the lease of run %s was not renewed", self._lease.run_id)
        self._schedule()
