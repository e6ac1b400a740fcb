"""The same as `run_store`, in a PostgreSQL schema: the statements of that store. A lease alone shows a death there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

from model_checking.run_store import LEASE_TICKS, NOW, PARKED, Head, Outcome, RunStore, StoredRun
from tailrace.events import Entry, to_json
from tailrace.integrations.postgres import queries, statements
from tailrace.integrations.postgres.address import Connection, connect, parse_address
from tailrace.integrations.postgres.commits import SETTINGS, Commits, Write
from tailrace.integrations.postgres.outage import Outage
from tailrace.integrations.postgres.schema import prepare
from tailrace.integrations.postgres.statements import Claimant
from tailrace.journal.stored.group_commit import PendingAppend, PendingCall, StoredLog
from tailrace.ports import Lease, NewRun, Run

T = TypeVar("T")
_HEAD = "state, epoch, kills, owner, '', lease_until, first_seq, last_seq, ended_at, outcome, output_seqs, claimed_seq"
_LOAD_HEAD = (
    "UPDATE heads SET state = $1, epoch = $2, kills = $3, owner = $4, lease_until = $5, first_seq = $6, last_seq = $7,"
    " ended_at = $8, outcome = $9, output_seqs = $10, claimed_seq = $11"
)
_LOAD_BATCHES = (
    "INSERT INTO batches (run, first_seq, last_seq, attempt, crc, events)"
    " SELECT $1, b.* FROM unnest($2::integer[], $3::integer[], $4::integer[], $5::bigint[], $6::bytea[]) AS b"
)
VACUUM_AFTER = 100  # states: their old rows would be read again and again
Part = PendingAppend | Callable[[Connection], Any]


class PostgresRunStore(RunStore):
    """What was written once to a state is remembered: most states differ in their processes alone."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._known: dict[Hashable, Any] = {}
        self._stored_now: StoredRun | None = None
        self._await(self._open(url))
        self.first = self._await(self._dump_rows())

    async def _open(self, url: str) -> None:
        address = parse_address(url)
        self._database = await connect(address, "model", **SETTINGS)
        await prepare(self._database, address)
        self._commits = Commits(
            address,
            Outage(address),
            clock=lambda: NOW,
            names_runs=lambda: False,
            committed=lambda _: None,
            back=lambda: None,
        )
        run, num = await statements.create(self._database, NewRun(kind="agent"), NOW, None, NOW)
        if num is None:
            raise TypeError(run)
        self.run_id, self.num = run.id, num

    def close(self) -> None:
        self._await(self._database.close())
        self._loop.close()

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def _once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        if key not in self._known:
            self._known[key] = self._await(work())
            if len(self._known) % VACUUM_AFTER == 0:
                self._await(self._database.execute("VACUUM heads, batches"))
        return self._known[key]

    # ── a state in and out ──

    async def _load_rows(self, stored: StoredRun) -> None:
        if stored == self._stored_now:
            return
        head = stored.head
        left = NOW + head.lease_left if head.lease_left else 0.0
        columns = [list(column) for column in zip(*stored.batches, strict=True)]
        await self._database.execute(_LOAD_HEAD, *head[:4], left, *head[6:])
        await self._database.execute("DELETE FROM batches")
        await self._database.execute(_LOAD_BATCHES, self.num, *columns)
        self._stored_now = stored

    async def _dump_rows(self) -> StoredRun:
        row = await self._database.fetchrow(f"SELECT {_HEAD} FROM heads")  # noqa: S608 - a constant
        assert row is not None
        head = Head._make(row)
        batches = await self._database.fetch(
            "SELECT first_seq, last_seq, attempt, crc, events FROM batches ORDER BY first_seq"
        )
        left = head._replace(lease_left=max(0.0, head.lease_left - NOW))
        self._stored_now = StoredRun(left, tuple(map(tuple, batches)))
        return self._stored_now

    # ── writes ──

    def _written(self, stored: StoredRun, *parts: Part, key: tuple[Hashable, ...]) -> Outcome:
        outcome: Outcome = self._once((stored, *key, *map(_key_of, parts)), lambda: self._transact(stored, parts))
        return outcome

    async def _transact(self, stored: StoredRun, parts: Sequence[Part]) -> Outcome:
        await self._load_rows(stored)
        group: list[PendingAppend | PendingCall[Write]] = []
        for part in parts:
            if isinstance(part, PendingAppend):
                part.freeze(NOW)
                group.append(part)
            else:
                group.append(PendingCall(Write(part), self._loop.create_future(), fsync=False))
        self._stored_now = None
        async with self._database.transaction():
            await self._commits._write_parts(self._database, group)
        results = tuple(part.result for part in group if isinstance(part, PendingCall))
        return Outcome(await self._dump_rows(), results, tuple(part.error for part in group))

    def claim(self, stored: StoredRun, owner: str, _alive: frozenset[str], *, after: float = 0.0) -> Outcome:
        claimant = Claimant(owner, LEASE_TICKS)
        claim = partial(statements.claim, run_id=self.run_id, claimant=claimant, now=NOW + after)
        return self._written(stored, claim, key=("claim", owner, after))

    def renew(self, stored: StoredRun, lease: Lease) -> Outcome:
        renew = partial(statements.renew, lease=lease, lease_s=LEASE_TICKS, now=NOW)
        return self._written(stored, renew, key=("renew", lease))

    def release(self, stored: StoredRun, lease: Lease, log: StoredLog | None) -> Outcome:
        pending = [] if log is None else [PendingAppend(log, log.fsync)]
        return self._written(stored, *pending, partial(statements.release, lease=lease), key=("release", lease))

    def park(self, stored: StoredRun, lease: Lease, log: StoredLog, kills: int) -> Outcome:
        park = partial(statements.park, lease=lease, failure=PARKED, kills=kills)
        return self._written(stored, PendingAppend(log, log.fsync), park, key=("park", lease, kills))

    def unpark(self, stored: StoredRun) -> Outcome:
        return self._written(stored, partial(statements.unpark, run_id=self.run_id), key=("unpark",))

    def append(self, stored: StoredRun, log: StoredLog) -> Outcome:
        return self._written(stored, PendingAppend(log, log.fsync), key=("append",))

    def seal(self, stored: StoredRun, lease: Lease, log: StoredLog, last: Entry) -> Outcome:
        end = partial(statements.seal, lease=lease, last=last, output_seqs=log.fold.output_seqs, now=NOW)
        return self._written(stored, PendingAppend(log, log.fsync), end, key=("seal", lease, to_json(last.event)))

    # ── reads ──

    async def _read(self, stored: StoredRun, query: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await self._load_rows(stored)
        return await query()

    def run(self, stored: StoredRun) -> Run:
        query = partial(queries.run_of, self._database, self.run_id)
        run: Run = self._once(("run", stored), lambda: self._read(stored, query))
        return run

    def entries(self, stored: StoredRun) -> tuple[Entry, ...]:
        query = partial(queries.read_page, self._database, self.run_id, 0)
        page = self._once(("entries", stored.batches), lambda: self._read(stored, query))
        return tuple(page)


def _key_of(part: Part) -> Hashable:
    if not isinstance(part, PendingAppend):
        return None
    return part.log.epoch, part.log.owner, tuple((entry.seq, to_json(entry.event)) for entry in part.log.pending)
