"""Every write but appends: create, claim, end, signal, compact, delete. Each runs inside a group's transaction.

A function here raises before it has written anything, so a refusal does not affect the rest of its group.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import msgspec

from tailrace.errors import RunOwned, RunParked, RunSealed, StaleEpoch
from tailrace.events import Entry, RunFailure, RunFinished, RunStarted
from tailrace.journal.open_log import new_run_id
from tailrace.journal.sqlite.commits import LONG_BYTES, insert_rows
from tailrace.journal.sqlite.places import delete_rows, newest_seq, rows_of_run
from tailrace.journal.sqlite.queries import newest_in_session, run_of, run_with_key, value_of
from tailrace.journal.stored import rows as stored_rows
from tailrace.journal.stored.ended_runs import EndedRun
from tailrace.journal.stored.rows import TimedRow, encode, no_such_run, rows_as_stored, shows_progress, without_outputs
from tailrace.ports import ENDED, Lease, NewRun, Run, Signal


class Claimant(NamedTuple):
    """The owner of a claim, the pipe by which other processes see that it lives, and the end of its lease."""

    owner: str
    pipe: str
    lease_until: float


class Head(NamedTuple):
    num: int
    state: str
    epoch: int
    kills: int
    owner: str
    pipe: str
    lease_until: float
    claimed_seq: int


def head_of(connection: sqlite3.Connection, run_id: str) -> Head:
    row = connection.execute(
        "SELECT h.num, h.state, h.epoch, h.kills, h.owner, h.pipe, h.lease_until, h.claimed_seq"
        " FROM runs AS r JOIN heads AS h ON h.num = r.num WHERE r.id = ?",
        (run_id,),
    ).fetchone()
    if row is None:
        raise no_such_run(run_id)
    return Head._make(row)


def create(connection: sqlite3.Connection, new: NewRun, at: float, claimant: Claimant | None) -> tuple[Run, int | None]:
    """The run, and its number; None in place of the number where the key names a run that exists."""
    if new.idempotency_key and (known := run_with_key(connection, new.idempotency_key)):
        return known, None
    run_id = new_run_id(at, after=newest_in_session(connection, new.session))
    run = Run(run_id, new, "pending", last_seq=1, first_seq=1, created_at=at, claims=0)
    if claimant:
        run = msgspec.structs.replace(run, state="running", claims=1, owner=claimant.owner)
    num = insert_run(connection, run, claimant or _NO_CLAIMANT)
    first = Entry(1, RunStarted(new.kind, new.model, new.session, at))
    insert_rows(connection, stored_rows.bound_rows([first], num, run.claims, at))
    return run, num


def record(connection: sqlite3.Connection, ended: EndedRun, ended_at: float) -> None:
    """Stores a whole run that has ended in memory. Where its idempotency key was taken meanwhile, it loses the key."""
    run, rows = ended.run, rows_as_stored(ended.run, ended.entries, ended.times)  # raises before anything is written
    if run.new.idempotency_key and run_with_key(connection, run.new.idempotency_key):
        run = msgspec.structs.replace(run, new=msgspec.structs.replace(run.new, idempotency_key=""))
    num = insert_run(connection, run, _NO_CLAIMANT, ended_at)
    _insert_rows(connection, num, run.claims, rows)


def insert_run(connection: sqlite3.Connection, run: Run, claimant: Claimant, ended_at: float | None = None) -> int:
    new = run.new
    num = connection.execute(
        "INSERT INTO runs (id, kind, session, idempotency_key, new, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (run.id, new.kind, new.session, new.idempotency_key or None, encode(new), run.created_at),
    ).lastrowid
    if num is None:
        raise TypeError("an insert always has a rowid")
    ended = (None, None, None) if run.finished is None else (run.last_seq, ended_at, encode(run.finished))
    connection.execute(_INSERT_HEAD, (num, run.state, run.claims, run.kills, *claimant, run.first_seq, *ended))
    return num


_NO_CLAIMANT = Claimant("", "", 0.0)
_INSERT_HEAD = (
    "INSERT INTO heads (num, state, epoch, kills, owner, pipe, lease_until, first_seq, last_seq, ended_at, outcome)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def _insert_rows(connection: sqlite3.Connection, num: int, epoch: int, rows: Iterable[TimedRow]) -> None:
    insert_rows(connection, [(num, *row, epoch) for row in rows])


def claim(
    connection: sqlite3.Connection, run_id: str, claimant: Claimant, now: float, is_alive: Callable[[str], bool]
) -> tuple[int, Lease]:
    head = head_of(connection, run_id)
    if head.state in ENDED:
        raise RunSealed(f"run {run_id} has ended")
    if head.state == "parked":
        raise RunParked(f"run {run_id} is parked; look at it with `tailrace show {run_id}`")
    held = head.state == "running" and head.owner != claimant.owner
    if held and head.lease_until > now and is_alive(head.pipe):
        raise RunOwned(f"run {run_id} is executed by {head.owner}", owner=head.owner)
    epoch, kills = head.epoch + 1, head.kills
    if held:  # its owner died, or hangs; the same owner that claims again is alive
        kills = 0 if _has_progress(connection, head) else kills + 1
    connection.execute(_CLAIM, (epoch, kills, *claimant, head.num))
    return head.num, Lease(run_id, epoch, claimant.owner)


_CLAIM = (
    "UPDATE heads SET state = 'running', epoch = ?1, kills = ?2, owner = ?3, pipe = ?4, lease_until = ?5,"  # noqa: S608
    f" claimed_seq = coalesce({newest_seq('?6')}, 0) WHERE num = ?6"
)
_ROWS_SINCE = rows_of_run("first_seq, events", placed="b.last_seq > ?2", newer="b.last_seq > ?2", newest_first=True)


def _has_progress(connection: sqlite3.Connection, head: Head) -> bool:
    """Newest first, a row at a time: the log since the claim may be long."""
    with closing(connection.execute(_ROWS_SINCE, (head.num, head.claimed_seq))) as rows:
        return any(shows_progress(first_seq, events, head.claimed_seq) for first_seq, events in rows)


def renew(connection: sqlite3.Connection, lease: Lease, lease_until: float) -> None:
    head = _held(connection, lease)
    connection.execute("UPDATE heads SET lease_until = ? WHERE num = ?", (lease_until, head.num))


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    try:
        head = _held(connection, lease)
    except RunSealed:
        return
    except StaleEpoch:
        _clear_suspicion(connection, lease)
        return
    connection.execute(
        "UPDATE heads SET state = 'pending', kills = 0, owner = '', pipe = '', lease_until = 0 WHERE num = ?",
        (head.num,),
    )


def _clear_suspicion(connection: sqlite3.Connection, lease: Lease) -> None:
    """The owner of an older claim lives: the claim after it has counted a death that was none."""
    row = connection.execute(
        "SELECT h.num, h.state, h.outcome FROM runs AS r JOIN heads AS h ON h.num = r.num"
        " WHERE r.id = ? AND h.ended_at IS NULL AND h.kills > 0 AND h.epoch > ? AND h.owner <> ?",
        (lease.run_id, lease.epoch, lease.owner),
    ).fetchone()
    if row is None:
        return
    num, state, outcome = row
    connection.execute("UPDATE heads SET kills = kills - 1 WHERE num = ?", (num,))
    if state == "parked" and stored_rows.is_crash_loop(outcome):
        connection.execute("UPDATE heads SET state = 'pending', outcome = NULL WHERE num = ?", (num,))


def park(connection: sqlite3.Connection, lease: Lease, failure: RunFailure, kills: int) -> None:
    head = _held(connection, lease)
    parks = head.kills >= kills
    connection.execute(
        "UPDATE heads SET state = ?, owner = '', pipe = '', lease_until = 0, outcome = ? WHERE num = ?",
        ("parked" if parks else "pending", encode(failure) if parks else None, head.num),
    )


def unpark(connection: sqlite3.Connection, run_id: str) -> Run:
    head = head_of(connection, run_id)
    connection.execute(
        "UPDATE heads SET state = 'pending', kills = 0, outcome = NULL WHERE num = ? AND state = 'parked'", (head.num,)
    )
    return run_of(connection, run_id)


_SEAL = (
    "UPDATE heads SET state = ?, owner = '', pipe = '', lease_until = 0, last_seq = ?, ended_at = ?, outcome = ?,"
    " output_seqs = ? WHERE num = (SELECT num FROM runs WHERE id = ?) AND epoch = ? AND state = 'running' RETURNING num"
)


def seal(connection: sqlite3.Connection, lease: Lease, entry: Entry, output_seqs: list[int] | None, now: float) -> None:
    """After its last entry, in the same transaction."""
    finished = (entry if output_seqs is None else without_outputs(entry)).event
    if not isinstance(finished, RunFinished):
        raise TypeError(entry)
    seqs = None if output_seqs is None else msgspec.json.encode(output_seqs)
    values = (finished.status, entry.seq, now, outcome := encode(finished), seqs, lease.run_id, lease.epoch)
    num = connection.execute(_SEAL, values).fetchone() or (_held(connection, lease).num,)  # which raises why not
    if len(outcome) > LONG_BYTES:
        connection.execute(_SEAL, [None] * 7)  # changes nothing
    connection.execute("DELETE FROM signals WHERE run = ?", num)


def _held(connection: sqlite3.Connection, lease: Lease) -> Head:
    head = head_of(connection, lease.run_id)
    if head.epoch != lease.epoch:
        raise StaleEpoch(f"run {lease.run_id} is no longer {lease.owner}'s (claim {lease.epoch}, now {head.epoch})")
    if head.state in ENDED:
        raise RunSealed(f"run {lease.run_id} has ended")
    if head.state != "running":
        raise StaleEpoch(f"run {lease.run_id} was released")
    return head


def signal(connection: sqlite3.Connection, run_id: str, sent: Signal) -> Signal:
    head = head_of(connection, run_id)
    if head.state in ENDED:
        raise RunSealed(f"run {run_id} has ended")
    number = connection.execute(
        "INSERT INTO signals (run, name, payload, sender) VALUES (?, ?, ?, ?)",
        (head.num, sent.name, msgspec.json.encode(sent.payload), sent.by),
    ).lastrowid
    return msgspec.structs.replace(sent, id=number)


# ── keeping ──────────────────────────────────────────────────────────────────────────────────────────────────


def compact(connection: sqlite3.Connection, run_id: str, snapshot: stored_rows.Row, kept: Sequence[TimedRow]) -> Run:
    head = _ended(connection, run_id)
    delete_rows(connection, head.num)
    _insert_rows(connection, head.num, head.epoch, kept)
    connection.execute(
        "INSERT OR REPLACE INTO snapshots (run, seq, attempt, crc, state) VALUES (?, ?, ?, ?, ?)",
        (head.num, snapshot.first_seq, snapshot.attempt, snapshot.crc, snapshot.events),
    )
    connection.execute("UPDATE heads SET first_seq = ? WHERE num = ?", (snapshot.first_seq + 1, head.num))
    return run_of(connection, run_id)


def delete(connection: sqlite3.Connection, run_id: str) -> None:
    head = _ended(connection, run_id)
    delete_rows(connection, head.num)
    for statement in (
        "DELETE FROM snapshots WHERE run = ?",
        "DELETE FROM heads WHERE num = ?",
        "DELETE FROM runs WHERE num = ?",
    ):
        connection.execute(statement, (head.num,))


def _ended(connection: sqlite3.Connection, run_id: str) -> Head:
    head = head_of(connection, run_id)
    if head.state not in ENDED:
        raise RunOwned(f"run {run_id} has not ended", owner=head.owner)
    return head


# ── the file itself ──────────────────────────────────────────────────────────────────────────────────────────────

PROBE_BYTES = 65_536
_PROBE = ("tailrace.probe", "space")


def probe(connection: sqlite3.Connection) -> None:
    """Writes about as much as a group of entries needs."""
    connection.execute("INSERT OR REPLACE INTO key_values VALUES (?, ?, zeroblob(?))", (*_PROBE, PROBE_BYTES))


def remove_probe(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM key_values WHERE namespace = ? AND key = ?", _PROBE)


# ── small state ──────────────────────────────────────────────────────────────────────────────────────────────


def swap_value(connection: sqlite3.Connection, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool:
    if value_of(connection, namespace, key) != old:
        return False
    if new is None:
        connection.execute("DELETE FROM key_values WHERE namespace = ? AND key = ?", (namespace, key))
    else:
        connection.execute("INSERT OR REPLACE INTO key_values VALUES (?, ?, ?)", (namespace, key, new))
    return True


def add_to_counters(connection: sqlite3.Connection, amounts: Mapping[str, float]) -> dict[str, float]:
    return {
        name: connection.execute(
            "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value "
            "RETURNING value",
            (name, amount),
        ).fetchone()[0]
        for name, amount in amounts.items()
    }


def remove_counters(connection: sqlite3.Connection, prefix: str, before: str) -> None:
    connection.execute(
        "DELETE FROM counters WHERE name >= ? AND name < ?", (prefix, min(before, stored_rows.end_of(prefix)))
    )
