"""The journal in one SQLite file: the event loop's side of it.

`stored.journal` owns which runs this process writes to; `schema` and `queries` own what is stored, `commits` when it is
written, `wakeup_pipe` which processes live and when another one has written. Several processes on one machine may have
the same file open; SQLite's shared memory does not work across a network.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from tailrace.errors import JournalError, StorageFailed
from tailrace.events import Entry, RunFailure
from tailrace.journal.sqlite import queries, statements
from tailrace.journal.sqlite.commits import LONG_BYTES, Commits
from tailrace.journal.sqlite.integrity import NO_SPACE, translated
from tailrace.journal.sqlite.schema import checkpoint, connect, prepare
from tailrace.journal.sqlite.statements import Claimant
from tailrace.journal.stored.ended_runs import EndedRun
from tailrace.journal.stored.group_commit import OnLag
from tailrace.journal.stored.journal import RETRY_FIRST_S, RETRY_MAX_S, VALUES_INTERVAL_S, StoredJournal
from tailrace.journal.stored.rows import Row, TimedRow
from tailrace.journal.stored.storage_format import FORMAT
from tailrace.journal.wakeup_pipe import WakeupPipe
from tailrace.ports import Lease, LogPage, NewRun, Run, Signal
from tailrace.system.private_files import make_private_directory, make_private_file, tighten

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("tailrace.journal")
POLL_S = 0.25  # where named pipes do not work: how often other processes' runs are polled
LONG_ENTRIES = 256  # a run that is recorded whole and is longer, or says more, is written by the writer's thread
MIN_FREE_BYTES = 1 << 20  # with less space the journal counts as not writable

THREADS = 4


class Readers:
    """The threads that read the file, so that the loop never blocks, each with a connection from its first query on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tailrace-reader")

    async def query(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self.submit(work)

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, self._query_in_thread, work)

    def _query_in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated(self._path):
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = connect(self._path, writer=False)
                self._connections.append(connection)
            return work(connection)

    def close(self) -> None:
        """Blocks until the queries in flight have returned."""
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()


