"""Durability "memory": a run lives in memory and is recorded when it ends.

Routes each call to the journal that has the run. A plain API request costs storage one write, at its end; if the
process dies before that the run never was, which is what its durability says.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from operator import attrgetter
from typing import Protocol

from tailrace.events import AnyEvent, Entry, RunFailure, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import Batch, Journal, Lease, NewRun, Run, RunState, Signal


class Storage(Journal, Protocol):
    """A journal that can take a run whole."""

    async def record(self, run: Run, entries: Sequence[Entry]) -> None: ...

    async def run_with_key(self, idempotency_key: str) -> Run | None: ...


class MemoryFirst:
    """A journal over storage in which runs of durability "memory" are not written before they end."""

    def __init__(self, storage: Storage, *, clock: Callable[[], float] = time.time) -> None:
        self._storage = storage
        self._memory = MemoryJournal(clock=clock, record_end=storage.record)

    def _of(self, run_id: str) -> Journal:
        return self._memory if run_id in self._memory else self._storage

    async def create(self, new: NewRun) -> Run:
        known = self._memory.run_with_key(new.idempotency_key)
        if known is not None:
            return known
        if new.durability != "memory":
            return await self._storage.create(new)
        return await self._stored_twin(new) or await self._memory.create(new)

    async def start(self, new: NewRun, owner: str, *, lease_s: float = 30.0) -> tuple[Run, Lease | None]:
        known = self._memory.run_with_key(new.idempotency_key)
        if known is not None:
            return known, None
        if new.durability != "memory":
            return await self._storage.start(new, owner, lease_s=lease_s)
        if (twin := await self._stored_twin(new)) is not None:
            return twin, None
        return await self._memory.start(new, owner, lease_s=lease_s)

    async def _stored_twin(self, new: NewRun) -> Run | None:
        return await self._storage.run_with_key(new.idempotency_key) if new.idempotency_key else None

    async def claim(self, run_id: str, owner: str, *, lease_s: float = 30.0) -> Lease:
        return await self._of(run_id).claim(run_id, owner, lease_s=lease_s)

    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
        await self._of(lease.run_id).renew(lease, lease_s=lease_s)

    async def release(self, lease: Lease) -> None:
        await self._of(lease.run_id).release(lease)

    async def park(self, lease: Lease, failure: RunFailure) -> None:
        await self._of(lease.run_id).park(lease, failure)

    async def unpark(self, run_id: str) -> Run:
        return await self._of(run_id).unpark(run_id)

    def append(self, lease: Lease, events: Sequence[AnyEvent], *, attempt: int = 1) -> int:
        return self._of(lease.run_id).append(lease, events, attempt=attempt)

    async def commit(self, lease: Lease) -> None:
        await self._of(lease.run_id).commit(lease)

    async def seal(self, lease: Lease, finished: RunFinished) -> Entry:
        entry = await self._of(lease.run_id).seal(lease, finished)
        if lease.run_id in self._memory:
            self._memory.forget(lease.run_id)  # recorded: storage answers from here on, viewers keep their tail
        return entry

    async def signal(self, run_id: str, signal: Signal) -> Signal:
        return await self._of(run_id).signal(run_id, signal)

    async def signals(self, lease: Lease, *, after: int = 0) -> list[Signal]:
        return await self._of(lease.run_id).signals(lease, after=after)

    async def get(self, run_id: str) -> Run:
        return await self._of(run_id).get(run_id)

    async def runs(
        self,
        *,
        session: str | None = None,
        kind: str | None = None,
        states: Collection[RunState] | None = None,
        ended_before: float | None = None,
        compacted: bool | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Run]:
        found = [
            run
            for journal in (self._memory, self._storage)
            for run in await journal.runs(
                session=session,
                kind=kind,
                states=states,
                ended_before=ended_before,
                compacted=compacted,
                before=before,
                limit=limit,
            )
        ]
        return sorted(found, key=attrgetter("id"), reverse=True)[:limit]

    async def orphans(self) -> list[Run]:
        return [*await self._storage.orphans(), *await self._memory.orphans()]

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> Batch:
        return await self._of(run_id).read(run_id, after=after, limit=limit)

    async def facts(self, run_id: str) -> list[Entry]:
        return await self._of(run_id).facts(run_id)

    async def facts_of_runs(self, run_ids: Sequence[str]) -> list[list[Entry]]:
        found = {run_id: await self._memory.facts(run_id) for run_id in run_ids if run_id in self._memory}
        stored = [run_id for run_id in run_ids if run_id not in found]
        found.update(zip(stored, await self._storage.facts_of_runs(stored), strict=True))
        return [found[run_id] for run_id in run_ids]

    async def snapshot(self, run_id: str) -> Entry:
        return await self._of(run_id).snapshot(run_id)

    def tail(self, run_id: str, *, after: int = 0, snapshot: bool = False) -> AsyncIterator[Batch]:
        return self._of(run_id).tail(run_id, after=after, snapshot=snapshot)

    async def compact(self, run_id: str) -> Run:
        return await self._of(run_id).compact(run_id)

    async def delete(self, run_id: str) -> None:
        await self._of(run_id).delete(run_id)

    async def close(self) -> None:
        await self._memory.close()
        await self._storage.close()
