"""The threads that read the file, so that the loop never blocks. Reads and writes never wait for each other."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tailrace.journal.sqlite.integrity import translated
from tailrace.journal.sqlite.schema import connect

T = TypeVar("T")
THREADS = 4


class Readers:
    """Each thread has its own connection, opened at its first query."""

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
