"""Group commits: one transaction for all pending writes of all runs, by the one connection that writes.

Most groups are written in the loop's own thread, which takes less than handing them to another one. The writer's thread
takes the groups that may have to wait: for the disk, for another process that writes, or for work that grows with the
log of a run (docs/decisions/0015-commits-on-the-loop.md). SQLite releases the interpreter lock at every step. A group
that only appends is therefore one statement: one step from begin to commit, for any number of runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tailrace.errors import JournalError, StorageFailed, TailraceError
from tailrace.journal.sqlite.integrity import translation
from tailrace.journal.sqlite.places import INDEX_ROWS, index_rows, unplaced_rows
from tailrace.journal.sqlite.schema import BUSY_TIMEOUT_S, WAL_BYTES, wal_bytes
from tailrace.journal.stored import group_commit
from tailrace.journal.stored.group_commit import GroupCommit, PendingAppend, PendingCall, StoredLog, fail_interrupted
from tailrace.journal.stored.rows import EVENTS, BoundRow

if sys.platform == "linux":
    import resource

    def wait_count() -> int:
        """How often the calling thread has given up its core to wait for something: storage, a lock, a socket."""
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

else:
    _calls = itertools.count()

    def wait_count() -> int:
        """Another number at each call: this system does not tell, so the thread may have waited."""
        return next(_calls)


log = logging.getLogger("tailrace.journal")
T = TypeVar("T")
_Work: TypeAlias = Callable[[sqlite3.Connection], Any]
_Group: TypeAlias = list[PendingAppend | PendingCall[_Work]]
SLOW_S = 0.025  # a group that took the loop longer, and had to wait in between: its storage is slow
SLOW_PAUSE_S = 1.0  # for so long the writer's thread takes every group then
CHANGES_END = 1 << 32  # SQLite tells the changes of a connection in 32 bits, with a sign: busy for days, it starts over
CHECKPOINT_CHANGES = 8 * INDEX_ROWS  # rows of tokens and their places: half of `WAL_BYTES` or less
LONG_BYTES = 1 << 16  # a statement keeps a copy of what it was last given: of something longer it is made to let go
MAX_ROWS = 128  # per statement: a power of two. Compiling one takes SQLite about 25 µs a row, once

# Fills a statement up to its size; joins no head, so it inserts nothing. No nulls: for each of them `sqlite3` looks for
# an adapter, which raises and catches two errors.
_NO_ROW: BoundRow = (-1, -1, -1, -1, -1, b"", -1.0, -1)


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
        if size == 1:  # the only group of a single paced stream
            inserted += connection.execute(_insert_sql(1), some[0]).rowcount
        else:
            some += [_NO_ROW] * (size - len(some))
            inserted += connection.execute(_insert_sql(size), [*chain.from_iterable(some)]).rowcount
        if max([len(row[EVENTS]) for row in some]) > LONG_BYTES:
            with contextlib.suppress(sqlite3.Error):  # lets go of the copies, also where it fails
                connection.execute(_insert_sql(size), [None] * 8 * size)
    return inserted


def write_group(connection: sqlite3.Connection, group: _Group) -> None:
    """Writes the group in one transaction. What the database refuses of it is the error of that part."""
    appends: list[PendingAppend] = []
    rows = 0
    for part in group:
        if not isinstance(part, PendingAppend) or part.create is not None:
            break
        appends.append(part)
        rows += len(part.rows)
    if len(appends) == len(group) and rows <= MAX_ROWS:
        _insert(connection, appends)  # its own transaction
        return
    connection.execute("BEGIN IMMEDIATE")
    appends = []
    for part in group:
        if isinstance(part, PendingAppend):
            if part.create is not None:
                part.log.num = num = part.create(connection)
                part.rows = [(num, *row[1:]) for row in part.rows]
            appends.append(part)
            continue
        if appends:
            _insert(connection, appends)
            appends = []
        try:
            part.result = part.work(connection)
        except TailraceError as error:
            part.error = error
    if appends:
        _insert(connection, appends)
    connection.execute("COMMIT")


def _insert(connection: sqlite3.Connection, appends: list[PendingAppend]) -> None:
    rows = [*appends[0].rows] if len(appends) == 1 else [row for part in appends for row in part.rows]
    if rows and insert_rows(connection, rows) != len(rows):
        for part in appends:
            row = connection.execute("SELECT epoch, owner FROM heads WHERE num = ?", (part.log.num,)).fetchone()
            part.error = part.error or part.stale(*(row or (None, "")))


class Commits(GroupCommit[_Work]):
    """The loop's side: writes groups, or hands them to the writer's thread."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        *,
        clock: Callable[[], float],
        after_commit: Callable[[], None],
        checkpoint: Callable[[], asyncio.Future[None]],
        on_lag: group_commit.OnLag | None = None,
        index_after: int = INDEX_ROWS,
    ) -> None:
        """`clock` is the wall clock. `after_commit` is called in the thread that has written; `checkpoint` on the loop,
        when one is due: it begins one and returns it. After `index_after` changes the rows get their places."""
        super().__init__(clock, on_lag)
        self._checkpoint = checkpoint
        self._file = _GroupFile(path, connection, after_commit, index_after)
        self._writer = _Writer(self._file, self._settle_soon)
        self._storage_slow_until = 0.0  # on the loop's clock
        self._checkpointing: asyncio.Future[None] | None = None  # until the first group after it
        self._start_writer()

    def _start_writer(self) -> None:
        self._writer.start()

    def call(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        fsync: bool = False,
        long: bool = False,
        log: StoredLog | None = None,
    ) -> asyncio.Future[T]:
        """Runs `work` in the transaction of the next group, after everything queued before it; not at all where an
        entry of the `log` was refused. The future is done once that is committed. `long`: what `work` does grows with
        the log of a run, and the loop must not wait for it."""
        return self._call(work, fsync=fsync, long=long, log=log).future

    @property
    def failing(self) -> bool:
        return self._file.failure is not None

    def recover(self) -> None:
        """A group can be written again."""
        self._file.failure = None

    async def close(self) -> None:
        """Commits what is queued, then ends the thread."""
        await self._finish()
        self._writer.groups.put(None)
        await asyncio.to_thread(self._writer.join)

    def _write(self, group: _Group) -> None:
        began, waits = time.perf_counter(), wait_count()
        try:
            for_thread = self._may_wait(group) or not self._file.write(group, wait=False)
        except BaseException:  # Ctrl-C while the process ends: the next group must still be written
            self._loop.call_soon(self._settle, group)
            raise
        if for_thread:
            self._writer.groups.put(group)
            return
        # On a busy machine most groups that take long were kept from running, and storage has no part in that.
        if time.perf_counter() - began > SLOW_S and wait_count() != waits:
            self._storage_slow_until = self._loop.time() + SLOW_PAUSE_S
        self._settle_and_checkpoint(group)

    def _may_wait(self, group: _Group) -> bool:
        """Whether the loop must not write the group."""
        if not self._writer.compiled or self._file.index_due or self._loop.time() < self._storage_slow_until:
            return True
        if self._checkpointing is not None:  # it may have the file; the log that starts over after it is synced
            if self._checkpointing.done():
                self._checkpointing = None
            return True
        return True in [part.fsync or part.long for part in group]  # for every group of every stream: no generator

    def _settle_soon(self, group: _Group) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(self._settle_and_checkpoint, group)

    def _settle_and_checkpoint(self, group: _Group) -> None:
        self._settle(group)
        if self._file.checkpoint_due:
            self._file.checkpoint_due = False
            self._checkpointing = self._checkpoint()


