"""The record of one delivery in the journal: which messages it has sent, and what is known of them.

A delivery is a run of its own kind: claimed by whoever delivers, so that two gateways never deliver the same answer,
and written before it is acted upon, so that a process that dies leaves no send unaccounted for (G77, G80).
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
MAX_KILLS = 3  # a delivery that the process has died of so often is put aside


class DeliverySpec(Value):
    """Everything that a delivery is made from; stored with it, so that any process can go on with it."""

    run_id: str  # whose log is delivered
    place: Place
    showing: Showing = Showing()
    chrome: Chrome = "lines"


class Ledger:
    """One delivery's record, held. `ledgers` and `orphaned` make them."""

    def __init__(self, journal: Journal, run: Run, lease: Lease) -> None:
        self.spec = msgspec.convert(run.new.input, DeliverySpec)
        self.id = run.id
        self._journal = journal
        self._lease = lease

    async def facts(self) -> list[Delivered]:
        entries = await self._journal.facts(self.id)
        return [entry.event for entry in entries if isinstance(entry.event, Delivered)]

    def write(self, facts: Iterable[Delivered]) -> None:
        """Raises `StaleEpoch` when another process has taken the delivery over."""
        if events := list(facts):
            self._journal.append(self._lease, events)

    async def commit(self) -> None:
        """Returns when what was written survives the process. Raises `StaleEpoch`."""
        await self._journal.commit(self._lease)

    async def close(self, *, error: str = "") -> None:
        """The delivery has come to its end."""
        failure = RunFailure("delivery", error) if error else None
        status = RunFinished("failed" if error else "completed", error=failure, at=time.time())
        await self._journal.seal(self._lease, status)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """While the block runs nobody else delivers this; one that was not closed is given back."""
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
