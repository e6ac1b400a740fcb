"""Group commit: all pending writes of all runs in one transaction on the one writer thread.

Owns when and in which order things are written. The loop never waits for the disk. At most one commit is in flight;
writes that come meanwhile are part of the next group, so a slow disk makes larger groups and not a longer queue. No
entry is shown before its group is committed.

The writer thread competes with the loop for the interpreter lock, and SQLite releases the lock at every step. A group
that only appends is therefore one statement: one step from begin to commit, for any number of runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tailrace.errors import JournalError, StaleEpoch, StorageFailed, TailraceError
from tailrace.events import Entry, RunFinished
from tailrace.journal.fold import Fold
from tailrace.journal.live_tail import Tail, Waiters
from tailrace.journal.open_log import OpenLog
from tailrace.journal.sqlite.integrity import translated
from tailrace.journal.sqlite.queries import rows_of, without_outputs
from tailrace.journal.sqlite.schema import WAL_BYTES, wal_bytes
from tailrace.ports import Batch

log = logging.getLogger("tailrace.journal")
T = TypeVar("T")
OnLag: TypeAlias = Callable[[float], None]
MAX_ROWS = 128  # per statement: a power of two. Compiling one takes SQLite about 25 µs a row, once

BoundRow: TypeAlias = tuple[int | bytes | None, ...]  # run, first_seq, last_seq, attempt, crc, events, epoch
_NO_ROW: BoundRow = (None,) * 7  # fills a statement up to its size; joins no head, so it inserts nothing


@cache
def _insert_sql(rows: int) -> str:
    """Inserts the rows whose epoch is the newest of their run, and no others."""
    return (
        "INSERT INTO batches (run, first_seq, last_seq, attempt, crc, events)"  # noqa: S608 - question marks alone
        " SELECT v.column1, v.column2, v.column3, v.column4, v.column5, v.column6"
        f" FROM (VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?)'] * rows)}) AS v"
        " CROSS JOIN heads AS h ON h.num = v.column1 AND h.epoch = v.column7"
    )


def compile_inserts(connection: sqlite3.Connection) -> None:
    """Compiles every statement once, so that no burst waits for it. Inserts nothing."""
    for power in range(MAX_ROWS.bit_length()):
        connection.execute(_insert_sql(2**power), [None] * 7 * 2**power)


def insert_rows(connection: sqlite3.Connection, rows: list[BoundRow]) -> int:
    """Returns how many rows were inserted: fewer than given where a newer claim exists."""
    inserted = 0
    for start in range(0, len(rows), MAX_ROWS):
        some = rows[start : start + MAX_ROWS]
        size = 1 << (len(some) - 1).bit_length()
        some += [_NO_ROW] * (size - len(some))
        inserted += connection.execute(_insert_sql(size), [value for row in some for value in row]).rowcount
    return inserted


class StoredLog(OpenLog):
    """The writing end of a run in the file. `written_seq` is the last entry in storage, `seq` the last appended."""

    __slots__ = ("failure", "fsync", "num", "progress", "signalled", "tail", "written_seq")

    def __init__(self, run_id: str, num: int, epoch: int, fold: Fold, tail: Tail, *, fsync: bool) -> None:
        super().__init__(run_id, epoch, fold)
        self.num = num
        self.tail = tail
        self.fsync = fsync
        self.written_seq = fold.seq
        self.failure: JournalError | None = None  # why appended entries will never be written
        self.progress = Waiters()
        self.signalled = Waiters()

    def refuse(self, error: JournalError) -> None:
        self.refusal = error
        if self.written_seq < self.seq:
            self.failure = self.failure or error
        self.progress.wake()
        self.signalled.wake()


@dataclass(slots=True, eq=False)
class _PendingAppend:
    """The pending entries of one log, as one part of a group."""

    log: StoredLog
    batch: Batch = field(default_factory=Batch)
    rows: list[BoundRow] = field(default_factory=list)
    error: TailraceError | None = None

    def freeze(self) -> None:
        """Encodes the entries. On the loop: two threads that run much Python code only slow each other down."""
        self.batch = self.log.take_pending()
        entries: Sequence[Entry] = self.batch
        repeats = bool(entries) and isinstance(entries[-1].event, RunFinished) and self.log.fold.output_seqs is not None
        if repeats:  # a sequence's output: it stands in the entries of its steps
            entries = [*entries[:-1], without_outputs(entries[-1])]
        try:
            rows = list(rows_of(entries))
        except (TypeError, ValueError, OverflowError, RecursionError) as exc:  # a lone surrogate, a strange object
            self.error = JournalError(f"run {self.log.run_id}: an event cannot be written as JSON: {exc}")
            return
        self.rows = [(self.log.num, *row, self.log.epoch) for row in rows]
        if not repeats:
            self.batch.stored = b"".join([row.events for row in rows])

    def settle(self) -> None:
        if isinstance(self.error, JournalError):
            self.log.refuse(self.error)
            if isinstance(self.error, StorageFailed):
                self.log.tail.fail(self.error)  # the run waits: its viewers are told why
        elif self.batch:
            self.log.written_seq = self.batch[-1].seq
            self.log.tail.publish(self.batch)
            self.log.progress.wake()


@dataclass(slots=True, eq=False)
class _PendingCall:
    """Any other write. `work` raises a `TailraceError` only before it has written anything."""

    work: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    fsync: bool
    result: Any = None
    error: TailraceError | None = None

    def settle(self) -> None:
        if self.future.done():
            return  # the caller was cancelled
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


_Group: TypeAlias = list[_PendingAppend | _PendingCall]


class Commits:
    """The loop's side: queues writes, hands over one group at a time, settles it when it is committed."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        *,
        after_commit: Callable[[], None],
        checkpoint: Callable[[], None],
        on_lag: OnLag | None = None,
    ) -> None:
        """`after_commit` is called in the writer's thread; `checkpoint` on the loop, when one is due. `on_lag` is
        called once the entries of a group are shown, with the seconds since the oldest of them was appended."""
        self._loop = asyncio.get_running_loop()
        self._checkpoint = checkpoint
        self._on_lag = on_lag
        self._waiting_since: float | None = None  # when the oldest entry of the next group was appended
        self._in_flight_since: float | None = None  # the same of the group in flight
        self._waiting: _Group = []
        self._busy = False  # a group is in flight, or will be in this tick of the loop
        self._idle = Waiters()
        self._closed = False
        self._writer = _Writer(path, connection, self._settle_soon, after_commit)
        self._writer.start()

    def append(self, log: StoredLog) -> None:
        """Adds the log to the next group. The group takes what is pending when it is handed over."""
        if not log.queued:
            log.queued = True
            if self._waiting_since is None:
                self._waiting_since = self._loop.time()
            self._queue(_PendingAppend(log))

    async def call(self, work: Callable[[sqlite3.Connection], T], *, fsync: bool = False) -> T:
        """Runs `work` in the transaction of the next group, after everything queued before it."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue(_PendingCall(work, future, fsync))
        return await future

    @property
    def failing(self) -> bool:
        """Whether a group could not be written, and nothing has shown since that the next one can."""
        return self._writer.failure is not None

    def recover(self) -> None:
        """A group can be written again."""
        self._writer.failure = None

    async def close(self) -> None:
        """Commits what is queued, then ends the thread."""
        while self._busy:
            await self._idle.next_time().wait()
        self._closed = True
        self._writer.groups.put(None)
        await asyncio.to_thread(self._writer.join)

    def _queue(self, part: _PendingAppend | _PendingCall) -> None:
        if self._closed:
            raise JournalError("the journal is closed")
        self._waiting.append(part)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._send_group)

    def _send_group(self) -> None:
        group, self._waiting = self._waiting, []
        self._in_flight_since, self._waiting_since = self._waiting_since, None
        for part in group:
            if isinstance(part, _PendingAppend):
                part.freeze()
        self._writer.groups.put(group)

    def _settle_soon(self, group: _Group) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(self._settle, group)

    def _settle(self, group: _Group) -> None:
        appended_at = self._in_flight_since
        self._busy = bool(self._waiting)
        if self._busy:
            self._send_group()  # first, so that the writer works while viewers are woken
        for part in group:
            part.settle()
        if not self._busy:
            self._idle.wake()
        if self._writer.checkpoint_due:
            self._writer.checkpoint_due = False
            self._checkpoint()
        if appended_at is not None and self._on_lag is not None:
            self._on_lag(self._loop.time() - appended_at)


class _Writer(threading.Thread):
    """The one thread that writes."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        settle: Callable[[_Group], None],
        after_commit: Callable[[], None],
    ) -> None:
        super().__init__(name="tailrace-journal", daemon=True)
        self._path = path
        self._connection = connection
        self._settle = settle
        self._after_commit = after_commit
        self._synchronous = "NORMAL"
        self.failure: StorageFailed | None = None  # why a group was not written; a smaller one may succeed meanwhile
        self.checkpoint_due = False
        self._checkpoint_at = WAL_BYTES  # the size of the write-ahead log at which a checkpoint is due
        self.groups: queue.SimpleQueue[_Group | None] = queue.SimpleQueue()

    def run(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # the first group will raise it
            compile_inserts(self._connection)
        while (group := self.groups.get()) is not None:
            try:
                with translated(self._path):
                    self._write(group)
            except JournalError as error:
                self._fail(group, error)
            except Exception as exc:  # noqa: BLE001 - the top of the thread: one failed group must not end it
                self._fail(group, JournalError(f"{self._path}: {exc!r}"))
            else:
                self._measure_wal()
                self._wake_others()
            self._settle(group)
        self._connection.close()

    def _measure_wal(self) -> None:
        """A log that could not be checkpointed whole is tried again when it has grown by so much again."""
        size = wal_bytes(self._path)
        if size <= WAL_BYTES:
            self._checkpoint_at = WAL_BYTES
        elif size >= self._checkpoint_at:
            self.checkpoint_due = True
            self._checkpoint_at = size + WAL_BYTES // 2

    def _wake_others(self) -> None:
        try:
            self._after_commit()
        except Exception:  # the group is committed and settles all the same
            log.exception("other processes could not be woken")

    def _fail(self, group: _Group, error: JournalError) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.rollback()
        if isinstance(error, StorageFailed):
            self.failure = error
        for part in group:
            part.error = part.error or error

    def _write(self, group: _Group) -> None:
        self._set_synchronous(
            full=any(part.log.fsync if isinstance(part, _PendingAppend) else part.fsync for part in group)
        )
        appends = [part for part in group if isinstance(part, _PendingAppend)]
        if len(appends) == len(group) and sum(len(part.rows) for part in appends) <= MAX_ROWS:
            self._insert(appends)  # its own transaction
            return
        self._connection.execute("BEGIN IMMEDIATE")
        appends.clear()
        for part in group:
            if isinstance(part, _PendingAppend):
                appends.append(part)
                continue
            self._insert(appends)
            appends.clear()
            try:
                part.result = part.work(self._connection)
            except TailraceError as error:
                part.error = error
        self._insert(appends)
        self._connection.execute("COMMIT")

    def _set_synchronous(self, *, full: bool) -> None:
        wanted = "FULL" if full else "NORMAL"
        if wanted != self._synchronous:
            self._connection.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted

    def _insert(self, appends: list[_PendingAppend]) -> None:
        rows = [row for part in appends for row in part.rows]
        if rows and insert_rows(self._connection, rows) != len(rows):
            for part in appends:
                part.error = part.error or self._refusal(part.log)

    def _refusal(self, log: StoredLog) -> StaleEpoch | None:
        row = self._connection.execute("SELECT epoch, owner FROM heads WHERE num = ?", (log.num,)).fetchone()
        if row is not None and row[0] == log.epoch:
            return None
        whose = f"; {row[1]} claimed it" if row and row[1] else ""
        return StaleEpoch(f"run {log.run_id} is no longer this writer's (claim {log.epoch}){whose}")
