"""The journal without a file, for tests and for trying things out: SQLite's own journal on a database in memory.

Everything is lost with the process. Reads and writes happen on the event loop: no thread, no other process.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tailrace.journal.sqlite.commits import Commits
from tailrace.journal.sqlite.schema import connect, create_tables
from tailrace.journal.sqlite.store import Readers, SqliteJournal
from tailrace.journal.wakeup_pipe import WakeupPipe

T = TypeVar("T")
_PATH = Path(":memory:")


class _LoopReaders(Readers):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            result.set_result(work(self._connection))
        except Exception as exc:  # noqa: BLE001 - raised where the result is awaited
            result.set_exception(exc)
        return result

    def close(self) -> None:
        """The connection is the writer's."""


class _LoopCommits(Commits):
    def _start_writer(self) -> None:
        """It has no thread."""

    def _write(self, group: list[Any]) -> None:
        self._file.write(group, wait=False)
        if self._file.index_due:
            self._file.index()
        self._settle(group)

    async def close(self) -> None:
        await self._finish()
        self._file.connection.close()


class MemoryJournal(SqliteJournal):
    """`clock` is the wall clock, in seconds since the epoch."""

    schema_version = 0  # nothing is stored
    _commits_type = _LoopCommits

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        connection = connect(_PATH, writer=True)
        create_tables(connection)
        super().__init__(_PATH, WakeupPipe(None), connection, clock)

    def _open_readers(self) -> Readers:
        return _LoopReaders(self._connection)

    async def _listen(self) -> None:
        """There is no other process."""

    async def check(self) -> None:
        """Memory cannot fail."""
