"""The journal without storage: for tests, for trying things out, and as the plainest reading of the contract.

Everything is lost with the process. Entries are shown at the end of the loop tick that appended them, so callers
meet the same order of things as with a journal that has to write first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from operator import attrgetter

import msgspec

from tailrace.errors import JournalError, RunNotFound, RunOwned, RunParked, RunSealed, StaleEpoch
from tailrace.events import AnyEvent, Entry, GatewayNotice, RunFailure, RunFinished, RunStarted
from tailrace.journal.fold import Fold, fold, is_fact
from tailrace.journal.live_tail import NOTHING, Tail, Viewer, Waiters
from tailrace.journal.open_log import OpenLog, new_run_id
from tailrace.ports import ENDED, Batch, Lease, NewRun, Run, RunState, Signal


class _Record:
    """One run: what is known of it and its whole log."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.log = OpenLog(run.id, 0, Fold())
        self.tail = Tail(window=None)
        self.lease_until = 0.0
        self.ended_at = 0.0
        self.signals: list[Signal] = []
        self.signalled = Waiters()
        self.compacted: tuple[Entry, list[Entry]] | None = None  # the snapshot and the facts before `first_seq`

    def set(self, **changes: object) -> Run:
        self.run = msgspec.structs.replace(self.run, **changes)
        return self.run


