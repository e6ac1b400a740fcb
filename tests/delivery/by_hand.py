"""Deliveries without a gateway: begun, taken over and held by the test itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tailrace.delivery.consumer import GatewayStreamConsumer
from tailrace.delivery.ledger import DeliverySpec, Ledger, new_delivery, platform_of
from tailrace.errors import StaleEpoch
from tailrace.events import RunFinished
from tailrace.journal.fold import DELIVERY
from tailrace.ports import Journal
from tailrace.runs.lease import held
from tailrace.runs.recovery import ClaimedRun, recover, take_over


class HeldConsumer(GatewayStreamConsumer):
    """Holds the lease while it delivers, as the host does."""

    async def run(self) -> RunFinished | None:
        async with held(self._journal, self._ledger._lease):
            try:
                return await super().run()
            except StaleEpoch:
                return None


async def begin(journal: Journal, spec: DeliverySpec, owner: str) -> Ledger | None:
    """The record of a delivery that begins; None where another process has it, or it has ended."""
    run, lease = await journal.start(new_delivery(spec), owner)
    claimed = ClaimedRun(run, lease) if lease is not None else await take_over(journal, run.id, owner)
    return Ledger(journal, claimed) if claimed is not None else None


async def orphaned(journal: Journal, platform: str, owner: str) -> AsyncIterator[Ledger]:
    """Deliveries to this platform that no living process has."""
    async for claimed in recover(
        journal, owner, wanted=lambda run: run.new.kind == DELIVERY and platform_of(run) == platform
    ):
        yield Ledger(journal, claimed)
