"""The record of one delivery in the journal: which messages it has sent, and what is known of them.

A delivery is a run of its own kind. It is claimed, so that two gateways never deliver the same answer. It is written
before each request to the platform, so that a process that dies leaves no send unaccounted for (G77, G80).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from tailrace.delivery.planning.presenter import Chrome
from tailrace.delivery.planning.state import Showing
from tailrace.delivery.port import Place
from tailrace.events import Delivered, RunFailure, RunFinished
from tailrace.journal.fold import DELIVERY
from tailrace.messages import Value
from tailrace.ports import Journal, NewRun, Run
from tailrace.runs.recovery import ClaimedRun
from tailrace.runs.signals import listen


class DeliverySpec(Value):
    """The parameters of a delivery; stored with it, so that any process can continue it."""

    run_id: str  # the run whose log is delivered
    place: Place
    showing: Showing = Showing()
    chrome: Chrome = "lines"
    requester: str = ""  # the user who asked; empty: none
    account: str = ""  # the account of ours on that platform; empty: any
    instead_of: str = ""  # the delivery of the same run that the platform refused until the person wrote again
    questions_only: bool = False  # a chat that is asked about a run which began elsewhere is shown nothing else
    says: str = ""  # what is shown in place of the answer, which killed the processes that showed it
    begins_with: str = ""  # what stands above the answer, and is sent with it


def new_delivery(spec: DeliverySpec) -> NewRun:
    """The same run is delivered to the same place once, and once more for each undelivered delivery (`instead_of`)."""
    key = f"{DELIVERY}:{spec.run_id}:{spec.place.key}"
    if spec.instead_of:
        key += f":{spec.instead_of}"
    return NewRun(kind=DELIVERY, input=msgspec.to_builtins(spec), idempotency_key=key)


def platform_of(delivery: Run) -> str:
    """The platform that a delivery goes to."""
    platform: str = delivery.new.input.get("place", {}).get("platform", "")
    return platform


def account_of_delivery(delivery: Run) -> str:
    """The account of ours that a delivery is made with; empty: any."""
    account: str = delivery.new.input.get("account", "")
    return account


class Ledger:
    """One delivery's record. The lease is held by the caller."""

    def __init__(self, journal: Journal, claimed: ClaimedRun) -> None:
        self.spec = msgspec.convert(claimed.run.new.input, DeliverySpec)
        self.id = claimed.run.id
        self.facts = [entry.event for entry in claimed.entries if isinstance(entry.event, Delivered)]  # when claimed
        self._journal = journal
        self._lease = claimed.lease

    def write(self, facts: Iterable[Delivered]) -> None:
        """Raises `StaleEpoch` when another process holds the delivery."""
        if events := list(facts):
            self._journal.append(self._lease, events)

    async def commit(self) -> None:
        """Returns when everything written is durable. Raises `StaleEpoch`."""
        await self._journal.commit(self._lease)

    async def until_lost(self) -> None:
        """Never returns. Raises `StaleEpoch` as soon as another process holds the delivery."""
        await listen(self._journal, self._lease, lambda _: None)

    async def close(self, *, error: str = "") -> RunFinished:
        """The delivery has come to its end."""
        failure = RunFailure("delivery", error) if error else None
        finished = RunFinished("failed" if error else "completed", error=failure, at=time.time())
        await self._journal.seal(self._lease, finished)
        return finished