class MemoryJournal:
    """`clock` is the wall clock, in seconds since the epoch. `record_end` is given a run and all its entries before
    its end is shown to anybody."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        record_end: Callable[[Run, list[Entry]], Awaitable[None]] | None = None,
    ) -> None:
        self._clock = clock
        self._record_end = record_end
        self._records: dict[str, _Record] = {}
        self._by_key: dict[str, str] = {}
        self._unpublished: list[_Record] = []
        self._published = Waiters()
        self._signal_id = 0

    # ── a run's life ──

    async def create(self, new: NewRun) -> Run:
        return self._create(new)[0].run

    def _create(self, new: NewRun) -> tuple[_Record, bool]:
        if new.idempotency_key in self._by_key:
            return self._records[self._by_key[new.idempotency_key]], False
        at = self._clock()
        record = _Record(Run(new_run_id(at), new, "pending", last_seq=1, first_seq=1, created_at=at, claims=0))
        record.log.append([RunStarted(new.kind, new.model, new.session, at)], 1)
        record.tail.publish(record.log.take())
        self._records[record.run.id] = record
        if new.idempotency_key:
            self._by_key[new.idempotency_key] = record.run.id
        return record, True

    async def start(self, new: NewRun, owner: str, *, lease_s: float = 30.0) -> tuple[Run, Lease | None]:
        record, created = self._create(new)
        lease = self._claim(record, owner, lease_s) if created else None
        return record.run, lease

    async def claim(self, run_id: str, owner: str, *, lease_s: float = 30.0) -> Lease:
        record = self._record(run_id)
        if record.run.state in ENDED:
            raise RunSealed(f"run {run_id} has ended")
        if record.run.state == "parked":
            raise RunParked(f"run {run_id} is parked")
        if record.run.state == "running" and record.run.owner != owner and record.lease_until > self._clock():
            raise RunOwned(f"run {run_id} is executed by {record.run.owner}", owner=record.run.owner)
        return self._claim(record, owner, lease_s)

    def _claim(self, record: _Record, owner: str, lease_s: float) -> Lease:
        self._publish()
        run = record.run
        kills = run.kills + (run.state == "running")
        record.set(state="running", owner=owner, claims=run.claims + 1, kills=kills)
        record.lease_until = self._clock() + lease_s
        record.log.epoch = record.run.claims
        record.signalled.wake()
        return Lease(run.id, record.run.claims, owner)

    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
        self._held(lease).lease_until = self._clock() + lease_s

    async def release(self, lease: Lease) -> None:
        record = self._record(lease.run_id)
        if record.log.epoch == lease.epoch and record.run.state == "running":
            self._publish()
            record.log.epoch = -1
            record.set(state="pending", owner="", kills=0)
            record.signalled.wake()

    async def park(self, lease: Lease, failure: RunFailure) -> None:
        record = self._held(lease)
        self.append(lease, [GatewayNotice("parked", failure.message)])
        self._publish()
        record.log.epoch = -1
        record.set(state="parked", owner="", parked=failure)
        record.signalled.wake()

    async def unpark(self, run_id: str) -> Run:
        record = self._record(run_id)
        if record.run.state == "parked":
            record.set(state="pending", parked=None, kills=0)
        return record.run

    # ── writing ──

    def append(self, lease: Lease, events: Sequence[AnyEvent], *, attempt: int = 1) -> int:
        record = self._held(lease)
        seq = record.log.append(events, attempt)
        self._queue(record)
        return seq

    async def commit(self, lease: Lease) -> None:
        if self._held(lease).log.queued:
            await self._published.next_time().wait()

    async def seal(self, lease: Lease, finished: RunFinished) -> Entry:
        record = self._held(lease)
        self._publish()
        entry = record.log.finish(finished)
        if self._record_end is not None:
            ended = msgspec.structs.replace(record.run, state=finished.status, owner="", finished=finished)
            try:
                await self._record_end(ended, [*await self.read(lease.run_id), entry])
            except JournalError as why:  # not recorded, it never was: nobody may be shown its end
                record.tail.fail(why)
                self.forget(lease.run_id)
                raise
        record.set(state=finished.status, owner="", finished=finished)
        record.ended_at = self._clock()
        record.signals.clear()
        record.signalled.wake()
        self._queue(record)
        await self._published.next_time().wait()
        return entry

    def _queue(self, record: _Record) -> None:
        if record.log.queued:
            return
        record.log.queued = True
        if not self._unpublished:
            asyncio.get_running_loop().call_soon(self._publish)
        self._unpublished.append(record)

    def _publish(self) -> None:
        for record in self._unpublished:
            if batch := record.log.take():
                record.tail.publish(batch)
                record.set(last_seq=record.tail.last_seq)
        self._unpublished.clear()
        self._published.wake()

    # ── signals ──

    async def signal(self, run_id: str, signal: Signal) -> Signal:
        record = self._record(run_id)
        if record.run.state in ENDED:
            raise RunSealed(f"run {run_id} has ended")
        self._signal_id += 1
        numbered = msgspec.structs.replace(signal, id=self._signal_id)
        record.signals.append(numbered)
        record.signalled.wake()
        return numbered

    async def signals(self, lease: Lease, *, after: int = 0) -> list[Signal]:
        while True:
            record = self._held(lease)
            rung = record.signalled.next_time()
            if found := [signal for signal in record.signals if signal.id > after]:
                return found
            await rung.wait()

    # ── reading ──

    async def get(self, run_id: str) -> Run:
        return self._record(run_id).run

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
            record.run
            for record in self._records.values()
            if (session is None or record.run.new.session == session)
            and (kind is None or record.run.new.kind == kind)
            and (states is None or record.run.state in states)
            and (ended_before is None or (record.run.state in ENDED and record.ended_at < ended_before))
            and (compacted is None or (record.compacted is not None) == compacted)
            and (before is None or record.run.id < before)
        ]
        return sorted(found, key=attrgetter("id"), reverse=True)[:limit]

    async def orphans(self) -> list[Run]:
        now = self._clock()
        return [
            record.run
            for record in self._records.values()
            if record.run.state == "pending" or (record.run.state == "running" and record.lease_until <= now)
        ]

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> Batch:
        record = self._record(run_id)
        entries: list[Entry] = []
        while batch := await self.page(run_id, after):
            entries += batch
            after = batch[-1].seq
            if after >= record.tail.last_seq or (limit is not None and len(entries) >= limit):
                break
        return Batch(entries[:limit])

    async def page(self, run_id: str, after: int) -> Batch:
        record = self._record(run_id)
        if record.compacted is not None and after < record.compacted[0].seq:
            return Batch((record.compacted[0],))
        return record.tail.take(after) or NOTHING

    async def facts(self, run_id: str) -> list[Entry]:
        record = self._record(run_id)
        kept = record.compacted[1] if record.compacted else []
        return kept + [
            entry for entry in await self.read(run_id, after=record.run.first_seq - 1) if is_fact(entry.event)
        ]

    async def facts_of_runs(self, run_ids: Sequence[str]) -> list[list[Entry]]:
        return [await self.facts(run_id) for run_id in run_ids]

    async def snapshot(self, run_id: str) -> Entry:
        return fold(await self.read(run_id)).entry()

    def tail(self, run_id: str, *, after: int = 0, snapshot: bool = False) -> AsyncIterator[Batch]:
        return Viewer(self, run_id, after, snapshot=snapshot)

    async def attach(self, run_id: str) -> Tail:
        return self._record(run_id).tail

    # ── keeping ──

    async def compact(self, run_id: str) -> Run:
        record = self._ended(run_id)
        if record.compacted is None:
            *before, last = await self.read(run_id)
            record.compacted = (fold(before).entry(), [entry for entry in before if is_fact(entry.event)])
            record.tail.forget()
            record.tail.publish(Batch((last,)))
            record.set(first_seq=last.seq)
        return record.run

    async def delete(self, run_id: str) -> None:
        self._ended(run_id)
        self.forget(run_id)

    def forget(self, run_id: str) -> None:
        run = self._records.pop(run_id).run
        self._by_key.pop(run.new.idempotency_key, None)

    async def close(self) -> None:
        self._publish()
        for record in self._records.values():
            record.tail.close()

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._records

    def run_with_key(self, idempotency_key: str) -> Run | None:
        run_id = self._by_key.get(idempotency_key)
        return self._records[run_id].run if run_id else None

    def _record(self, run_id: str) -> _Record:
        if record := self._records.get(run_id):
            return record
        raise RunNotFound(f"there is no run {run_id}")

    def _held(self, lease: Lease) -> _Record:
        record = self._record(lease.run_id)
        if record.log.epoch != lease.epoch:
            raise StaleEpoch(f"run {lease.run_id} is no longer {lease.owner}'s (claim {lease.epoch})")
        if record.log.refusal is not None:
            raise record.log.refusal
        return record

    def _ended(self, run_id: str) -> _Record:
        record = self._record(run_id)
        if record.run.state not in ENDED:
            raise RunOwned(f"run {run_id} has not ended", owner=record.run.owner)
        return record
