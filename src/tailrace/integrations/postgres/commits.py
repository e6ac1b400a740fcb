"""Group commits on the one connection that writes.

A group that only appends is one statement: it inserts the entries of every run whose newest claim is this writer's, and
wakes the other processes. It may be sent again as it is: entries that are there are not inserted again. Any other group
is one transaction with a number. After a lost connection the same group is sent again, and the number says whether it
was committed already.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from asyncpg import PostgresError

from tailrace.errors import JournalError, StaleEpoch, StorageFailed, TailraceError
from tailrace.integrations.postgres.address import (
    Address,
    Connection,
    connect,
    is_conflict,
    is_lost,
    translation_of,
    unreachable,
)
from tailrace.integrations.postgres.outage import Outage
from tailrace.integrations.postgres.statements import add_to_counters, entries_gone
from tailrace.integrations.postgres.wakeups import Wakeup, channel_of
from tailrace.journal.sessions.session_watch import mark_of
from tailrace.journal.stored.group_commit import GroupCommit, OnLag, PendingAppend, PendingCall, StoredLog
from tailrace.journal.stored.rows import BoundRow

log = logging.getLogger("tailrace.journal")
T = TypeVar("T")
WRITE_TIMEOUT_S = 15.0  # a group that takes longer is sent again on a new connection
PAUSE_FIRST_S = 0.05  # before the second try to connect; doubled at each further one
PAUSE_MAX_S = 1.0
WAIT_S = 30.0  # for so long a group waits for the database; then its runs are released
WAIT_AT_CLOSE_S = 3.0
MAX_ENTRIES_WAITING = 200_000  # appended while the database is away; the run that appends more is released
LOOK_AGAIN_S = 0.25  # how often a write without a caller is checked until it can be withdrawn
FAIL_AGAIN_S = 0.25  # while the database is away for longer, a connection is tried once in so long


class Write(NamedTuple):
    """A write that is no append. `signals` is the run that it leaves a signal for, `begins` the session that it creates
    a run in; `changes_values` says that it is about the small state. `counts` is added to counters before the work.

    What is about counters comes last in its transaction, and all of its group in one statement, in the order of their
    names: a transaction that holds a counter waits for nothing but a later one. So no two processes deadlock."""

    work: Callable[[Connection], Awaitable[Any]]
    signals: str = ""
    begins: str = ""
    changes_values: bool = False
    is_about_counters: bool = False
    counts: Mapping[str, float] | None = None


_Group: TypeAlias = list[PendingAppend | PendingCall[Write]]

# Locking the row in `heads` is the fence: a claim waits for it, and what waited for a claim sees the newer epoch. A
# server that was promoted or restored without the newest commits gives an epoch out again, or lacks the entries before
# these: so the owner counts too, and the last entry before.
APPEND = Path(__file__).with_name("append.sql").read_text(encoding="utf-8")
SETTINGS = {  # every statement of the writer is by key: planned once, and never as a scan
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_DURABLE = ("remote_apply", "on")  # of `synchronous_commit`: what "fsync" takes as it is set
_FLUSHED = (*_DURABLE, "remote_write", "local")  # and "committed"


class Commits(GroupCommit[Write]):
    """Open it with `open`. `clock` is the wall clock. `names_runs` says whether a wake-up must name the runs that grew;
    `committed` is called with the appends of each group that was committed, `back` when the database can be written
    again after it was away."""

    def __init__(
        self,
        address: Address,
        outage: Outage,
        *,
        clock: Callable[[], float],
        names_runs: Callable[[], bool],
        committed: Callable[[Sequence[PendingAppend]], None],
        back: Callable[[], None],
        on_lag: OnLag | None = None,
    ) -> None:
        super().__init__(clock, on_lag)
        self._address = address
        self._outage = outage
        self._names_runs = names_runs
        self._committed = committed
        self._back = back
        self.token = secrets.token_hex(8)  # names this process to the others
        self._channel = channel_of(address)
        self._connection: Connection | None = None
        self._number = 0  # of the transaction
        self._fsync_setting = ""  # what `synchronous_commit` must be for "fsync", where it is not set so already
        self.clock_offset_s = 0.0  # the database's clock minus this machine's
        self._tried_at = 0.0
        self._attempt_began: float | None = None  # of the group in flight, on a connection
        self._in_doubt = False  # the group in flight may have been committed
        self._entries_waiting = 0  # since the connection was lost
        self._wait_s = WAIT_S
        self.failure: StorageFailed | None = None  # why groups are no longer waited with
        self._groups: asyncio.Queue[_Group] = asyncio.Queue()
        self._writing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises what `connect` raises."""
        self._connection = await self._connect()
        await self._connection.execute("DELETE FROM writers WHERE seen_at < now() - interval '7 days'")  # of the dead
        self._writing = self._loop.create_task(self._write_groups())

    async def call(
        self,
        work: Callable[[Connection], Awaitable[T]],
        *,
        fsync: bool = False,
        signals: str = "",
        begins: str = "",
        changes_values: bool = False,
        is_about_counters: bool = False,
        patience_s: float | None = None,
        log: StoredLog | None = None,
    ) -> T:
        """Runs `work` in the transaction of the next group, after everything queued before it. With `patience_s`,
        raises `StorageFailed` where the database has not answered for so long and the work was certainly not done. Not
        done where an entry of the `log` was refused."""
        write = Write(work, signals, begins, changes_values, is_about_counters)
        result: T = await self._written(self._call(write, fsync=fsync, log=log), patience_s)
        return result

    async def add_to_counters(
        self, amounts: Mapping[str, float], *, patience_s: float | None = None
    ) -> dict[str, float]:
        """What each is after this, with the others of its group before it."""
        write = Write(_nothing, is_about_counters=True, counts=amounts)
        counted: dict[str, float] = await self._written(self._call(write, fsync=False), patience_s)
        return counted

    async def _written(self, call: PendingCall[Write], patience_s: float | None) -> Any:
        timer = None if patience_s is None else self._loop.call_later(patience_s, self._withdraw, call, patience_s)
        try:
            return await call.future
        finally:
            if timer is not None:
                timer.cancel()

    def _withdraw(self, call: PendingCall[Write], patience_s: float) -> None:
        if call.future.done():
            return
        attempt_began = self._attempt_began
        if call in self._waiting:
            silent = attempt_began is not None and self._loop.time() - attempt_began > patience_s
            possible = silent or self._outage.since is not None
        else:
            possible = attempt_began is None and not self._in_doubt and self._outage.since is not None
        if possible:
            call.withdraw(self.away or self._outage.note_unread(TimeoutError()))
        else:
            self._loop.call_later(LOOK_AGAIN_S, self._withdraw, call, patience_s)

    @property
    def failing(self) -> bool:
        return self.failure is not None

    @property
    def away(self) -> StorageFailed | None:
        """Why nothing can be written now: the connection was lost and is not back."""
        return self.failure or (self._outage.failure if self._outage.since is not None else None)

    def no_room(self, entries: int) -> StorageFailed | None:
        """Why these entries cannot wait for the database, where they cannot."""
        if self._outage.since is None:
            return None
        self._entries_waiting += entries
        return self.away if self._entries_waiting > MAX_ENTRIES_WAITING else None

    def hurry(self) -> None:
        """The process is about to end: nothing waits long for a database that is away."""
        self._wait_s = WAIT_AT_CLOSE_S

    async def close(self) -> None:
        """Commits what is queued, then closes the connection."""
        await self._finish()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
        if self._connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(1.0):
                    await self._connection.execute("DELETE FROM writers WHERE id = $1", self.token)
                    await self._connection.close()
            self._connection.terminate()

    # ── the connection ──

    async def _connect(self) -> Connection:
        role = f"writer {self.token}"
        connection = await connect(self._address, role, **SETTINGS)
        try:
            # What is left of the connection before holds its locks until it ends.
            await connection.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = $1 AND pid <> pg_backend_pid()",
                f"tailrace {role}",
            )
            await self._set_durability(connection)
            before = time.time()
            now = await connection.fetchval("SELECT wall_clock(NULL)")
            self.clock_offset_s = now - (before + time.time()) / 2
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _set_durability(self, connection: Connection) -> None:
        """`committed` is what the server is set to, but never `off`, which loses what was acknowledged when PostgreSQL
        crashes. `fsync` waits for the standbys too, where there are synchronous ones."""
        setting = await connection.fetchval("SHOW synchronous_commit")
        if setting not in _FLUSHED:
            await connection.execute("SET synchronous_commit = local")
        self._fsync_setting = "" if setting in _DURABLE else "on"

    def _lose(self, why: Exception) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
        self._outage.begin(why)

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._tried_at = self._loop.time()
            with unreachable():
                self._connection = await self._connect()
        return self._connection

    # ── groups ──

    def _write(self, group: _Group) -> None:
        self._groups.put_nowait(group)

    async def _write_groups(self) -> None:
        while True:
            group = await self._groups.get()
            try:
                await self._commit(group)
            except JournalError as error:
                self._fail(group, error)
            except Exception as exc:  # the top of the task: one failed group must not end it
                log.exception("a group could not be written")
                self._fail(group, JournalError(f"PostgreSQL at {self._address.shown}: {exc!r}"))
            else:
                self._tell(group)
            self._settle(group)
            del group  # its logs and their tails are not kept alive until the next one comes

    def _fail(self, group: _Group, error: JournalError) -> None:
        for part in group:
            part.error = part.error or error

    def _tell(self, group: _Group) -> None:
        appends = [part for part in group if isinstance(part, PendingAppend) and part.batch and part.error is None]
        if appends:
            self._committed(appends)

    async def _commit(self, group: _Group) -> None:
        """Tries until the group is written or refused. Raises `StorageFailed` where the database is away too long."""
        if self.failure is not None and self._loop.time() - self._tried_at < FAIL_AGAIN_S:
            raise self.failure
        self._number += 1
        self._in_doubt = False
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    connection = await self._connected()
                    self._attempt_began = self._loop.time()
                    try:
                        await self._attempt(connection, group)
                    finally:
                        self._attempt_began = None
            except Exception as exc:  # noqa: BLE001 - `_commit_alone` tells each part
                if is_conflict(exc):
                    continue
                if not is_lost(exc):
                    await self._commit_alone(group, exc)
                    return
                self._lose(exc)
                self._give_up_on_time(exc)
            else:
                self.failure = None
                self._in_doubt = False
                self._entries_waiting = 0
                if self._outage.end():
                    self._back()
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _give_up_on_time(self, why: Exception) -> None:
        if self.failure is not None or self._outage.lasts(self._wait_s):
            self.failure = self._outage.failure
            raise self.failure from why

    async def _commit_alone(self, group: _Group, why: Exception) -> None:
        """A statement failed, which takes its whole transaction along: each part is tried by itself, and the one that
        fails gets the error."""
        error = translation_of(self._address, why) if isinstance(why, PostgresError) else None
        if len(group) == 1 or isinstance(error, StorageFailed):
            failure = error or JournalError(f"PostgreSQL at {self._address.shown}: {why!r}")
            for part in group:
                part.error = part.error or failure
            return
        for part in group:
            await self._commit([part])
            if isinstance(part, PendingCall):
                part.settle()  # it was done: from now on it cannot be withdrawn

    async def _attempt(self, connection: Connection, group: _Group) -> None:
        appends = [part for part in group if isinstance(part, PendingAppend)]
        fsync = bool(self._fsync_setting) and any(part.fsync for part in group)
        wakeup = self._wakeup(group)
        if len(appends) == len(group) and not fsync:
            await self._append(connection, appends, wakeup)
            return
        begin = "BEGIN; " + (f"SET LOCAL synchronous_commit = {self._fsync_setting}; " if fsync else "")
        try:
            if not await self._enter_number(connection, begin):
                return  # it was committed before the connection was lost: the results are known
            await self._write_parts(connection, group)
            self._in_doubt = True
            notify = f"NOTIFY \"{self._channel}\", '{wakeup}'; " if wakeup else ""
            await connection.execute(notify + "COMMIT")
        except Exception:
            if not connection.is_closed() and connection.is_in_transaction():
                await connection.execute("ROLLBACK")
            raise

    async def _enter_number(self, connection: Connection, begin: str) -> bool:
        """Begins the transaction. Waits for one of the same writer that is still being committed. Returns whether it
        is new: the server knows it otherwise, and it is as durable now as it must be."""
        status = await connection.execute(
            f"{begin}INSERT INTO writers (id, number) VALUES ('{self.token}', {self._number})"  # noqa: S608 - hex, int
            " ON CONFLICT (id) DO UPDATE SET number = excluded.number, seen_at = now()"
            " WHERE writers.number < excluded.number"
        )
        if status == "INSERT 0 1":
            self._in_doubt = False
            return True
        # Standbys may not have it yet: a commit after it waits for them, as it did.
        await connection.execute(f"UPDATE writers SET seen_at = now() WHERE id = '{self.token}'; COMMIT")  # noqa: S608
        return False

    async def _write_parts(self, connection: Connection, group: _Group) -> None:
        appends: list[PendingAppend] = []
        about_counters: list[PendingCall[Write]] = []
        for part in group:
            if isinstance(part, PendingAppend):
                appends.append(part)
            elif part.work.is_about_counters:
                about_counters.append(part)
            else:
                await self._append(connection, appends, "")
                appends.clear()
                await _do(part, connection)
        await self._append(connection, appends, "")
        counting = [part for part in about_counters if part.work.counts is not None and not part.withdrawn]
        if counting:
            counted = await add_to_counters(connection, [part.work.counts or {} for part in counting])
            for part, numbers in zip(counting, counted, strict=True):
                part.result, part.error = numbers, None
        for part in about_counters:
            if part.work.counts is None:
                await _do(part, connection)

    async def _append(self, connection: Connection, appends: Sequence[PendingAppend], wakeup: str) -> None:
        """Inserts the entries of each log whose claim is the newest. The others are refused."""
        appends = [part for part in appends if part.rows]
        if not appends:
            return
        claims = [(part.log.num, part.log.epoch, part.log.owner, part.batch[0].seq) for part in appends]
        rows: list[BoundRow] = [row for part in appends for row in part.rows]
        columns = [list(column) for column in (*zip(*claims, strict=True), *[*zip(*rows, strict=True)][:-1])]
        row = await connection.fetchrow(APPEND, *columns, self._channel, wakeup)
        held = set() if row is None else set(row[0])
        if len(held) < len(claims):
            await self._refuse(connection, [part for part in appends if part.log.num not in held])

    async def _refuse(self, connection: Connection, parts: Sequence[PendingAppend]) -> None:
        nums = [part.log.num for part in parts]
        found = await connection.fetch("SELECT num, epoch, owner FROM heads WHERE num = ANY($1)", nums)
        heads = {num: (epoch, owner) for num, epoch, owner in found}
        for part in parts:
            epoch, owner = heads.get(part.log.num, (None, ""))
            if (epoch, owner) == (part.log.epoch, part.log.owner):
                part.error = StaleEpoch(entries_gone(part.log.run_id, part.batch[0].seq))
                log.warning("%s", part.error)
            else:
                part.error = part.stale(None, owner)

    def _wakeup(self, group: _Group) -> str:
        """The wake-up that the other processes get with the commit."""
        grown = [part.log.run_id for part in group if isinstance(part, PendingAppend) and part.rows]
        calls = [part.work for part in group if isinstance(part, PendingCall) and not part.withdrawn]
        signalled = [write.signals for write in calls if write.signals]
        begun = [mark_of(write.begins) for write in calls if write.begins]
        values_changed = any(write.changes_values for write in calls)
        return Wakeup(self.token, grown if self._names_runs() else [], signalled, begun, values_changed).encoded()


async def _do(part: PendingCall[Write], connection: Connection) -> None:
    if part.withdrawn:
        return
    part.result = part.error = None
    try:
        part.result = await part.work.work(connection)
    except TailraceError as error:
        part.error = error


async def _nothing(_connection: Connection) -> None:
    """The work of a call that only counts."""