def _read(
    query: Callable[Concatenate[sqlite3.Connection, P], T],
) -> Callable[Concatenate[SqliteJournal, P], Coroutine[Any, Any, T]]:
    """The method that runs this query on a connection of its own."""

    async def method(self: SqliteJournal, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._readers.query(lambda connection: query(connection, *args, **kwargs))

    return method


class SqliteJournal(StoredJournal):
    """Open it with `open`. `clock` is the wall clock: processes compare leases by it. `on_lag` is called at each commit
    with the seconds that its oldest entry waited before it was shown."""

    schema_version = FORMAT
    _commits_type: ClassVar[type[Commits]] = Commits

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
        self._readers = self._open_readers()
        self._commits = self._open_commits(on_lag)
        super().__init__(self._commits)
        self._checkpointing: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._seen_signal = 0
        self._look_at_sessions_at = 0.0  # not before this time of the loop
        self._listening: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(self._listen())

    # A simulation opens others, which use no thread.

    def _open_readers(self) -> Readers:
        return Readers(self._path)

    def _open_commits(self, on_lag: OnLag | None) -> Commits:
        return self._commits_type(
            self._path,
            self._connection,
            clock=self._clock,
            after_commit=self._pipe.wake_peers,
            checkpoint=self._checkpoint,
            on_lag=on_lag,
        )

    @classmethod
    async def open(
        cls, path: Path, *, clock: Callable[[], float] = time.time, on_lag: OnLag | None = None
    ) -> SqliteJournal:
        """Raises `CorruptLog` for a damaged file and `JournalError` for one that cannot be used."""
        pipe, connection = await asyncio.to_thread(_open_file, path)
        return cls(path, pipe, connection, clock, on_lag)

    # ── writes ──

    async def _insert_run(self, new: NewRun, owner: str | None, lease_s: float) -> tuple[Run, int | None]:
        at = self._clock()

        def create(connection: sqlite3.Connection) -> tuple[Run, int | None]:
            claimant = None if owner is None else self._claimant(owner, lease_s)
            return statements.create(connection, new, at, claimant)

        return await self._commits.call(create, fsync=new.durability == "fsync")

    def _creation(self, run: Run, lease_s: float) -> Callable[[sqlite3.Connection], int]:
        return lambda connection: statements.insert_run(connection, run, self._claimant(run.owner, lease_s))

    def record(self, ended: EndedRun) -> asyncio.Future[None]:
        record = partial(statements.record, ended=ended, ended_at=self._clock())
        said = ended.run.finished.output if ended.run.finished is not None else ""
        recorded = self._commits.call(record, long=len(ended.entries) > LONG_ENTRIES or len(said) > LONG_BYTES)
        if session := ended.run.new.session:
            recorded.add_done_callback(lambda _: self._sessions.on_created(session))
        return recorded

    async def _claim_run(self, run_id: str, owner: str, lease_s: float) -> tuple[int, Lease]:
        def claim(connection: sqlite3.Connection) -> tuple[int, Lease]:
            claimant = self._claimant(owner, lease_s)
            return statements.claim(connection, run_id, claimant, self._clock(), self._pipe.is_alive)

        return await self._commits.call(claim, long=True)

    def _claimant(self, owner: str, lease_s: float) -> Claimant:
        """Within the transaction: until another process lets it begin, as much time may pass as the lease has."""
        return Claimant(owner, self._pipe.name, self._clock() + lease_s)

    async def _renew_lease(self, lease: Lease, lease_s: float) -> None:
        await self._commits.call(lambda connection: statements.renew(connection, lease, self._clock() + lease_s))

    async def _release_run(self, lease: Lease, *, fsync: bool) -> None:
        await self._commits.call(partial(statements.release, lease=lease), fsync=fsync)

    async def _park_run(self, lease: Lease, failure: RunFailure, kills: int, *, fsync: bool) -> None:
        await self._commits.call(partial(statements.park, lease=lease, failure=failure, kills=kills), fsync=fsync)

    async def unpark(self, run_id: str) -> Run:
        return await self._commits.call(partial(statements.unpark, run_id=run_id))

    async def _end_run(self, lease: Lease, last: Entry, output_seqs: list[int] | None, *, fsync: bool) -> None:
        end = partial(statements.seal, lease=lease, entry=last, output_seqs=output_seqs, now=self._clock())
        await self._commits.call(end, fsync=fsync, log=self._logs.get(lease.run_id))

    async def _insert_signal(self, run_id: str, signal: Signal) -> Signal:
        return await self._commits.call(partial(statements.signal, run_id=run_id, sent=signal))

    async def _compact_run(self, run_id: str, snapshot: Row, kept: Sequence[TimedRow]) -> Run:
        return await self._commits.call(
            partial(statements.compact, run_id=run_id, snapshot=snapshot, kept=kept), long=True
        )

    async def _delete_run(self, run_id: str) -> None:
        await self._commits.call(partial(statements.delete, run_id=run_id), long=True)

    # ── reads ──

    get = _read(queries.run_of)
    run_with_key = _read(queries.run_with_key)
    runs = _read(queries.list_runs)
    sessions = _read(queries.list_sessions)
    session = _read(queries.session_of)
    _run_after = _read(queries.run_after)
    page = _read(queries.read_page)
    facts_of_runs = _read(queries.facts_of_runs)
    times = _read(queries.times_of)
    _compaction = _read(queries.compacted)
    _signals_after = _read(queries.signals_after)
    get_value = _read(queries.value_of)
    list_values = _read(queries.values_in)
    counters = _read(queries.counters)

    async def orphans(self) -> list[Run]:
        await self._retry_releases()
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

    def _load_lines(self, run_id: str, after: int) -> asyncio.Future[LogPage]:
        return self._readers.submit(partial(queries.read_lines, run_id=run_id, after=after))

    # ── other processes ──

    def _look_at(self, _run_id: str) -> None:
        self._woken.set()

    async def _listen(self) -> None:
        """Wakes viewers and runs when another process has written, until it is cancelled. A failure is logged, and
        after a pause the pipe is made again: without wake-ups a viewer would wait for ever."""
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
        """Raises the first failure, after every other viewer was served."""
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
                    for run_id, tail in self._followed(list(self._tails) if self._tails else ())
                    if (failure := await self._follow(run_id, tail)) is not None
                ]
                await self._look_for_signals()
                await self._look_for_runs()
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
        self._signals_announced += 1  # there may be one for a run that is being begun
        if not self._logs:
            return
        with contextlib.suppress(JournalError):  # reads and writes under the lease will raise it
            new = await self._readers.query(partial(queries.signalled_since, after=self._seen_signal))
            for number, run_id in new:
                self._seen_signal = number
                self._announce_signal(run_id)

    async def _look_for_runs(self) -> None:
        """Finds new runs of the watched sessions: one read for all of them, once in `VALUES_INTERVAL_S`."""
        if not (names := self._sessions.names):
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._look_at_sessions_at:
            loop.call_at(self._look_at_sessions_at, self._woken.set)
            return
        self._look_at_sessions_at = loop.time() + VALUES_INTERVAL_S
        try:
            self._sessions.on_poll(await self._readers.query(partial(queries.newest_runs, sessions=names)))
        except JournalError:  # perhaps no later write comes that would wake this again
            loop.call_later(RETRY_FIRST_S, self._woken.set)

    # ── small state ──

    async def _swap_value(self, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool:
        swap = partial(statements.swap_value, namespace=namespace, key=key, old=old, new=new)
        return await self._commits.call(swap)

    async def add_to_counters(self, amounts: Mapping[str, float]) -> dict[str, float]:
        return await self._commits.call(partial(statements.add_to_counters, amounts=dict(amounts)))

    async def remove_counters(self, prefix: str, before: str) -> None:
        await self._commits.call(partial(statements.remove_counters, prefix=prefix, before=before))

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
        await self._shielded_writes.end()  # before: what cancelled callers left is released by a commit
        await self._commits.close()
        if self._checkpointing is not None:
            await asyncio.wait([self._checkpointing])
        self._close_views()
        await asyncio.to_thread(self._readers.close)
        self._pipe.close()

    def _checkpoint(self) -> asyncio.Future[None]:
        if self._checkpointing is None or self._checkpointing.done():
            self._checkpointing = asyncio.create_task(self._run_checkpoint())
        return self._checkpointing

    async def _run_checkpoint(self) -> None:
        try:
            await self._readers.query(checkpoint)
        except JournalError as exc:
            logger.warning("the write-ahead log could not be checkpointed: %s", exc)


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
        prepare(path)
        return pipe, connect(path, writer=True)
    except BaseException:
        pipe.close()
        raise
