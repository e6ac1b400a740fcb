"""The journal in one SQLite file: the loop's side of it.

Owns which runs this process writes to and whom it wakes. What is stored and how is `schema`'s and `rows`'; when it is
written is `commits`'; which process lives and when another one has written is `bell`'s. Several processes may have the
same file open, on one machine: SQLite's shared memory does not span a network, and neither does this.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from tailrace.errors import JournalError, RunOwned, RunSealed, StaleEpoch
from tailrace.events import AnyEvent, Entry, GatewayNotice, RunFailure, RunFinished, RunStarted
from tailrace.journal.fold import Fold, fold, is_fact
from tailrace.journal.live_tail import PAGE_ENTRIES, Tail, Viewer
from tailrace.journal.sqlite import queries, statements
from tailrace.journal.sqlite.commits import Commits, OnLag, StoredLog
from tailrace.journal.sqlite.readers import Readers
from tailrace.journal.sqlite.schema import checkpoint, connect, prepare
from tailrace.journal.sqlite.statements import Claimant
from tailrace.journal.wakeup_pipe import WakeupPipe
from tailrace.ports import ENDED, Batch, Lease, NewRun, Run, RunState, Signal

REMEMBERED = 1024  # leases given up, so that a late writer is told why and not only that
LOOK_AGAIN_S = 0.25  # only where bells do not work: how often other processes' runs are looked at


class SqliteJournal:
    """Open it with `open`. `clock` is the wall clock: processes compare the leases that it dates. `on_lag` is told, at
    each commit, for how many seconds its oldest entry had to wait before it was shown."""

    def __init__(
        self,
        path: Path,
        bell: WakeupPipe,
        connection: sqlite3.Connection,
        clock: Callable[[], float],
        on_lag: OnLag | None = None,
    ) -> None:
        self._clock = clock
        self._bell = bell
        self._readers = Readers(path)
        self._commits = Commits(
            path, connection, after_commit=bell.ring_others, checkpoint=self._checkpoint, on_lag=on_lag
        )
        self._checkpointing: asyncio.Future[None] | None = None
        self._logs: dict[str, StoredLog] = {}  # what this process may write to
        self._tails: WeakValueDictionary[str, Tail] = WeakValueDictionary()  # kept alive by logs and viewers
        self._refusals: dict[tuple[str, int], JournalError] = {}
        self._rung = asyncio.Event()
        self._seen_signal = 0
        self._listening: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(self._listen())

    @classmethod
    async def open(
        cls, path: Path, *, clock: Callable[[], float] = time.time, on_lag: OnLag | None = None
    ) -> SqliteJournal:
        """Raises `CorruptLog` for a damaged file, `JournalError` for one that cannot be used."""
        bell, connection = await asyncio.to_thread(_open_file, path)
        return cls(path, bell, connection, clock, on_lag)

    # ── a run's life ──

    async def create(self, new: NewRun) -> Run:
        at, fsync = self._clock(), new.durability == "fsync"
        run, _ = await self._commits.call(partial(statements.create, new=new, at=at, claimant=None), fsync=fsync)
        return run

    async def start(self, new: NewRun, owner: str, *, lease_s: float = 30.0) -> tuple[Run, Lease | None]:
        at, fsync, claimant = self._clock(), new.durability == "fsync", self._claimant(owner, lease_s)
        run, num = await self._commits.call(partial(statements.create, new=new, at=at, claimant=claimant), fsync=fsync)
        if num is None:
            return run, None
        lease = Lease(run.id, run.claims, owner)
        self._hold(lease, num, fold([Entry(1, RunStarted(new.kind, new.model, new.session, at))]), fsync=fsync)
        return run, lease

    async def record(self, run: Run, entries: Sequence[Entry]) -> None:
        """A run that lived elsewhere, whole, at its end."""
        await self._commits.call(
            partial(statements.record, run=run, entries=entries, ended_at=self._clock()),
            fsync=run.new.durability == "fsync",
        )

    async def claim(self, run_id: str, owner: str, *, lease_s: float = 30.0) -> Lease:
        claimant, is_alive = self._claimant(owner, lease_s), self._bell.is_alive
        num, lease = await self._commits.call(
            partial(statements.claim, run_id=run_id, claimant=claimant, now=self._clock(), is_alive=is_alive)
        )
        run, state = await self._readers.ask(
            lambda connection: (queries.run_of(connection, run_id), queries.folded(connection, run_id))
        )
        self._hold(lease, num, state, fsync=run.new.durability == "fsync")
        return lease

    def _claimant(self, owner: str, lease_s: float) -> Claimant:
        return Claimant(owner, self._bell.name, self._clock() + lease_s)

    def _hold(self, lease: Lease, num: int, state: Fold, *, fsync: bool) -> None:
        if (older := self._logs.get(lease.run_id)) is not None:
            self._drop(older, StaleEpoch(f"run {lease.run_id} was claimed again by {lease.owner}"))
        tail = self._tails.setdefault(lease.run_id, Tail(last_seq=state.seq))
        tail.skip_to(state.seq)
        self._logs[lease.run_id] = StoredLog(lease.run_id, num, lease.epoch, state, tail, fsync=fsync)

    def _drop(self, log: StoredLog, why: JournalError) -> None:
        log.refuse(why)
        if self._logs.get(log.run_id) is log:
            del self._logs[log.run_id]
        self._refusals[log.run_id, log.epoch] = why
        if len(self._refusals) > REMEMBERED:
            del self._refusals[next(iter(self._refusals))]

    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
        log = self._held(lease)
        try:
            await self._commits.call(partial(statements.renew, lease=lease, lease_until=self._clock() + lease_s))
        except (StaleEpoch, RunSealed) as why:
            self._drop(log, why)
            raise

    async def release(self, lease: Lease) -> None:
        log = self._logs.get(lease.run_id)
        if log is not None and log.epoch == lease.epoch:
            log.refusal = StaleEpoch(f"run {lease.run_id} was given back")
            await self._commits.call(partial(statements.release, lease=lease), fsync=log.fsync)
            self._drop(log, log.refusal)

    async def park(self, lease: Lease, failure: RunFailure) -> None:
        log = self._held(lease)
        self.append(lease, [GatewayNotice("parked", failure.message)])
        log.refusal = StaleEpoch(f"run {lease.run_id} was parked")
        await self._commits.call(partial(statements.park, lease=lease, failure=failure), fsync=log.fsync)
        self._drop(log, log.refusal)

    async def unpark(self, run_id: str) -> Run:
        return await self._commits.call(partial(statements.unpark, run_id=run_id))

    # ── writing ──

    def append(self, lease: Lease, events: Sequence[AnyEvent], *, attempt: int = 1) -> int:
        log = self._logs.get(lease.run_id)
        if log is None or log.epoch != lease.epoch:
            log = self._held(lease)
        seq = log.append(events, attempt)
        if not log.queued:
            self._commits.append(log)
        return seq

    async def commit(self, lease: Lease) -> None:
        log = self._held(lease)
        await self._written(log, log.seq)

    async def _written(self, log: StoredLog, seq: int) -> None:
        while log.written_seq < seq:
            progress = log.progress.next_time()
            if log.failure is not None:
                self._drop(log, log.failure)
                raise log.failure
            await progress.wait()

    async def seal(self, lease: Lease, finished: RunFinished) -> Entry:
        log = self._held(lease)
        entry = log.finish(finished)
        self._commits.append(log)
        ending = partial(statements.seal, lease=lease, entry=entry, finished=finished, now=self._clock())
        try:
            await self._commits.call(ending, fsync=log.fsync)
        except JournalError as why:
            self._drop(log, why)
            raise
        self._drop(log, RunSealed(f"run {lease.run_id} has ended"))
        return entry

    # ── signals ──

    async def signal(self, run_id: str, signal: Signal) -> Signal:
        sent = await self._commits.call(partial(statements.signal, run_id=run_id, sent=signal))
        if (log := self._logs.get(run_id)) is not None:
            log.signalled.wake()
        return sent

    async def signals(self, lease: Lease, *, after: int = 0) -> list[Signal]:
        while True:
            rung = self._held(lease).signalled.next_time()
            found = await self._readers.ask(partial(queries.signals_after, run_id=lease.run_id, after=after))
            if found:
                self._held(lease)
                return found
            await rung.wait()

    # ── reading ──

    async def get(self, run_id: str) -> Run:
        return await self._readers.ask(partial(queries.run_of, run_id=run_id))

    async def run_with_key(self, idempotency_key: str) -> Run | None:
        return await self._readers.ask(partial(queries.run_with_key, idempotency_key=idempotency_key))

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
        question = partial(
            queries.list_runs,
            session=session,
            kind=kind,
            states=states,
            ended_before=ended_before,
            compacted=compacted,
            before=before,
            limit=limit,
        )
        return await self._readers.ask(question)

    async def orphans(self) -> list[Run]:
        now = self._clock()
        return [
            run
            for run, lease_until, bell in await self._readers.ask(queries.unfinished_runs)
            if run.state == "pending" or lease_until <= now or not self._bell.is_alive(bell)
        ]

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> Batch:
        return await self._readers.ask(partial(queries.read_all, run_id=run_id, after=after, limit=limit))

    async def page(self, run_id: str, after: int) -> Batch:
        return await self._readers.ask(partial(queries.read_page, run_id=run_id, after=after, limit=PAGE_ENTRIES))

    async def facts(self, run_id: str) -> list[Entry]:
        return await self._readers.ask(partial(queries.facts_of, run_id=run_id))

    async def facts_of_runs(self, run_ids: Sequence[str]) -> list[list[Entry]]:
        return await self._readers.ask(
            lambda connection: [queries.facts_of(connection, run_id) for run_id in run_ids],
        )

    async def snapshot(self, run_id: str) -> Entry:
        log = self._logs.get(run_id)
        if log is not None and log.refusal is None:
            entry = log.fold.entry()
            with contextlib.suppress(JournalError):
                await self._written(log, entry.seq)  # folded, but not to be shown before it is written
                return entry
        state = await self._readers.ask(partial(queries.folded, run_id=run_id))
        return state.entry()

    def tail(self, run_id: str, *, after: int = 0, snapshot: bool = False) -> AsyncIterator[Batch]:
        return Viewer(self, run_id, after, snapshot=snapshot)

    async def attach(self, run_id: str) -> Tail:
        if (tail := self._tails.get(run_id)) is not None:
            return tail
        run = await self.get(run_id)
        tail = self._tails.setdefault(run_id, Tail(last_seq=run.last_seq, ended=run.state in ENDED))
        self._rung.set()  # what was written since `get` has rung for nobody
        return tail

    # ── other processes ──

    async def _listen(self) -> None:
        """Wakes whoever waits for something that another process has written."""
        loop = asyncio.get_running_loop()
        if self._bell.fd is not None:
            loop.add_reader(self._bell.fd, self._hear)
        try:
            while True:
                if self._bell.fd is not None:
                    await self._rung.wait()
                else:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._rung.wait(), LOOK_AGAIN_S)
                self._rung.clear()
                await self._look_for_signals()
                for run_id, tail in list(self._tails.items()):
                    if run_id not in self._logs and not tail.ended:
                        await self._follow(run_id, tail)
        finally:
            if self._bell.fd is not None:
                loop.remove_reader(self._bell.fd)

    def _hear(self) -> None:
        self._bell.heard()
        self._rung.set()

    async def _look_for_signals(self) -> None:
        if not self._logs:
            return
        with contextlib.suppress(JournalError):  # the lease's own reads and writes will say so
            new = await self._readers.ask(partial(queries.signalled_since, after=self._seen_signal))
            for number, run_id in new:
                self._seen_signal = number
                if (log := self._logs.get(run_id)) is not None:
                    log.signalled.wake()

    async def _follow(self, run_id: str, tail: Tail) -> None:
        try:
            while batch := await self.page(run_id, after := tail.last_seq):
                if run_id in self._logs or tail.last_seq != after:
                    return  # claimed here meanwhile: its own commits publish
                tail.publish(batch)
        except JournalError as error:
            tail.fail(error)

    # ── keeping ──

    async def compact(self, run_id: str) -> Run:
        run = await self.get(run_id)
        if run.state not in ENDED:
            raise RunOwned(f"run {run_id} has not ended", owner=run.owner)
        if run.first_seq > 1:
            return run
        snapshot, kept = await self._readers.ask(partial(_compacted, run_id=run_id))
        return await self._commits.call(partial(statements.compact, run_id=run_id, snapshot=snapshot, kept=kept))

    async def delete(self, run_id: str) -> None:
        await self._commits.call(partial(statements.delete, run_id=run_id))
        self._tails.pop(run_id, None)

    async def close(self) -> None:
        if self._listening is None:
            return
        listening, self._listening = self._listening, None
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
        await self._commits.close()
        if self._checkpointing is not None:
            await asyncio.wait([self._checkpointing])
        for log in list(self._logs.values()):
            self._drop(log, JournalError("the journal is closed"))
        for tail in list(self._tails.values()):
            tail.close()
        await asyncio.to_thread(self._readers.close)
        self._bell.close()

    def _checkpoint(self) -> None:
        if self._checkpointing is None or self._checkpointing.done():
            self._checkpointing = asyncio.ensure_future(self._readers.ask(checkpoint))

    def _held(self, lease: Lease) -> StoredLog:
        log = self._logs.get(lease.run_id)
        if log is not None and log.epoch == lease.epoch:
            if log.refusal is None:
                return log
            self._drop(log, log.refusal)
        raise self._refusals.get(
            (lease.run_id, lease.epoch),
            StaleEpoch(f"run {lease.run_id} is not {lease.owner}'s in this process (claim {lease.epoch})"),
        )


def _open_file(path: Path) -> tuple[WakeupPipe, sqlite3.Connection]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise JournalError(f"{path.parent} cannot be made: {exc.strerror}") from exc
    bell = WakeupPipe(path)
    try:
        prepare(path, alone=not bell.has_company)
        return bell, connect(path, writer=True)
    except BaseException:
        bell.close()
        raise


def _compacted(connection: sqlite3.Connection, run_id: str) -> tuple[queries.Row, list[queries.Row]]:
    """The state before the last entry, and what is kept: the facts and that entry."""
    state = Fold()
    kept: list[Entry] = []
    for page in queries.all_pages(connection, run_id):
        for entry in page:
            if isinstance(entry.event, RunFinished):
                kept.append(entry)
                continue
            state.apply(entry)
            if is_fact(entry.event):
                kept.append(entry)
    stretches = [row for stretch in queries.stretches(kept) for row in queries.rows_of(stretch)]
    return queries.snapshot_row(state.entry()), stretches
