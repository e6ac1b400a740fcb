"""The record of one delivery in the journal: which messages it has sent, and what is known of them.

A delivery is a run of its own kind. The delivering gateway holds its lease, so that two gateways never deliver the
same answer. Each send is written before it is made, so that a process that dies leaves a record of it (G77, G80).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import msgspec

from tailrace.delivery.planning.planner import Showing
from tailrace.delivery.planning.presenter import Chrome
from tailrace.delivery.port import Place
from tailrace.errors import RunNotFound, RunOwned, RunParked, RunSealed
from tailrace.events import Delivered, RunFailure, RunFinished
from tailrace.messages import Value
from tailrace.ports import ENDED, Journal, Lease, NewRun, Run
from tailrace.runs.lease import held

KIND = "delivery"
MAX_KILLS = 3  # a delivery is parked after this many deaths of its process


class DeliverySpec(Value):
    """The parameters of a delivery; stored with it, so that any process can continue it."""

    run_id: str  # the run whose log is delivered
    place: Place
    showing: Showing = Showing()
    chrome: Chrome = "lines"


class Ledger:
    """One delivery's record, with its lease. `begin` and `orphaned` make them."""

    def __init__(self, journal: Journal, run: Run, lease: Lease) -> None:
        self.spec = msgspec.convert(run.new.input, DeliverySpec)
        self.id = run.id
        self._journal = journal
        self._lease = lease

    async def facts(self) -> list[Delivered]:
        entries = await self._journal.facts(self.id)
        return [entry.event for entry in entries if isinstance(entry.event, Delivered)]

    def write(self, facts: Iterable[Delivered]) -> None:
        """Raises `StaleEpoch` when another process holds the delivery."""
        if events := list(facts):
            self._journal.append(self._lease, events)

    async def commit(self) -> None:
        """Returns when everything written is durable. Raises `StaleEpoch`."""
        await self._journal.commit(self._lease)

    async def close(self, *, error: str = "") -> None:
        """Seals the delivery: completed, or failed with `error`."""
        failure = RunFailure("delivery", error) if error else None
        status = RunFinished("failed" if error else "completed", error=failure, at=time.time())
        await self._journal.seal(self._lease, status)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keeps the lease while the block runs, and releases a delivery that was not closed."""
        async with held(self._journal, self._lease):
            yield


async def begin(journal: Journal, spec: DeliverySpec, owner: str) -> Ledger | None:
    """The record of a delivery that begins. None where somebody has it, or it has ended: the same run is delivered to
    the same place once."""
    new = NewRun(
        kind=KIND,
        input=msgspec.to_builtins(spec),
        idempotency_key=f"{KIND}:{spec.run_id}:{spec.place.key}",
    )
    run, lease = await journal.start(new, owner)
    if lease is not None:
        return Ledger(journal, run, lease)
    return await _claimed(journal, run, owner) if run.state not in ENDED else None


async def orphaned(journal: Journal, platform: str, owner: str) -> AsyncIterator[Ledger]:
    """Deliveries to this platform that no living process has, each claimed when it is asked for, oldest first."""
    for run in await journal.orphans():
        if run.new.kind != KIND or msgspec.convert(run.new.input, DeliverySpec).place.platform != platform:
            continue
        if ledger := await _claimed(journal, run, owner):
            yield ledger


async def _claimed(journal: Journal, run: Run, owner: str) -> Ledger | None:
    try:
        lease = await journal.claim(run.id, owner)
        run = await journal.get(run.id)
    except (RunOwned, RunSealed, RunParked, RunNotFound):
        return None  # another process was faster
    if run.kills >= MAX_KILLS:
        await journal.park(
            lease, RunFailure("crash_loop", f"the process died {run.kills} times while it delivered this")
        )
        return None
    return Ledger(journal, run, lease)