class _GroupFile:
    """The file that groups are written to. One thread at a time has it: whichever has the group in flight."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, after_commit: Callable[[], None], index_after: int
    ) -> None:
        self.connection = connection
        self._index_after = index_after
        self._indexed_at = connection.total_changes
        self._path, self._path_text = path, str(path)
        self._after_commit = after_commit
        self._synchronous = "NORMAL"
        self.failure: StorageFailed | None = None  # why a group was not written; a smaller one may succeed meanwhile
        self.checkpoint_due = False
        self._checkpointed_at = connection.total_changes  # when a checkpoint was last due
        self._checkpoint_at = WAL_BYTES  # the size of the write-ahead log's file at which one is due

    def write(self, group: _Group, *, wait: bool) -> bool:
        """Writes the group; what fails is the error of its parts. Returns False, with nothing written, where another
        process writes and `wait` is false."""
        try:
            if wait:
                with self._patient():
                    self._set_synchronous(full=any(part.fsync for part in group))
                    write_group(self.connection, group)
                    if self.index_due:
                        self.index()
            else:  # none of them asks for the disk
                self._set_synchronous(full=False)
                write_group(self.connection, group)
        except sqlite3.DatabaseError as exc:
            self._roll_back()
            is_busy = isinstance(exc, sqlite3.OperationalError) and exc.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if is_busy and not wait:  # SQLite refuses before it has changed anything
                return False
            self._fail(group, translation(self._path, exc))
        except JournalError as error:
            self._roll_back()
            self._fail(group, error)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is this group's alone
            self._roll_back()
            self._fail(group, JournalError(f"{self._path}: {exc!r}"))
        except BaseException:  # the loop's thread is interrupted
            self._roll_back()
            fail_interrupted(group)
            raise
        else:
            self._measure_wal()
            self._wake_others()
        return True

    @property
    def index_due(self) -> bool:
        """Whether so many rows were written that the next group is the writer's thread's, which gives them their
        places. Other processes count their own."""
        changes = (self.connection.total_changes - self._indexed_at) % CHANGES_END
        return changes >= self._index_after

    def index(self) -> None:
        """Never raises: the group before it is committed, and rows are read without a place too. Storage that fails is
        noticed by the next group."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            index_rows(self.connection)
            self.connection.execute("COMMIT")
        except Exception as exc:  # noqa: BLE001 - whatever it is, no group may fail for it
            self._roll_back()
            log.debug("rows get their places later: %s", exc)
        self._indexed_at = self.connection.total_changes

    def index_left(self, at_least: int) -> None:
        """Where there are so many rows without a place: processes that were killed, or wrote little, have left them."""
        if unplaced_rows(self.connection) >= at_least:
            self.index()

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.connection.rollback()

    def _fail(self, group: _Group, error: JournalError) -> None:
        if isinstance(error, StorageFailed):
            self.failure = error
        for part in group:
            part.error = part.error or error

    def _set_synchronous(self, *, full: bool) -> None:
        wanted = "FULL" if full else "NORMAL"
        if wanted != self._synchronous:
            self.connection.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted

    def set_patience(self, seconds: float) -> None:
        """For how long a write waits for another process that writes."""
        self.connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    @contextlib.contextmanager
    def _patient(self) -> Iterator[None]:
        self.set_patience(BUSY_TIMEOUT_S)
        try:
            yield
        finally:
            self.set_patience(0.0)

    def _measure_wal(self) -> None:
        """Whether a checkpoint is due. A log that has started over keeps its file, so changes are counted too: the file
        grows by large rows, or where the log could not be checkpointed whole. Then it is tried again when it has grown
        by so much again."""
        changes = self.connection.total_changes
        if (changes - self._checkpointed_at) % CHANGES_END >= CHECKPOINT_CHANGES:
            self._checkpointed_at = changes
            self.checkpoint_due = True
        size = wal_bytes(self._path_text)
        if size <= WAL_BYTES:
            self._checkpoint_at = WAL_BYTES
        elif size >= self._checkpoint_at:
            self._checkpointed_at = changes
            self.checkpoint_due = True
            self._checkpoint_at = size + WAL_BYTES // 4

    def _wake_others(self) -> None:
        try:
            self._after_commit()
        except Exception:  # the group is committed and settles all the same
            log.exception("other processes could not be woken")


class _Writer(threading.Thread):
    """The thread that writes the groups that may have to wait."""

    def __init__(self, file: _GroupFile, settle: Callable[[_Group], None]) -> None:
        super().__init__(name="tailrace-journal", daemon=True)
        self._file = file
        self._settle = settle
        self.compiled = False  # the statements: the loop can write
        self.groups: queue.SimpleQueue[_Group | None] = queue.SimpleQueue()

    def run(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # the first group will raise it
            self._file.set_patience(0.0)
            compile_inserts(self._file.connection)
            self._file.index_left(INDEX_ROWS)
        self.compiled = True
        while (group := self.groups.get()) is not None:
            self.commit(group)
            del group  # the next one may be long in coming, and this one may have an answer of megabytes
        with contextlib.suppress(sqlite3.Error):
            if self._file.connection.total_changes:  # a process that has only read writes nothing
                self._file.index_left(1)
        self._file.connection.close()

    def commit(self, group: _Group) -> None:
        """Writes one group and settles it, also where the write failed."""
        self._file.write(group, wait=True)
        self._settle(group)
