"""The bus: what carries committed entries to the processes of other machines, beside storage.

Storage is the truth. A bus may lose, repeat, delay or reorder entries and may be gone for a while: `Tail.publish` drops
what it knows, and a journal reads from storage what the bus did not bring.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from tailrace.ports import Batch


class Committed(NamedTuple):
    """What one group commit wrote to one run."""

    run_id: str
    batch: Batch


class BusListener(Protocol):
    """The journal of this process, as its bus sees it. Every method returns at once."""

    def arrived(self, run_id: str, batch: Batch) -> None:
        """Another process has committed these entries of a run that is watched here."""

    def missed(self) -> None:
        """Entries of watched runs may not have come: the connection was lost, or has just come back."""


class Bus(Protocol):
    """The connection of this process to the bus. It reconnects by itself, with pauses that grow."""

    async def open(self, listener: BusListener) -> None:
        """Raises `ConfigError` for an address that can never work. A bus that is not there is tried again later."""

    @property
    def connected(self) -> bool:
        """Whether what is published now is expected to reach others."""

    def publish(self, committed: Sequence[Committed]) -> None:
        """Sends committed entries on their way. Never blocks and never raises; the queue is bounded."""

    def watch(self, run_id: str, after: int) -> None:
        """A viewer of this process follows a run that another one executes: its entries after this seq are wanted."""

    def unwatch(self, run_id: str) -> None:
        """No viewer here follows the run any more, or this process executes it now."""

    async def check(self) -> None:
        """Raises `JournalError` with the reason where the bus is not there."""

    async def close(self) -> None: ...


@runtime_checkable
class BusUser(Protocol):
    """A journal that may have a bus."""

    @property
    def bus(self) -> Bus | None: ...


def bus_of(journal: object) -> Bus | None:
    """The bus of this journal, if it has one."""
    return journal.bus if isinstance(journal, BusUser) else None
