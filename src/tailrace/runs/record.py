"""The one place where a run's events are written: appended to the journal and applied to the run's fold, in that order.

Knows neither turns nor plans: a fold is whatever `apply` makes of events.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from tailrace.events import AnyEvent
from tailrace.ports import Journal, Lease


class EventFold(Protocol):
    """What a run knows, made of its events alone."""

    @property
    def attempt(self) -> int:
        """The number of the newest attempt at a model call; 0 before the first."""

    def apply(self, event: AnyEvent, attempt: int = ...) -> None: ...


F_co = TypeVar("F_co", bound=EventFold, covariant=True)


class RecordedFold(Generic[F_co]):
    """A fold and its log, kept in step. Viewers see an entry once it is committed."""

    def __init__(self, journal: Journal, lease: Lease, fold: F_co) -> None:
        self._journal = journal
        self._lease = lease
        self.fold = fold

    def add(self, *events: AnyEvent, attempt: int | None = None) -> None:
        """Events of this attempt; without a number, of the newest. Never blocks. Raises `StaleEpoch` where another
        process has the run."""
        if not events:
            return
        if attempt is None:
            attempt = max(1, self.fold.attempt)
        self._journal.append(self._lease, events, attempt=attempt)
        for event in events:
            self.fold.apply(event, attempt)

    def begin_attempt(self, event: AnyEvent) -> None:
        """The first event of the next attempt: its number is one above the newest."""
        self.add(event, attempt=self.fold.attempt + 1)

    async def commit(self) -> None:
        """Returns when everything added is durable: call it before anything that cannot be undone."""
        await self._journal.commit(self._lease)
