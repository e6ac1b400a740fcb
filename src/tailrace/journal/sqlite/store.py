"""The journal in one SQLite file: the event loop's side of it.

Owns which runs this process writes to and which viewers it wakes. `schema` and `queries` own what is stored, `commits`
when it is written, `wakeup_pipe` which processes live and when another one has written. Several processes on one
machine may have the same file open; SQLite's shared memory does not work across a network.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack
from weakref import WeakValueDictionary

from tailrace.errors import JournalError, RunNotFound, RunOwned, RunSealed, StaleEpoch, StorageFailed
from tailrace.events import AnyEvent, Entry, GatewayNotice, RunFailure, RunFinished, RunStarted
from tailrace.journal.fold import Fold, fold
from tailrace.journal.live_tail import PAGE_ENTRIES, EntryViewer, PacedWaiters, PageViewer, Tail
from tailrace.journal.page_cache import PageCache
from tailrace.journal.sqlite import queries, statements
from tailrace.journal.sqlite.commits import Commits, OnLag, StoredLog
from tailrace.journal.sqlite.integrity import NO_SPACE
from tailrace.journal.sqlite.readers import Readers
from tailrace.journal.sqlite.schema import checkpoint, connect, prepare
from tailrace.journal.sqlite.statements import Claimant
from tailrace.journal.wakeup_pipe import WakeupPipe
from tailrace.ports import ENDED, Batch, Lease, LogPage, NewRun, Run, RunFilter, Signal
from tailrace.system.private_files import make_private_directory, make_private_file, tighten

logger = logging.getLogger("tailrace.journal")
REMEMBERED = 1024  # lost leases whose reason is kept, for a late writer's error
POLL_S = 0.25  # where named pipes do not work: how often other processes' runs are looked at
VALUES_INTERVAL_S = 0.05  # between two looks at the small state that is waited for, while another process writes much
RETRY_FIRST_S = 0.25  # the pause after wake-ups failed; doubled at each failure
RETRY_MAX_S = 5.0
MIN_FREE_BYTES = 1 << 20  # with less space the journal counts as not writable


class SqliteJournal:
    """Open it with `open`. `clock` is the wall clock: processes compare leases by it. `on_lag` is called at each commit
    with the seconds that its oldest entry waited before it was shown."""

    def __init__(
        self,
        path: Path,
        pipe: WakeupPipe,
        connection: sqlite3.Connection,
        clock: Callable[[], float],
        on_lag: OnLag | None = None,
    ) -> None:
        self._path = path
        self._clock = clock
        self._connection = connection  # the writer's
        self._pipe = pipe
        self._readers = Readers(path)
        self._pages = PageCache()
        self._commits = Commits(
            path, connection, after_commit=pipe.wake_peers, checkpoint=self._checkpoint, on_lag=on_lag
        )
        self._checkpointing: asyncio.Task[None] | None = None
        self._logs: dict[str, StoredLog] = {}  # runs that this process may write to
        self._tails: WeakValueDictionary[str, Tail] = WeakValueDictionary()  # kept alive by logs and viewers
        self._refusals: dict[tuple[str, int], JournalError] = {}
        self._woken = asyncio.Event()
        self._seen_signal = 0
        self._value_changed = PacedWaiters(VALUES_INTERVAL_S)
        self._listening: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(self._listen())

    @classmethod
    async def open(
        cls, path: Path, *, clock: Callable[[], float] = time.time, on_lag: OnLag | None = None
    ) -> SqliteJournal:
        """Raises `CorruptLog` for a damaged file, `JournalError` for one that cannot be used."""
        pipe, connection = await asyncio.to_thread(_open_file, path)
        return cls(path, pipe, connection, clock, on_lag)

    def trace(self, callback: Callable[[str], None] | None) -> None:
        """Calls `callback` with each SQL statement of the writer before it is executed, in the writer's thread; None
        ends that. The write waits until the callback returns."""
        self._connection.set_trace_callback(callback)

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
        """Stores a whole run that has ended in memory."""
        await self._commits.call(
            partial(statements.record, run=run, entries=entries, ended_at=self._clock()),
            fsync=run.new.durability == "fsync",
        )

    async def claim(self, run_id: str, owner: str, *, lease_s: float = 30.0) -> Lease:
        claimant, is_alive = self._claimant(owner, lease_s), self._pipe.is_alive
        num, lease = await self._commits.call(
            partial(statements.claim, run_id=run_id, claimant=claimant, now=self._clock(), is_alive=is_alive)
        )
        run, state = await self._readers.query(
            lambda connection: (queries.run_of(connection, run_id), queries.folded(connection, run_id))
        )
        self._hold(lease, num, state, fsync=run.new.durability == "fsync")
        return lease

    def _claimant(self, owner: str, lease_s: float) -> Claimant:
        return Claimant(owner, self._pipe.name, self._clock() + lease_s)

    def _hold(self, lease: Lease, num: int, state: Fold, *, fsync: bool) -> None:
        if (older := self._logs.get(lease.run_id)) is not None:
            self._drop(older, StaleEpoch(f"run {lease.run_id} was claimed again by {lease.owner}"))
        tail = self._tails.setdefault(lease.run_id, Tail(last_seq=state.seq))
        tail.skip_to(state.seq)
        tail.recover()
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
        given_back = StaleEpoch(f"run {lease.run_id} was given back")
        if log is not None and log.epoch == lease.epoch:
            log.refusal = given_back
            await self._commits.call(partial(statements.release, lease=lease), fsync=log.fsync)
            self._drop(log, given_back)
        elif not isinstance(self._refusals.get((lease.run_id, lease.epoch)), RunSealed | StaleEpoch):
            # Storage refused an entry, which voids the lease here; in storage it is still held.
            await self._commits.call(partial(statements.release, lease=lease))

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
        ending = partial(statements.seal, lease=lease, entry=entry, output_seqs=log.fold.output_seqs, now=self._clock())
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
            signalled = self._held(lease).signalled.next_time()
            found = await self._readers.query(partial(queries.signals_after, run_id=lease.run_id, after=after))
            if found:
                self._held(lease)
                return found
            await signalled.wait()

    # ── reading ──

    async def get(self, run_id: str) -> Run:
        return await self._readers.query(partial(queries.run_of, run_id=run_id))

    async def run_with_key(self, idempotency_key: str) -> Run | None:
        return await self._readers.query(partial(queries.run_with_key, idempotency_key=idempotency_key))

    async def runs(self, **wanted: Unpack[RunFilter]) -> list[Run]:
        return await self._readers.query(partial(queries.list_runs, wanted=wanted))

    async def orphans(self) -> list[Run]:
        now, unfinished = self._clock(), await self._readers.query(queries.unfinished_runs)
        pipes = {pipe for *_, pipe in unfinished}
        dead = {pipe for pipe in pipes if not self._pipe.is_alive(pipe)}  # a process may have a thousand runs
        abandoned = [
            run_id
            for run_id, state, lease_until, pipe in unfinished
            if state == "pending" or lease_until <= now or pipe in dead
        ]
        self._pipe.remove_dead(keep=pipes)
        return [await self.get(run_id) for run_id in abandoned]

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> Batch:
        return await self._readers.query(partial(queries.read_all, run_id=run_id, after=after, limit=limit))

    async def page(self, run_id: str, after: int) -> Batch:
        return await self._readers.query(partial(queries.read_page, run_id=run_id, after=after, limit=PAGE_ENTRIES))

    async def facts(self, run_id: str) -> list[Entry]:
        return await self._readers.query(partial(queries.facts_of, run_id=run_id))

    async def facts_of_runs(self, run_ids: Sequence[str]) -> list[list[Entry]]:
        return await self._readers.query(lambda connection: [queries.facts_of(connection, each) for each in run_ids])

    async def snapshot(self, run_id: str) -> Entry:
        log = self._logs.get(run_id)
        if log is not None and log.refusal is None:
            entry = log.fold.entry()
            with contextlib.suppress(JournalError):
                await self._written(log, entry.seq)  # the fold is ahead of storage: shown once it is written
                return entry
        state = await self._readers.query(partial(queries.folded, run_id=run_id))
        return state.entry()

    def tail(self, run_id: str, *, after: int = 0, snapshot: bool = False) -> AsyncIterator[Batch]:
        return EntryViewer(self, run_id, after, snapshot=snapshot)

    def tail_pages(self, run_id: str, *, after: int = 0, snapshot: bool = False) -> AsyncIterator[LogPage]:
        return PageViewer(self, run_id, after, snapshot=snapshot)

    async def stored_page(self, run_id: str, after: int) -> LogPage:
        read = partial(queries.read_lines, run_id=run_id, after=after)
        return await self._pages.page(run_id, after, partial(self._readers.submit, read))

    async def attach(self, run_id: str) -> Tail:
        if (tail := self._tails.get(run_id)) is not None:
            return tail
        run = await self.get(run_id)
        tail = self._tails.setdefault(run_id, Tail(last_seq=run.last_seq, ended=run.state in ENDED))
        self._woken.set()  # a commit between `get` and here has woken no viewer of this tail
        return tail

    async def last_seq(self, run_id: str) -> int:
        seq = await self._readers.query(partial(queries.last_seq_of, run_id=run_id))
        self._woken.set()  # another process's commits are published by the task that listens
        return seq

    # ── other processes ──

    async def _listen(self) -> None:
        """Wakes viewers and waits for signals when another process has written, until it is cancelled. A failure is
        logged, and after a pause the pipe is made again: without wake-ups a viewer would wait for ever."""
        loop, pause_s = asyncio.get_running_loop(), RETRY_FIRST_S
        while True:
            began = loop.time()
            try:
                await self._serve_wakeups()
            except Exception as exc:  # noqa: BLE001 - the top of the task
                if loop.time() - began > RETRY_MAX_S:
                    pause_s = RETRY_FIRST_S
                logger.warning("wake-ups between processes failed (%r); trying again in %g s", exc, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            try:
                self._pipe.reopen()
            except Exception as exc:  # noqa: BLE001 - without it viewers are served after each pause
                logger.warning("the wake-up pipe cannot be made again: %s", exc)
            self._woken.set()  # for what was written meanwhile

    async def _serve_wakeups(self) -> None:
        """Raises what fails, after every viewer was served that could be."""
        loop, fd = asyncio.get_running_loop(), self._pipe.fd
        if fd is not None:
            loop.add_reader(fd, self._on_wakeup)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), POLL_S if fd is None else None)
                self._woken.clear()
                failures = [
                    failure
                    for run_id, tail in list(self._tails.items())
                    if run_id not in self._logs and not tail.ended
                    if (failure := await self._follow(run_id, tail)) is not None
                ]
                await self._look_for_signals()
                self._value_changed.wake_soon()
                self._pipe.discover_peers()
                if failures:
                    raise failures[0]
        finally:
            if fd is not None:
                loop.remove_reader(fd)

    def _on_wakeup(self) -> None:
        self._pipe.drain()
        self._woken.set()

    async def _look_for_signals(self) -> None:
        if not self._logs:
            return
        with contextlib.suppress(JournalError):  # reads and writes under the lease will raise it
            new = await self._readers.query(partial(queries.signalled_since, after=self._seen_signal))
            for number, run_id in new:
                self._seen_signal = number
                if (log := self._logs.get(run_id)) is not None:
                    log.signalled.wake()

    async def _follow(self, run_id: str, tail: Tail) -> JournalError | None:
        """Publishes what another process has written. The viewers of this run learn of a failure, which is returned;
        the other runs are still followed."""
        try:
            while batch := await self.page(run_id, after := tail.last_seq):
                if run_id in self._logs or tail.last_seq != after:
                    return None  # claimed here meanwhile: its own commits publish
                tail.publish(batch)
        except RunNotFound as error:
            tail.fail(error)
            self._tails.pop(run_id, None)  # deleted: no entry will follow
            return None
        except JournalError as error:
            failure = error
        except Exception as exc:
            logger.exception("run %s cannot be followed", run_id)
            failure = JournalError(f"run {run_id} cannot be followed: {exc!r}")
        else:
            tail.unreadable = None
            return None
        tail.unreadable = failure
        tail.wake()
        return failure

    # ── keeping ──

    async def compact(self, run_id: str) -> Run:
        run = await self.get(run_id)
        if run.state not in ENDED:
            raise RunOwned(f"run {run_id} has not ended", owner=run.owner)
        if run.first_seq > 1:
            return run
        snapshot, kept = await self._readers.query(partial(queries.compacted, run_id=run_id))
        run = await self._commits.call(partial(statements.compact, run_id=run_id, snapshot=snapshot, kept=kept))
        self._pages.forget(run_id)
        return run

    async def delete(self, run_id: str) -> None:
        await self._commits.call(partial(statements.delete, run_id=run_id))
        self._tails.pop(run_id, None)
        self._pages.forget(run_id)

    # ── small state ──

    async def get_value(self, namespace: str, key: str) -> bytes | None:
        return await self._readers.query(partial(queries.value_of, namespace=namespace, key=key))

    async def list_values(self, namespace: str) -> dict[str, bytes]:
        return await self._readers.query(partial(queries.values_in, namespace=namespace))

    async def swap_value(self, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool:
        swap = partial(statements.swap_value, namespace=namespace, key=key, old=old, new=new)
        swapped = await self._commits.call(swap)
        self._value_changed.wake()
        return swapped

    async def next_value(self, namespace: str, key: str, known: bytes | None) -> bytes | None:
        while True:
            changed = self._value_changed.next_time()
            if (value := await self.get_value(namespace, key)) != known:
                return value
            await changed.wait()

    @property
    def process(self) -> str:
        return self._pipe.name

    def is_dead(self, process: str) -> bool:
        return not self._pipe.is_alive(process)

    async def check(self) -> None:
        free_bytes = await self._readers.query(partial(queries.free_bytes, path=self._path))
        if free_bytes < MIN_FREE_BYTES:
            message = f"{free_bytes // 1024} KiB are left to write {self._path}; free some space"
            raise StorageFailed(message, reason=NO_SPACE)
        if self._commits.failing:  # a small write may succeed where the next group would fail again
            await self._commits.call(statements.probe)
            await self._commits.call(statements.remove_probe)
            self._commits.recover()

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
        self._pipe.close()

    def _checkpoint(self) -> None:
        if self._checkpointing is None or self._checkpointing.done():
            self._checkpointing = asyncio.create_task(self._run_checkpoint())

    async def _run_checkpoint(self) -> None:
        try:
            await self._readers.query(checkpoint)
        except JournalError as exc:
            logger.warning("the write-ahead log could not be checkpointed: %s", exc)

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
        if not path.parent.exists():
            make_private_directory(path.parent)
    except OSError as exc:
        raise JournalError(f"{path.parent} cannot be made: {exc.strerror}") from exc
    with contextlib.suppress(OSError):  # `prepare` says what is wrong with it
        make_private_file(path)
    for suffix in ("-wal", "-shm"):  # SQLite makes new ones with the mode of the file itself
        tighten(path.with_name(path.name + suffix))
    pipe = WakeupPipe(path)
    try:
        prepare(path, alone=not pipe.has_peers)
        return pipe, connect(path, writer=True)
    except BaseException:
        pipe.close()
        raise
