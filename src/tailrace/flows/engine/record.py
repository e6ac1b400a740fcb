"""Facts into the journal and into the plan, in that order."""

from __future__ import annotations

from tailrace.events import AnyEvent
from tailrace.flows.engine.plan import Plan
from tailrace.ports import Journal, Lease


class Record:
    """An instance's plan and its log, kept in step. Viewers see an entry once it is committed."""

    def __init__(self, journal: Journal, lease: Lease, plan: Plan) -> None:
        self._journal = journal
        self._lease = lease
        self.plan = plan

    def add(self, *events: AnyEvent, attempt: int = 1) -> None:
        """Never blocks. Raises `StaleEpoch` where somebody else has the run."""
        self._journal.append(self._lease, events, attempt=attempt)
        for event in events:
            self.plan.apply(event, attempt)

    async def commit(self) -> None:
        """Returns when everything added is durable: call it before anything that cannot be taken back."""
        await self._journal.commit(self._lease)
