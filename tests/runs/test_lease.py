"""A run is held for as long as a block lasts; leases of many runs are renewed together."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from tailrace.journal.memory import MemoryJournal
from tailrace.ports import Lease
from tailrace.runs.lease import LEASE_S, RENEWALS_PER_LEASE, TOGETHER_S, HeldLease
from tailrace.testing.clock import driven
from tailrace.testing.conformance.sample_runs import started

RUNS = 20
APART_S = 0.004


class Noting(MemoryJournal):
    """Knows when which lease was renewed."""

    def __init__(self) -> None:
        super().__init__()
        self.renewals: list[tuple[str, float]] = []

    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
        self.renewals.append((lease.run_id, asyncio.get_running_loop().time()))
        await super().renew(lease, lease_s=lease_s)


@driven
async def test_leases_that_are_due_at_about_the_same_time_are_renewed_in_one_tick() -> None:
    journal, begun = Noting(), dict[str, float]()
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        for _ in range(RUNS):
            _, lease = await started(journal)
            begun[lease.run_id] = loop.time()
            await stack.enter_async_context(HeldLease(journal, lease))
            await asyncio.sleep(APART_S)
        await asyncio.sleep(1.5 * LEASE_S / RENEWALS_PER_LEASE)
    renewed_at = dict(journal.renewals)
    assert renewed_at.keys() == begun.keys()
    assert len({round(at, 3) for at in renewed_at.values()}) <= 2, "80 ms are two of these tenths at most"
    for run_id, at in renewed_at.items():
        period_s = LEASE_S / RENEWALS_PER_LEASE
        assert period_s - TOGETHER_S <= at - begun[run_id] <= period_s + 0.001, "never late, and hardly early"
