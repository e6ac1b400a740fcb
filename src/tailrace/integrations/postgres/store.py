"""The journal in a PostgreSQL database: the event loop's side of it.

`stored.journal` owns which runs this process writes to; `schema` and `queries` own what is stored, `commits` when it is
written, `wakeups` when another process has written. Leases are counted by the database's clock. A dead owner is known
by its lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from tailrace import ports
from tailrace.errors import JournalError
from tailrace.events import AnyEvent, Entry, RunFailure
from tailrace.integrations.postgres import queries, statements
from tailrace.integrations.postgres.address import Address, Connection, connect, parse_address, translated
from tailrace.integrations.postgres.commits import WAIT_AT_CLOSE_S, Commits
from tailrace.integrations.postgres.following import Following
from tailrace.integrations.postgres.outage import Outage
from tailrace.integrations.postgres.readers import Readers
from tailrace.integrations.postgres.schema import prepare
from tailrace.integrations.postgres.statements import Claimant
from tailrace.integrations.postgres.wakeups import ANY, EVERYTHING, Listener, Wakeup
from tailrace.journal.bus import Bus
from tailrace.journal.live_tail import Tail
from tailrace.journal.storage_wait import PATIENCE_S
from tailrace.journal.stored.ended_runs import EndedRun
from tailrace.journal.stored.group_commit import OnLag, StoredLog
from tailrace.journal.stored.journal import StoredJournal
from tailrace.journal.stored.rows import Row, TimedRow
from tailrace.journal.stored.storage_format import FORMAT

P = ParamSpec("P")
T = TypeVar("T")
CHECK_S = 1.0  # how long a check of the database waits before it says why it cannot be written


def _read(
    query: Callable[Concatenate[Connection, P], Awaitable[T]],
) -> Callable[Concatenate[PostgresJournal, P], Coroutine[Any, Any, T]]:
    """The method that runs this query on a connection of its own."""

    async def method(self: PostgresJournal, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._readers.query(lambda connection: query(connection, *args, **kwargs))

    return method


class PostgresJournal(StoredJournal):
    """Open it with `open`. `clock` is for tests: without it, leases are counted by the database's clock. `on_lag` is
    called at each commit with the seconds that its oldest entry waited before it was shown."""

    schema_version = FORMAT

    def __init__(
        self, address: Address, clock: Callable[[], float] | None, on_lag: OnLag | None, bus: Bus | None
    ) -> None:
        self._address = address
        self._clock = clock
        self.bus = bus
        outage = Outage(address)
        self._readers = Readers(address, outage)
        self._following = Following(self._watched, self._read_grown, self._follow, bus)
        self._commits = Commits(
            address,
            outage,
            clock=self._now,
            names_runs=lambda: self._following.names_runs,
            committed=self._following.publish,
            back=self._on_back,
            on_lag=on_lag,
        )
        super().__init__(self._commits)
        self._listener = Listener(address, self._on_wakeup, partial(self._on_wakeup, EVERYTHING))
        self._tasks: list[asyncio.Task[None]] = []
        self._back = asyncio.Event()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        password: str | None = None,
        clock: Callable[[], float] | None = None,
        on_lag: OnLag | None = None,
        bus: Bus | None = None,
        make: bool = True,
    ) -> PostgresJournal:
        """`password` counts where the url has none. Raises `ConfigError` for an address that cannot work,
        `StorageFailed` where no database answers, `JournalError` for a schema that cannot be used, and
        `NothingStored` where there is none and it may not `make` one."""
        address = parse_address(url, password)
        with translated(address):
            connection = await connect(address, "schema")
            try:
                await prepare(connection, address, make=make)
            finally:
                connection.terminate()
            journal = cls(address, clock, on_lag, bus)
            await journal._commits.open()
            try:
                if bus is not None:
                    await bus.open(journal._following)
            except BaseException:
                await journal._commits.close()
                raise
        work = (journal._listener.run(), journal._following.run(), journal._release_late())
        journal._tasks = [asyncio.create_task(task) for task in work]
        return journal

    def _now(self) -> float:
        """The wall clock of the database, as well as this machine knows it: runs are sorted by it."""
        return self._clock() if self._clock is not None else time.time() + self._commits.clock_offset_s

    @property
    def _test_now(self) -> float | None:
        return None if self._clock is None else self._clock()

    # ── writes ──

    async def _insert_run(self, new: ports.NewRun, owner: str | None, lease_s: float) -> tuple[ports.Run, int | None]:
        claimant = None if owner is None else Claimant(owner, lease_s)
        create = partial(statements.create, new=new, at=self._now(), claimant=claimant, now=self._test_now)
        return await self._commits.call(
            create, fsync=new.durability == "fsync", begins=new.session, patience_s=PATIENCE_S.get()
        )

    async def record(self, ended: EndedRun) -> None:
        record = partial(statements.record, ended=ended, ended_at=self._now())
        await self._commits.call(record, begins=ended.run.new.session)
        self._sessions.on_created(ended.run.new.session)

    async def _claim_run(self, run_id: str, owner: str, lease_s: float) -> tuple[int, ports.Lease]:
        claimant = Claimant(owner, lease_s)
        return await self._commits.call(partial(statements.claim, run_id=run_id, claimant=claimant, now=self._test_now))

    async def _renew_lease(self, lease: ports.Lease, lease_s: float) -> None:
        await self._commits.call(partial(statements.renew, lease=lease, lease_s=lease_s, now=self._test_now))

    async def _release_run(self, lease: ports.Lease, *, fsync: bool) -> None:
        await self._commits.call(partial(statements.release, lease=lease), fsync=fsync)

    def _on_back(self) -> None:
        self._back.set()

    async def _release_late(self) -> None:
        """Releases what could not be released as soon as the database is back: others go on with it at once. Runs until
        it is cancelled."""
        while True:
            await self._back.wait()
            self._back.clear()
            await self._retry_releases()

    async def _park_run(self, lease: ports.Lease, failure: RunFailure, kills: int, *, fsync: bool) -> None:
        await self._commits.call(partial(statements.park, lease=lease, failure=failure, kills=kills), fsync=fsync)

    async def unpark(self, run_id: str) -> ports.Run:
        return await self._commits.call(partial(statements.unpark, run_id=run_id))

    async def _end_run(self, lease: ports.Lease, last: Entry, output_seqs: list[int] | None, *, fsync: bool) -> None:
        end = partial(statements.seal, lease=lease, last=last, output_seqs=output_seqs, now=self._now())
        await self._commits.call(end, fsync=fsync, log=self._logs.get(lease.run_id))

    async def _insert_signal(self, run_id: str, signal: ports.Signal) -> ports.Signal:
        send = partial(statements.signal, run_id=run_id, sent=signal)
        return await self._commits.call(send, signals=run_id, patience_s=PATIENCE_S.get())

    async def _compact_run(self, run_id: str, snapshot: Row, kept: Sequence[TimedRow]) -> ports.Run:
        return await self._readers.query(partial(statements.compact, run_id=run_id, snapshot=snapshot, kept=kept))

    async def _delete_run(self, run_id: str) -> None:
        await self._readers.query(partial(statements.delete, run_id=run_id))

    def _append_to(self, log: StoredLog, attempt: int, events: Sequence[AnyEvent]) -> int:
        if log.refusal is None and (full := self._commits.no_room(len(events))) is not None:
            log.refusal = full
            log.tail.fail(full)
        return super()._append_to(log, attempt, events)

    # ── reads ──

    get = _read(queries.run_of)
    run_with_key = _read(queries.run_with_key)
    runs = _read(queries.list_runs)
    sessions = _read(queries.list_sessions)
    session = _read(queries.session_of)
    _run_after = _read(queries.run_after)
    page = _read(queries.read_page)
    _read_grown = _read(queries.read_pages)
    facts_of_runs = _read(queries.facts_of_runs)
    times = _read(queries.times_of)
    _compaction = _read(queries.compacted)
    _signals_after = _read(queries.signals_after)
    get_value = _read(queries.value_of)
    list_values = _read(queries.values_in)
    counters = _read(queries.counters)

    async def orphans(self) -> list[ports.Run]:
        return await self._readers.query(partial(queries.abandoned_runs, now=self._test_now))

    def _load_lines(self, run_id: str, after: int) -> asyncio.Future[ports.LogPage]:
        return self._readers.submit(partial(queries.read_lines, run_id=run_id, after=after))

    # ── other processes ──

    def _watched(self, run_ids: Collection[str] | None) -> list[tuple[str, Tail]]:
        return self._followed(list(self._tails) if run_ids is None else run_ids)

    def _look_at(self, run_id: str) -> None:
        self._following.look_at([run_id])

    async def attach(self, run_id: str) -> Tail:
        tail = await super().attach(run_id)
        self._following.watch(run_id, tail)
        return tail

    def _hold(self, log: StoredLog) -> None:
        super()._hold(log)
        self._following.unwatch(log.run_id)

    def _drop(self, log: StoredLog, why: JournalError) -> None:
        super()._drop(log, why)
        self._following.watch(log.run_id, log.tail)

    def _on_wakeup(self, wakeup: Wakeup) -> None:
        if wakeup.sender == self._commits.token:
            return
        self._following.look_at(None if ANY in wakeup.grown else wakeup.grown)
        if wakeup.signalled:
            self._signals_announced += 1  # there may be one for a run that is being begun
        for run_id in list(self._logs) if ANY in wakeup.signalled else wakeup.signalled:
            self._announce_signal(run_id)
        if wakeup.begun:
            self._sessions.on_notify(None if ANY in wakeup.begun else wakeup.begun)
        if wakeup.values_changed:
            self._value_changed.wake_soon()

    # ── small state ──

    async def _swap_value(self, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool:
        swap = partial(statements.swap_value, namespace=namespace, key=key, old=old, new=new)
        return await self._commits.call(swap, changes_values=True, patience_s=PATIENCE_S.get())

    async def add_to_counters(self, amounts: Mapping[str, float]) -> dict[str, float]:
        named = {statements.stored_text(name, "the name"): float(amount) for name, amount in amounts.items()}
        return await self._commits.add_to_counters(named, patience_s=PATIENCE_S.get())

    async def remove_counters(self, prefix: str, before: str) -> None:
        remove = partial(statements.remove_counters, prefix=prefix, before=before)
        await self._commits.call(remove, is_about_counters=True, patience_s=PATIENCE_S.get())

    @property
    def process(self) -> str:
        return ""  # whether a process of another machine is dead, only its leases tell

    def is_dead(self, process: str) -> bool:  # noqa: ARG002 - see `process`
        return False

    async def check(self) -> None:
        if (failure := self._commits.away) is not None and not self._commits.failing:
            raise failure
        await self._readers.query(statements.probe, retry_for_s=0.0)  # first: it says at once what is wrong
        await self._commits.call(statements.probe, patience_s=CHECK_S)

    async def close(self) -> None:
        if not self._tasks:
            return
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._commits.hurry()
        with contextlib.suppress(TimeoutError):  # what cancelled callers left is released by a commit
            async with asyncio.timeout(WAIT_AT_CLOSE_S):
                await self._shielded_writes.end()
        for log in list(self._logs.values()):
            with contextlib.suppress(JournalError):
                await self._release_run(ports.Lease(log.run_id, log.epoch, log.owner), fsync=log.fsync)
        await self._commits.close()
        self._close_views()
        if self.bus is not None:
            await self.bus.close()
        self._readers.close()
        await self._shielded_writes.end()  # now that none of them can wait for a read
