"""The one place where a turn's facts are written: appended to the journal and applied to the turn, in that order."""

from __future__ import annotations

from tailrace.agent.turn import Turn
from tailrace.events import AnyEvent
from tailrace.ports import Journal, Lease


class Record:
    """A turn and its log, kept in step. `journal` shows an entry to viewers once it is committed."""

    def __init__(self, journal: Journal, lease: Lease, turn: Turn) -> None:
        self._journal = journal
        self._lease = lease
        self.turn = turn

    def add(self, *events: AnyEvent) -> None:
        """Facts of the attempt under way. Never blocks; raises `StaleEpoch` where somebody else has the run."""
        self.add_for(max(1, self.turn.attempt), *events)

    def begin_attempt(self, event: AnyEvent) -> None:
        """The next attempt's first fact: its number is one above the last."""
        self.add_for(self.turn.attempt + 1, event)

    def add_for(self, attempt: int, *events: AnyEvent) -> None:
        """Facts of a given attempt."""
        if events:
            self._journal.append(self._lease, events, attempt=attempt)
        for event in events:
            self.turn.apply(event, attempt)

    async def commit(self) -> None:
        """Returns when everything added is durable: call it before anything that cannot be taken back."""
        await self._journal.commit(self._lease)
