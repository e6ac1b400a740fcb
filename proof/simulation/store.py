"""The store of a simulated world: the real SQLite journal on one database in memory, which every process shares.

The statements, the grouping of commits and the journal are the product's own. What differs is what would need a thread
or a file: each read is a step of the loop, each group is one or part of one, and so are wake-ups between processes. A
process that dies before its group was written leaves nothing of it behind; one that dies between the commit and the
acknowledgement leaves all of it.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from proof.simulation.loop import PROCESS, Process, SimulatedLoop
from tailrace.events import Entry
from tailrace.journal.fold import DELIVERY
from tailrace.journal.memory_first import MemoryFirst
from tailrace.journal.sqlite import queries
from tailrace.journal.sqlite.commits import SLOW_PAUSE_S, Commits
from tailrace.journal.sqlite.integrity import translation
from tailrace.journal.sqlite.schema import APPLICATION_ID, BUSY_TIMEOUT_S, SCHEMA
from tailrace.journal.sqlite.store import Readers, SqliteJournal
from tailrace.journal.stored.group_commit import OnLag
from tailrace.journal.stored.storage_format import FORMAT
from tailrace.journal.wakeup_pipe import WakeupPipe
from tailrace.ports import Run

T = TypeVar("T")
PATH = Path("/simulated/tailrace.db")
_ERRORS = {
    "full": "SQLITE_FULL",
    "io": "SQLITE_IOERR",
    "locked": "SQLITE_BUSY",
    "gone": "SQLITE_CANTOPEN",
    "busy": "SQLITE_BUSY",
}
BUSY_LOOK_S = 0.05
INDEX_AFTER = 20  # changes; a world has few runs, and each of them should have rows with a place and rows without


@cache
def _empty_database() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(SCHEMA)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    data: bytes = connection.serialize()
    connection.close()
    return data


class _Connection(sqlite3.Connection):
    """`execute` can be replaced, for as long as the store refuses."""


_TABLES = ("runs", "heads", "batches", "snapshots", "signals", "key_values", "counters", "places", "indexed")
_spare: list[_Connection] = []  # empty databases: to parse every statement again takes long


def _connection() -> _Connection:
    if _spare:
        return _spare.pop()
    connection: _Connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256, factory=_Connection
    )
    connection.deserialize(_empty_database())
    return connection


def _spare_for_the_next(connection: _Connection) -> None:
    """Keeps the connection for another world, unless a read that a dead process left half done still holds it."""
    try:
        connection.rollback()
        for table in (*_TABLES, "sqlite_sequence"):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
    except sqlite3.Error:
        connection.close()
    else:
        _spare.append(connection)


class Store(ABC):
    """What every store of a world is to the world and to its rules."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.refuses = ""  # the kind of fault; empty: none
        self.slow_s = 0.0
        self.counts: Counter[str] = Counter()

    @abstractmethod
    async def open_journal(self) -> MemoryFirst:
        """The journal of the current process."""

    @abstractmethod
    def refuse(self, kind: str, after_statements: int) -> None:
        """Until it is mended."""

    @abstractmethod
    def mend(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """The world is over."""

    @abstractmethod
    def runs(self) -> list[Run]: ...

    @abstractmethod
    def log(self, run_id: str) -> list[Entry]: ...

    @abstractmethod
    def states(self) -> set[str]:
        """Of the runs that have not ended."""

    @abstractmethod
    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Everything that is stored, in an order of its own."""

    @abstractmethod
    def left_open(self, processes: Collection[int]) -> list[str]:
        """By these processes, which have run to their ends."""

    def has_unfinished(self, *, may_be_unparked: bool = False) -> bool:
        """Whether something is still to happen. A run that is set aside waits for a person, as does its delivery, or
        (`may_be_unparked`) for a process that hangs: it was taken for dead, and the run goes on when it comes back."""
        states = self.states()
        if may_be_unparked or "parked" not in states or states == {"parked"}:
            return bool(states) and (may_be_unparked or states != {"parked"})
        runs = self.runs()
        parked = {run.id for run in runs if run.state == "parked"}
        unfinished = [run for run in runs if run.finished is None and run.id not in parked]
        return any(run.new.kind != DELIVERY or run.new.input["run_id"] not in parked for run in unfinished)


class SimulatedStore(Store):
    """The database, who has it open, and what is wrong with it now."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, *, writes_on_loop: bool) -> None:
        super().__init__(loop, rng)
        self.writes_on_loop = writes_on_loop
        self.connection = _connection()
        self.pipes: dict[str, SimulatedPipe] = {}
        self._after_statements = 0  # of a group, before the fault shows
        self._is_writing = False
        self._statements = 0

    def close(self) -> None:
        self.mend()
        _spare_for_the_next(self.connection)

    # ── faults ──

    def refuse(self, kind: str, after_statements: int) -> None:
        self.refuses, self._after_statements = kind, after_statements
        self.connection.execute = self._execute_or_refuse  # type: ignore[method-assign]

    def mend(self) -> None:
        self.refuses, self.slow_s = "", 0.0
        self.connection.__dict__.pop("execute", None)

    def _execute_or_refuse(self, *args: Any) -> sqlite3.Cursor:
        self._check_statement()
        return sqlite3.Connection.execute(self.connection, *args)

    def _check_statement(self) -> None:
        """A full disk and another process that writes refuse writes alone."""
        if self.refuses in ("full", "busy") and not self._is_writing:
            return
        self._statements += 1
        if self._is_writing and self._statements <= self._after_statements and self.refuses != "busy":
            return
        self.counts["refusal"] += 1
        error = sqlite3.OperationalError(f"simulated: {self.refuses}")
        error.sqlite_errorname = _ERRORS[self.refuses]
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY if self.refuses == "busy" else sqlite3.SQLITE_ERROR
        raise error

    def commit_delay_s(self) -> float:
        return self.slow_s + self.rng.random() * 0.01

    def write_on_loop(self, commit: Callable[[], bool]) -> bool:
        """Returns whether the group was written, or failed: where another process writes it is neither."""
        written = self.write(commit)
        self.counts["commit on the loop"] += written
        self.counts["commit left to the thread"] += not written  # it had begun to write the group
        return written

    def write(self, commit: Callable[[], T]) -> T:
        self._is_writing, self._statements = True, 0
        try:
            result = commit()
        finally:
            self._is_writing = False
        self.counts["commit"] += 1
        if self.connection.in_transaction:  # the rollback of a refused group is refused too: SQLite has ended it
            self.connection.rollback()
        return result

    # ── opening ──

    async def open_journal(self) -> MemoryFirst:
        process = PROCESS.get()
        if process is None:
            raise RuntimeError("a journal belongs to a process")
        pipe = SimulatedPipe(self, process)
        return MemoryFirst(_SimulatedJournal(self, pipe), clock=self.loop.wall_time)

    # ── what is stored, for the rules ──

    def runs(self) -> list[Run]:
        return queries.list_runs(self.connection, limit=10_000)

    def log(self, run_id: str) -> list[Entry]:
        return list(queries.all_entries(self.connection, run_id))

    def states(self) -> set[str]:
        return {
            state for (state,) in self.connection.execute("SELECT DISTINCT state FROM heads WHERE ended_at IS NULL")
        }

    def rows(self) -> Iterator[tuple[Any, ...]]:
        for table in _TABLES[:3] + _TABLES[4:]:
            yield from self.connection.execute(f"SELECT '{table}', * FROM {table}")  # noqa: S608 - our own names

    def left_open(self, processes: Collection[int]) -> list[str]:
        return [pipe.name for pipe in self.pipes.values() if pipe.is_open and id(pipe._process) in processes]


class SimulatedPipe(WakeupPipe):
    """Wakes the other processes of the world, and knows which of them live."""

    def __init__(self, store: SimulatedStore, process: Process) -> None:
        self._store = store
        self._process = process
        self.name = f"{process.name}-pipe"
        self.fd = len(store.pipes) + 1
        self.is_open = True
        store.pipes[self.name] = self
        self.discover_peers()

    def reopen(self) -> None:
        """It is never lost."""

    def drain(self) -> None:
        """It holds nothing."""

    def discover_peers(self) -> None:
        """A new process wakes all others once."""

    def is_alive(self, name: str) -> bool:
        pipe = self._store.pipes.get(name)
        return not name or pipe is None or (pipe.is_open and not pipe._process.dead)

    def remove_dead(self, keep: Collection[str]) -> None:
        """They cost nothing."""

    def wake_peers(self) -> None:
        loop = self._store.loop
        for pipe in self._store.pipes.values():
            if pipe is not self and pipe.is_open and not pipe._process.dead and pipe.fd is not None:
                loop.call_later(self._store.rng.random() * 0.001, loop.wake, pipe.fd, context=loop.outside)

    def close(self) -> None:
        self.is_open = False


class _SimulatedCommits(Commits):
    def __init__(
        self,
        store: SimulatedStore,
        *,
        after_commit: Callable[[], None],
        checkpoint: Callable[[], asyncio.Future[None]],
        on_lag: OnLag | None,
    ) -> None:
        self._store = store
        super().__init__(
            PATH,
            store.connection,
            clock=store.loop.wall_time,
            after_commit=after_commit,
            checkpoint=checkpoint,
            on_lag=on_lag,
            index_after=INDEX_AFTER,
        )

    def _start_writer(self) -> None:
        """There is no thread, and no file to be measured."""
        self._writer.compiled = True
        self._file._measure_wal = lambda: None  # type: ignore[method-assign]
        self._file.set_patience = lambda seconds: None  # type: ignore[method-assign]  # noqa: ARG005

    def _write(self, group: list[Any]) -> None:
        store = self._store
        if (
            store.writes_on_loop
            and not self._may_wait(group)
            and store.write_on_loop(lambda: self._file.write(group, wait=False))
        ):
            if store.slow_s:
                self._storage_slow_until = self._loop.time() + SLOW_PAUSE_S
            self._settle_and_checkpoint(group)
        else:
            self._loop.call_later(store.commit_delay_s(), self._commit, group, self._loop.time() + BUSY_TIMEOUT_S)

    def _commit(self, group: list[Any], patient_until: float) -> None:
        """What the writer's thread does: it waits for another process that writes."""
        if self._store.refuses == "busy" and self._loop.time() < patient_until:
            self._loop.call_later(BUSY_LOOK_S, self._commit, group, patient_until)
        else:
            self._store.write(lambda: self._writer.commit(group))

    async def close(self) -> None:
        await self._finish()


class _SimulatedReaders(Readers):
    def __init__(self, store: SimulatedStore) -> None:
        self._path = PATH
        self._store = store
        self._in_flight: set[asyncio.Future[Any]] = set()

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        query = self._store.loop.run_in_executor(None, self._query, work)
        self._in_flight.add(query)
        query.add_done_callback(self._in_flight.discard)
        return query

    def _query(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._store.connection)
        except sqlite3.DatabaseError as exc:
            raise translation(self._path, exc) from exc

    def close(self) -> None:
        """It has no thread."""

    async def until_idle(self) -> None:
        """Returns when the queries in flight have, which is what closing the threads waits for."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)


class _SimulatedJournal(SqliteJournal):
    def __init__(self, store: SimulatedStore, pipe: SimulatedPipe) -> None:
        self._store = store
        self._simulated_readers = _SimulatedReaders(store)
        super().__init__(PATH, pipe, store.connection, store.loop.wall_time)

    async def close(self) -> None:
        await super().close()
        await self._simulated_readers.until_idle()

    def _open_readers(self) -> Readers:
        return self._simulated_readers

    def _open_commits(self, on_lag: OnLag | None) -> Commits:
        return _SimulatedCommits(
            self._store, after_commit=self._pipe.wake_peers, checkpoint=self._checkpoint, on_lag=on_lag
        )
