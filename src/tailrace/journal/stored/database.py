"""What a database does for the journal on it: writes, which are queued for the next group commit, and reads."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tailrace.events import Entry, RunFailure
from tailrace.journal.stored.ended_runs import EndedRun
from tailrace.journal.stored.rows import Row, TimedRow
from tailrace.ports import Batch, Lease, LogPage, NewRun, Run, Signal


class Database(ABC):
    """What a store does. A write is queued for the next group commit, after everything queued before it."""

    # ── writes: each raises before it has written anything ──

    @abstractmethod
    async def _insert_run(self, new: NewRun, owner: str | None, lease_s: float) -> tuple[Run, int | None]:
        """The new run, claimed by `owner` where there is one, and its number; None in place of the number where the
        idempotency key names a run that exists."""

    def _creation(self, _run: Run, _lease_s: float) -> Callable[[Any], int] | None:
        """The write that creates this run, without an entry, and gives its number. None where there is no such one."""
        return None

    @abstractmethod
    async def _claim_run(self, run_id: str, owner: str, lease_s: float) -> tuple[int, Lease]:
        """The run's number and its new lease."""

    @abstractmethod
    async def _renew_lease(self, lease: Lease, lease_s: float) -> None: ...

    @abstractmethod
    async def _release_run(self, lease: Lease, *, fsync: bool) -> None: ...

    @abstractmethod
    async def _park_run(self, lease: Lease, failure: RunFailure, kills: int, *, fsync: bool) -> None: ...

    @abstractmethod
    async def _end_run(self, lease: Lease, last: Entry, output_seqs: list[int] | None, *, fsync: bool) -> None: ...

    @abstractmethod
    def record(self, ended: EndedRun) -> Awaitable[None]:
        """Stores a whole run that has ended in memory."""

    @abstractmethod
    async def _insert_signal(self, run_id: str, signal: Signal) -> Signal: ...

    @abstractmethod
    async def _swap_value(self, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool: ...

    @abstractmethod
    async def _compact_run(self, run_id: str, snapshot: Row, kept: Sequence[TimedRow]) -> Run: ...

    @abstractmethod
    async def _delete_run(self, run_id: str) -> None: ...

    # ── reads ──

    @abstractmethod
    async def get(self, run_id: str) -> Run: ...

    @abstractmethod
    async def page(self, run_id: str, after: int) -> Batch: ...

    @abstractmethod
    async def facts_of_runs(self, run_ids: Sequence[str]) -> list[list[Entry]]: ...

    @abstractmethod
    async def _run_after(self, session: str, kind: str, after: str) -> Run | None:
        """The oldest run of the session with a greater id."""

    @abstractmethod
    def _load_lines(self, run_id: str, after: int) -> asyncio.Future[LogPage]: ...

    @abstractmethod
    async def _signals_after(self, run_id: str, after: int) -> list[Signal]: ...

    @abstractmethod
    async def _compaction(self, run_id: str) -> tuple[Row, list[TimedRow]]:
        """The snapshot before the last entry, and the rows that are kept."""

    @abstractmethod
    async def get_value(self, namespace: str, key: str) -> bytes | None: ...

    # ── other processes ──

    @abstractmethod
    def _look_at(self, run_id: str) -> None:
        """Another process may have written to the run: it is followed soon."""

    @abstractmethod
    async def close(self) -> None: ...
