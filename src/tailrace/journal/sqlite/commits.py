"""Group commits on the one writer thread: one transaction for all pending writes of all runs.

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
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tailrace.errors import JournalError, StorageFailed, TailraceError
from tailrace.journal.sqlite.integrity import translated
from tailrace.journal.sqlite.schema import WAL_BYTES, wal_bytes
from tailrace.journal.stored.group_commit import BoundRow, GroupCommit, OnLag, PendingAppend, PendingCall, StoredLog

log = logging.getLogger("tailrace.journal")
T = TypeVar("T")
_Work: TypeAlias = Callable[[sqlite3.Connection], Any]
_Group: TypeAlias = list[PendingAppend | PendingCall[_Work]]
MAX_ROWS = 128  # per statement: a power of two. Compiling one takes SQLite about 25 µs a row, once

_NO_ROW: BoundRow = (None,) * 8  # fills a statement up to its size; joins no head, so it inserts nothing


@cache
def _insert_sql(rows: int) -> str:
    """Inserts the rows whose epoch is the newest of their run, and no others."""
    return (
        "INSERT INTO batches (run, first_seq, last_seq, attempt, crc, events, at)"  # noqa: S608 - question marks alone
        " SELECT v.column1, v.column2, v.column3, v.column4, v.column5, v.column6, v.column7"
        f" FROM (VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * rows)}) AS v"
        " CROSS JOIN heads AS h ON h.num = v.column1 AND h.epoch = v.column8"
    )


def compile_inserts(connection: sqlite3.Connection) -> None:
    """Compiles every statement once, so that no burst waits for it. Inserts nothing."""
    for power in range(MAX_ROWS.bit_length()):
        connection.execute(_insert_sql(2**power), [None] * 8 * 2**power)


def insert_rows(connection: sqlite3.Connection, rows: list[BoundRow]) -> int:
    """Returns how many rows were inserted: fewer than given where a newer claim exists."""
    inserted = 0
    for start in range(0, len(rows), MAX_ROWS):
        some = rows[start : start + MAX_ROWS]
        size = 1 << (len(some) - 1).bit_length()
        some += [_NO_ROW] * (size - len(some))
        inserted += connection.execute(_insert_sql(size), [value for row in some for value in row]).rowcount
    return inserted


def write_group(connection: sqlite3.Connection, group: _Group) -> None:
    """Writes the group in one transaction. What the database refuses of it is the error of that part."""
    appends = [part for part in group if isinstance(part, PendingAppend)]
    if len(appends) == len(group) and sum(len(part.rows) for part in appends) <= MAX_ROWS:
        _insert(connection, appends)  # its own transaction
        return
    connection.execute("BEGIN IMMEDIATE")
    appends.clear()
    for part in group:
        if isinstance(part, PendingAppend):
            appends.append(part)
            continue
        _insert(connection, appends)
        appends.clear()
        try:
            part.result = part.work(connection)
        except TailraceError as error:
            part.error = error
    _insert(connection, appends)
    connection.execute("COMMIT")


def _insert(connection: sqlite3.Connection, appends: list[PendingAppend]) -> None:
    rows = [row for part in appends for row in part.rows]
    if rows and insert_rows(connection, rows) != len(rows):
        for part in appends:
            row = connection.execute("SELECT epoch, owner FROM heads WHERE num = ?", (part.log.num,)).fetchone()
            part.error = part.error or part.stale(*(row or (None, "")))


class Commits(GroupCommit[_Work]):
    """The loop's side: hands groups to the writer's thread."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        *,
        clock: Callable[[], float],
        after_commit: Callable[[], None],
        checkpoint: Callable[[], None],
        on_lag: OnLag | None = None,
    ) -> None:
        """`clock` is the wall clock. `after_commit` is called in the writer's thread; `checkpoint` on the loop, when
        one is due."""
        super().__init__(clock, on_lag)
        self._checkpoint = checkpoint
        self._writer = Writer(path, connection, self._settle_soon, after_commit)
        self._start_writer()

    def _start_writer(self) -> None:
        self._writer.start()

    async def call(
        self, work: Callable[[sqlite3.Connection], T], *, fsync: bool = False, log: StoredLog | None = None
    ) -> T:
        """Runs `work` in the transaction of the next group, after everything queued before it; not at all where an
        entry of the `log` was refused."""
        result: T = await self._call(work, fsync=fsync, log=log).future
        return result

    @property
    def failing(self) -> bool:
        return self._writer.failure is not None

    def recover(self) -> None:
        """A group can be written again."""
        self._writer.failure = None

    async def close(self) -> None:
        """Commits what is queued, then ends the thread."""
        await self._finish()
        self._writer.groups.put(None)
        await asyncio.to_thread(self._writer.join)

    def _write(self, group: _Group) -> None:
        self._writer.groups.put(group)

    def _settle_soon(self, group: _Group) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(self._settle_and_checkpoint, group)

    def _settle_and_checkpoint(self, group: _Group) -> None:
        self._settle(group)
        if self._writer.checkpoint_due:
            self._writer.checkpoint_due = False
            self._checkpoint()


class Writer(threading.Thread):
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
            self.commit(group)
        self._connection.close()

    def commit(self, group: _Group) -> None:
        """Writes one group and has it settled, whatever became of it."""
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
        self._set_synchronous(full=any(part.fsync for part in group))
        write_group(self._connection, group)

    def _set_synchronous(self, *, full: bool) -> None:
        wanted = "FULL" if full else "NORMAL"
        if wanted != self._synchronous:
            self._connection.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted
