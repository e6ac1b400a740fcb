"""The connections that read: a few, opened when they are needed. A read that finds no database is tried again for a
while. Writes that need no order among others (compaction, deletion) go through these too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from tailrace.errors import JournalError
from tailrace.integrations.postgres.address import (
    Address,
    Connection,
    away,
    connect,
    is_conflict,
    is_lost,
    translated,
    unreachable,
)
from tailrace.integrations.postgres.outage import Outage
from tailrace.journal.storage_wait import PATIENCE_S

T = TypeVar("T")
CONNECTIONS = 4
RETRY_FOR_S = 10.0
PAUSE_FIRST_S = 0.05  # before the second try; doubled at each further one
PAUSE_MAX_S = 1.0


class Readers:
    """Each query has a connection for itself; those that are free are used again, the newest first."""

    def __init__(self, address: Address, outage: Outage) -> None:
        self._address = address
        self._outage = outage
        self._places = asyncio.Semaphore(CONNECTIONS)
        self._free: list[Connection] = []
        self._used: set[Connection] = set()
        self._closed = False

    async def query(self, work: Callable[[Connection], Awaitable[T]], *, retry_for_s: float = RETRY_FOR_S) -> T:
        """Raises `StorageFailed` where the database was away for `retry_for_s`, or for as long as the caller waits.
        `work` may be called again."""
        loop, pause_s, patience_s = asyncio.get_running_loop(), PAUSE_FIRST_S, PATIENCE_S.get()
        give_up_at = loop.time() + (retry_for_s if patience_s is None else min(retry_for_s, patience_s))
        while True:
            try:
                with translated(self._address):
                    result = await self._attempt(work, give_up_at)
            except _Again as again:
                if self._closed or loop.time() + pause_s > give_up_at:
                    lost = away(self._address, again.why) if self._closed else self._outage.note_unread(again.why)
                    raise lost from again.why
            else:
                self._outage.note_read()
                return result
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _attempt(self, work: Callable[[Connection], Awaitable[T]], give_up_at: float) -> T:
        async with self._place(give_up_at):
            connection: Connection | None = None
            try:
                connection = await self._connection()
                self._used.add(connection)
                result = await work(connection)
            except BaseException as exc:
                if connection is not None and not isinstance(exc, JournalError):
                    connection.terminate()  # cancelled in the middle of a query, among others
                if isinstance(exc, Exception) and (is_lost(exc) or is_conflict(exc)):
                    raise _Again(exc) from exc
                raise
            finally:
                if connection is not None:
                    self._used.discard(connection)
                    if not connection.is_closed():
                        self._free.append(connection)
            return result

    @asynccontextmanager
    async def _place(self, give_up_at: float) -> AsyncGenerator[None, None]:
        """One of the connections. While the database is away, each is held by a try that may take long: a query
        behind them waits no longer than for the database itself."""
        try:
            async with asyncio.timeout_at(give_up_at if self._outage.since is not None else None):
                await self._places.acquire()
        except TimeoutError as exc:
            raise _Again(exc) from exc
        try:
            yield
        finally:
            self._places.release()

    async def _connection(self) -> Connection:
        if self._closed:
            raise JournalError("the journal is closed")
        while self._free:
            if not (connection := self._free.pop()).is_closed():
                return connection
        with unreachable():
            return await connect(self._address, "reader")

    def submit(self, work: Callable[[Connection], Awaitable[T]]) -> asyncio.Future[T]:
        return asyncio.ensure_future(self.query(work))

    def close(self) -> None:
        """Queries in flight fail."""
        self._closed = True
        for connection in (*self._free, *self._used):
            connection.terminate()
        self._free.clear()


class _Again(Exception):
    """The same read may succeed later."""

    def __init__(self, why: Exception) -> None:
        self.why = why
        super().__init__(str(why))
