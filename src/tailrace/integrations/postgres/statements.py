"""Every write but appends: create, claim, end, signal, compact, delete. Each runs inside a transaction.

A function here raises before it has written anything, so a refusal does not affect the rest of its group. The row of a
run in `heads` is locked before anything is decided about the run. `now` is None where the database's clock counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tailrace.errors import JournalError, RunOwned, RunParked, RunSealed, StaleEpoch
from tailrace.events import Entry, RunFailure, RunFinished, RunStarted
from tailrace.integrations.postgres.address import Connection
from tailrace.integrations.postgres.queries import is_text, known_id, run_of, run_with_key
from tailrace.journal.open_log import new_run_id
from tailrace.journal.stored import rows as stored
from tailrace.journal.stored.ended_runs import EndedRun
from tailrace.journal.stored.rows import TimedRow, end_of
from tailrace.ports import ENDED, Lease, NewRun, Run, Signal

PROGRESS_ROWS = 64  # read at a time when progress is looked for, newest first


def entries_gone(run_id: str, seq: int) -> str:
    return (
        f"run {run_id}: entries before {seq} that were committed are not there; was a server without the newest commits"
        " promoted or restored?"
    )


class Claimant(NamedTuple):
    owner: str
    lease_s: float


class Head(NamedTuple):
    num: int
    state: str
    epoch: int
    kills: int
    owner: str
    claimed_seq: int
    lease_holds: bool


def stored_text(value: str, what: str) -> str:
    """Raises `JournalError` for a text that PostgreSQL cannot store."""
    if not is_text(value):
        raise JournalError(f"{what} has a character that PostgreSQL cannot store")
    return value


async def locked_head(connection: Connection, run_id: str, now: float | None = None) -> Head:
    row = await connection.fetchrow(
        "SELECT h.num, h.state, h.epoch, h.kills, h.owner, h.claimed_seq,"
        " h.lease_until > wall_clock($2)"
        " FROM runs AS r JOIN heads AS h ON h.num = r.num WHERE r.id = $1 FOR NO KEY UPDATE OF h",
        known_id(run_id),
        now,
    )
    if row is None:
        raise stored.no_such_run(run_id)
    return Head._make(row)


# ── a run's life ─────────────────────────────────────────────────────────────────────────────────────────────

_INSERT_RUN = Path(__file__).with_name("insert_run.sql").read_text(encoding="utf-8")


async def create(
    connection: Connection, new: NewRun, at: float, claimant: Claimant | None, now: float | None
) -> tuple[Run, int | None]:
    """The run, and its number; None in place of the number where the key names a run that exists."""
    first = Entry(1, RunStarted(new.kind, new.model, new.session, at))
    while True:
        run_id = new_run_id(at, after=await _newest_in_session(connection, new.session))
        run = Run(run_id, new, "pending", last_seq=1, first_seq=1, created_at=at, claims=0)
        if claimant is not None:
            run = msgspec.structs.replace(run, state="running", claims=1, owner=claimant.owner)
        num = await _insert_run(connection, run, stored.timed_rows([first], [(1, at)]), claimant, now)
        if num is not None:
            return run, num
        if (known := await run_with_key(connection, new.idempotency_key)) is not None:
            return known, None  # otherwise it was deleted in between


async def _newest_in_session(connection: Connection, session: str) -> str:
    """Until the transaction ends, no other one creates a run of this session: ids grow in the order of commits."""
    if not session:
        return ""
    newest = await connection.fetchval("SELECT newest_in_session($1)", stored_text(session, "the session"))
    return newest or ""


async def record(connection: Connection, ended: EndedRun, ended_at: float) -> None:
    """Stores a whole run that has ended in memory. It may be there already, where the commit before it seemed lost."""
    run, rows = ended.run, stored.rows_as_stored(ended.run, ended.entries, ended.times)
    if await _insert_run(connection, run, rows, None, None, ended_at) is None:
        anonymous = msgspec.structs.replace(run, new=msgspec.structs.replace(run.new, idempotency_key=""))
        await _insert_run(connection, anonymous, rows, None, None, ended_at)


async def _insert_run(
    connection: Connection,
    run: Run,
    rows: Sequence[TimedRow],
    claimant: Claimant | None,
    now: float | None,
    ended_at: float | None = None,
) -> int | None:
    new, finished = run.new, run.finished
    num: int | None = await connection.fetchval(
        _INSERT_RUN,
        run.id,
        stored_text(new.kind, "the kind of the run"),
        stored_text(new.session, "the session"),
        stored_text(new.idempotency_key, "the idempotency key") or None,
        stored.encode(new),
        run.created_at,
        run.state,
        run.claims,
        run.kills,
        "" if claimant is None else stored_text(claimant.owner, "the owner"),
        None if claimant is None else claimant.lease_s,
        now,
        run.first_seq,
        None if finished is None else run.last_seq,
        None if finished is None else ended_at,
        None if finished is None else stored.encode(finished),
        *columns(rows),
    )
    return num


def columns(rows: Sequence[TimedRow]) -> tuple[list[Any], ...]:
    """The rows as arrays, one a column."""
    return tuple([row[place] for row in rows] for place in range(len(TimedRow._fields)))


async def claim(connection: Connection, run_id: str, claimant: Claimant, now: float | None) -> tuple[int, Lease]:
    head = await locked_head(connection, run_id, now)
    if head.state in ENDED:
        raise RunSealed(f"run {run_id} has ended")
    if head.state == "parked":
        raise RunParked(f"run {run_id} is parked; look at it with `tailrace show {run_id}`")
    held = head.state == "running" and head.owner != claimant.owner
    if held and head.lease_holds:
        raise RunOwned(f"run {run_id} is executed by {head.owner}", owner=head.owner)
    epoch, kills = head.epoch + 1, head.kills
    if held:  # its owner died, or hangs; the same owner that claims again is alive
        kills = 0 if await _has_progress(connection, head) else kills + 1
    await connection.execute(
        "UPDATE heads SET state = 'running', epoch = $2, kills = $3, owner = $4,"
        " lease_until = wall_clock($6) + $5, claimed_seq ="
        " coalesce((SELECT b.last_seq FROM batches AS b WHERE b.run = $1 ORDER BY b.first_seq DESC LIMIT 1), 0)"
        " WHERE num = $1",
        head.num,
        epoch,
        kills,
        stored_text(claimant.owner, "the owner"),
        claimant.lease_s,
        now,
    )
    return head.num, Lease(run_id, epoch, claimant.owner)


async def _has_progress(connection: Connection, head: Head) -> bool:
    """Newest first, a few rows at a time: the log since the claim may be long."""
    before = 1 << 30
    while True:
        rows = await connection.fetch(
            "SELECT first_seq, events FROM batches WHERE run = $1 AND last_seq > $2 AND first_seq < $3"
            " AND (position($4::bytea IN events) > 0 OR position($5::bytea IN events) > 0"
            " OR position($6::bytea IN events) > 0) ORDER BY first_seq DESC LIMIT $7",
            head.num,
            head.claimed_seq,
            before,
            *stored.PROGRESS_TYPES,
            PROGRESS_ROWS,
        )
        if any(stored.shows_progress(first_seq, events, head.claimed_seq) for first_seq, events in rows):
            return True
        if len(rows) < PROGRESS_ROWS:
            return False
        before = rows[-1][0]


async def renew(connection: Connection, lease: Lease, lease_s: float, now: float | None) -> None:
    head = await _held(connection, lease)
    await connection.execute(
        "UPDATE heads SET lease_until = wall_clock($3) + $2 WHERE num = $1", head.num, lease_s, now
    )


async def release(connection: Connection, lease: Lease) -> None:
    try:
        head = await _held(connection, lease)
    except RunSealed:
        return
    except StaleEpoch:
        await _clear_suspicion(connection, lease)
        return
    await connection.execute(
        "UPDATE heads SET state = 'pending', kills = 0, owner = '', lease_until = 0 WHERE num = $1", head.num
    )


async def _clear_suspicion(connection: Connection, lease: Lease) -> None:
    """The owner of an older claim lives: the claim after it has counted a death that was none."""
    row = await connection.fetchrow(
        "SELECT h.num, h.state, h.outcome FROM runs AS r JOIN heads AS h ON h.num = r.num"
        " WHERE r.id = $1 AND h.ended_at IS NULL AND h.kills > 0 AND h.epoch > $2 AND h.owner <> $3",
        known_id(lease.run_id),
        lease.epoch,
        lease.owner,
    )
    if row is None:
        return
    num, state, outcome = row
    await connection.execute("UPDATE heads SET kills = kills - 1 WHERE num = $1", num)
    if state == "parked" and stored.is_crash_loop(outcome):
        await connection.execute("UPDATE heads SET state = 'pending', outcome = NULL WHERE num = $1", num)


async def park(connection: Connection, lease: Lease, failure: RunFailure, kills: int) -> None:
    head = await _held(connection, lease)
    parks = head.kills >= kills
    await connection.execute(
        "UPDATE heads SET state = $2, owner = '', lease_until = 0, outcome = $3 WHERE num = $1",
        head.num,
        "parked" if parks else "pending",
        stored.encode(failure) if parks else None,
    )


async def unpark(connection: Connection, run_id: str) -> Run:
    head = await locked_head(connection, run_id)
    await connection.execute(
        "UPDATE heads SET state = 'pending', kills = 0, outcome = NULL WHERE num = $1 AND state = 'parked'", head.num
    )
    return await run_of(connection, run_id)


async def seal(connection: Connection, lease: Lease, last: Entry, output_seqs: list[int] | None, now: float) -> None:
    """After its last entry, in the same transaction."""
    head = await _held(connection, lease)
    finished = (last if output_seqs is None else stored.without_outputs(last)).event
    if not isinstance(finished, RunFinished):
        raise TypeError(last)
    status = await connection.execute(
        "WITH newest AS (SELECT last_seq FROM batches WHERE run = $1 ORDER BY first_seq DESC LIMIT 1),"
        " gone AS (DELETE FROM signals WHERE run = $1 AND EXISTS (SELECT FROM newest WHERE last_seq = $3))"
        " UPDATE heads SET state = $2, owner = '', lease_until = 0, last_seq = $3, ended_at = $4, outcome = $5,"
        " output_seqs = $6 WHERE num = $1 AND EXISTS (SELECT FROM newest WHERE last_seq = $3)",
        head.num,
        finished.status,
        last.seq,
        now,
        stored.encode(finished),
        None if output_seqs is None else msgspec.json.encode(output_seqs),
    )
    if status == "UPDATE 0":
        raise StaleEpoch(entries_gone(lease.run_id, last.seq))


async def _held(connection: Connection, lease: Lease) -> Head:
    head = await locked_head(connection, lease.run_id)
    if head.epoch != lease.epoch or head.owner not in ("", lease.owner):
        whose = f"; {head.owner} claimed it" if head.owner not in ("", lease.owner) else ""
        raise StaleEpoch(
            f"run {lease.run_id} is no longer {lease.owner}'s (claim {lease.epoch}, now {head.epoch}){whose}"
        )
    if head.state in ENDED:
        raise RunSealed(f"run {lease.run_id} has ended")
    if head.state != "running":
        raise StaleEpoch(f"run {lease.run_id} was released")
    return head


async def signal(connection: Connection, run_id: str, sent: Signal) -> Signal:
    """The lock on the run gives its signals growing ids in the order of their commits: no reader skips one."""
    name, sender = stored_text(sent.name, "the signal"), stored_text(sent.by, "the sender")
    head = await locked_head(connection, run_id)
    if head.state in ENDED:
        raise RunSealed(f"run {run_id} has ended")
    number = await connection.fetchval(
        "INSERT INTO signals (run, name, payload, sender) VALUES ($1, $2, $3, $4) RETURNING id",
        head.num,
        name,
        msgspec.json.encode(sent.payload),
        sender,
    )
    return msgspec.structs.replace(sent, id=number)


# ── keeping ──────────────────────────────────────────────────────────────────────────────────────────────────


async def compact(connection: Connection, run_id: str, snapshot: stored.Row, kept: Sequence[TimedRow]) -> Run:
    """A no-op for a run that another process has compacted meanwhile."""
    async with connection.transaction():
        head = await _ended(connection, run_id)
        first_seq = await connection.fetchval("SELECT first_seq FROM heads WHERE num = $1", head.num)
        if first_seq == 1:
            await connection.execute("DELETE FROM batches WHERE run = $1", head.num)
            await connection.execute(
                "INSERT INTO batches (run, first_seq, last_seq, attempt, crc, events, at) SELECT $1::bigint, b.* FROM"
                " unnest($2::integer[], $3::integer[], $4::integer[], $5::bigint[], $6::bytea[],"
                " $7::double precision[]) AS b",
                head.num,
                *columns(kept),
            )
            await connection.execute(
                "INSERT INTO snapshots (run, seq, attempt, crc, state) VALUES ($1, $2, $3, $4, $5)",
                head.num,
                *(snapshot.first_seq, snapshot.attempt, snapshot.crc, snapshot.events),
            )
            await connection.execute("UPDATE heads SET first_seq = $2 WHERE num = $1", head.num, snapshot.last_seq + 1)
    return await run_of(connection, run_id)


async def delete(connection: Connection, run_id: str) -> None:
    async with connection.transaction():
        head = await _ended(connection, run_id)
        for statement in (
            "DELETE FROM batches WHERE run = $1",
            "DELETE FROM snapshots WHERE run = $1",
            "DELETE FROM heads WHERE num = $1",
            "DELETE FROM runs WHERE num = $1",
        ):
            await connection.execute(statement, head.num)


async def _ended(connection: Connection, run_id: str) -> Head:
    head = await locked_head(connection, run_id)
    if head.state not in ENDED:
        raise RunOwned(f"run {run_id} has not ended", owner=head.owner)
    return head


# ── small state ──────────────────────────────────────────────────────────────────────────────────────────────


async def swap_value(connection: Connection, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool:
    place = (stored_text(namespace, "the namespace"), stored_text(key, "the key"))
    if old is None and new is None:
        return not await connection.fetchval(
            "SELECT EXISTS (SELECT FROM key_values WHERE namespace = $1 AND key = $2)", *place
        )
    if old is None:
        status = await connection.execute(
            "INSERT INTO key_values VALUES ($1, $2, $3) ON CONFLICT (namespace, key) DO NOTHING", *place, new
        )
    elif new is None:
        status = await connection.execute(
            "DELETE FROM key_values WHERE namespace = $1 AND key = $2 AND value = $3", *place, old
        )
    else:
        status = await connection.execute(
            "UPDATE key_values SET value = $4 WHERE namespace = $1 AND key = $2 AND value = $3", *place, old, new
        )
    return status.endswith(" 1")


async def add_to_counters(connection: Connection, calls: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """What each call has after those before it. In the order of the names: processes that add to the same ones wait
    for each other, and never in a circle."""
    totals: dict[str, float] = {}
    for amounts in calls:
        for name, amount in amounts.items():
            totals[name] = totals.get(name, 0.0) + amount
    names = sorted(totals)
    rows = await connection.fetch(
        "INSERT INTO counters SELECT * FROM unnest($1::text[], $2::float8[]) "
        "ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value RETURNING name, value",
        names,
        [totals[name] for name in names],
    )
    numbers = {name: value for name, value in rows}  # noqa: C416 - a record is no pair for `dict`
    results: list[dict[str, float]] = []
    for amounts in reversed(calls):
        results.append({name: numbers[name] for name in amounts})
        for name, amount in amounts.items():
            numbers[name] -= amount
    return results[::-1]


async def remove_counters(connection: Connection, prefix: str, before: str) -> None:
    """Waits for no other process: one that it is about to change is left to the next time."""
    await connection.execute(
        "DELETE FROM counters WHERE name IN (SELECT name FROM counters WHERE name >= $1 AND name < $2"
        " ORDER BY name FOR UPDATE SKIP LOCKED)",
        prefix,
        min(before, end_of(prefix)),
    )


async def probe(connection: Connection) -> None:
    """Raises what keeps the database from being read."""
    await connection.fetchval("SELECT count(*) FROM format")
