"""One run in a SQLite database in memory, as a value: what a model keeps of the store in each state.

The statements are the store's own. The database is a scratch pad: a state's rows are put into it, one group is written,
and the rows are read back. Times are relative to now, so that the model needs no clock: a lease has so much left.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tailrace.errors import JournalError, TailraceError
from tailrace.events import Entry, RunFailure
from tailrace.journal.fold import fold
from tailrace.journal.live_tail import Tail
from tailrace.journal.sqlite import queries, statements
from tailrace.journal.sqlite.commits import write_group
from tailrace.journal.sqlite.schema import SCHEMA
from tailrace.journal.sqlite.statements import Claimant
from tailrace.journal.stored.group_commit import PendingAppend, PendingCall, StoredLog
from tailrace.ports import CRASH_LOOP, Lease, NewRun, Run, Signal

LEASE_TICKS = 2
NOW = 1000.0
_HEAD = (
    "state, epoch, kills, owner, pipe, lease_until, first_seq, last_seq, ended_at, outcome, output_seqs, claimed_seq"
)
_BATCH = "first_seq, last_seq, attempt, crc, events"
_SIGNAL = "id, name, payload, sender"


PARKED = RunFailure(CRASH_LOOP, "its owners died")
Batch = tuple[int, int, int, int, bytes]
SignalRow = tuple[int, str, bytes, str]


class Head(NamedTuple):
    """The row of `heads`, with what is left of the lease in place of its end."""

    state: str
    epoch: int
    kills: int
    owner: str
    pipe: str
    lease_left: float
    first_seq: int
    last_seq: int | None
    ended_at: float | None
    outcome: bytes | None
    output_seqs: bytes | None
    claimed_seq: int


class StoredRun(NamedTuple):
    """Everything that is stored of the run."""

    head: Head
    batches: tuple[Batch, ...]
    signals: tuple[SignalRow, ...] = ()

    def later(self) -> StoredRun:
        """A tick has passed."""
        return self._replace(head=self.head._replace(lease_left=max(0.0, self.head.lease_left - 1)))


class Outcome(NamedTuple):
    """What became of a group: the rows afterwards, and for each of its parts the result or the refusal."""

    stored: StoredRun
    results: tuple[Any, ...] = ()
    errors: tuple[TailraceError | None, ...] = ()

    @property
    def refusal(self) -> TailraceError | None:
        return next((error for error in self.errors if error is not None), None)


Work = Callable[[sqlite3.Connection], Any]


class RunStore:
    """The database that states are put into. `alive` are the pipes of the processes that live."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.executescript(SCHEMA)
        self._loop = asyncio.new_event_loop()
        self._future = self._loop.create_future()  # of every call: no caller waits
        run, num = statements.create(self._connection, NewRun(kind="agent"), NOW, None)
        if num is None:
            raise TypeError(run)
        self.run_id, self.num = run.id, num
        self._loaded: StoredRun | None = None
        self._logs: dict[tuple[Batch, ...], tuple[Entry, ...]] = {}
        self._claims: dict[tuple[StoredRun, str, frozenset[str], float], Outcome] = {}
        self.first = self._dump()

    def close(self) -> None:
        self._connection.close()
        self._loop.close()

    # ── a state in and out ──

    def _load(self, stored: StoredRun) -> None:
        if stored == self._loaded:
            return
        head = stored.head._replace(lease_left=NOW + stored.head.lease_left if stored.head.lease_left else 0.0)
        names = _HEAD.replace(",", " = ?,") + " = ?"
        self._connection.execute(f"UPDATE heads SET {names} WHERE num = ?", (*head, self.num))  # noqa: S608 - constants
        self._connection.execute("DELETE FROM batches")
        self._connection.executemany(
            f"INSERT INTO batches (run, {_BATCH}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
            [(self.num, *batch) for batch in stored.batches],
        )
        self._connection.execute("DELETE FROM signals")
        self._connection.execute("DELETE FROM sqlite_sequence WHERE name = 'signals'")  # ids go on from the state
        self._connection.executemany(
            f"INSERT INTO signals (run, {_SIGNAL}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
            [(self.num, *signal) for signal in stored.signals],
        )

    def _dump(self) -> StoredRun:
        head = Head._make(self._connection.execute(f"SELECT {_HEAD} FROM heads").fetchone())  # noqa: S608
        head = head._replace(lease_left=max(0.0, head.lease_left - NOW))
        batches = self._connection.execute(f"SELECT {_BATCH} FROM batches ORDER BY first_seq")  # noqa: S608
        signals = self._connection.execute(f"SELECT {_SIGNAL} FROM signals ORDER BY id")  # noqa: S608
        self._loaded = StoredRun(head, tuple(batches.fetchall()), tuple(signals.fetchall()))
        return self._loaded

    # ── writes: what one process writes in one transaction ──

    def write(self, stored: StoredRun, group: Sequence[PendingAppend | Work]) -> Outcome:
        self._load(stored)
        parts: list[PendingAppend | PendingCall[Work]] = []
        for part in group:
            if isinstance(part, PendingAppend):
                part.freeze(0.0)
                parts.append(part)
            else:
                parts.append(PendingCall(part, self._future, fsync=False))
        self._loaded = None
        self._write(parts)
        results = tuple(part.result for part in parts if isinstance(part, PendingCall))
        return Outcome(self._dump(), results, tuple(part.error for part in parts))

    def _write(self, group: list[PendingAppend | PendingCall[Work]]) -> None:
        try:
            write_group(self._connection, group)
        except sqlite3.Error as exc:  # as the writer's thread does
            self._connection.rollback()
            for part in group:
                part.error = part.error or JournalError(str(exc))

    def claim(self, stored: StoredRun, owner: str, alive: frozenset[str], *, after: float = 0.0) -> Outcome:
        """`after` so many ticks from now."""
        known = (stored, owner, alive, after)
        if known not in self._claims:  # many states differ in their processes alone
            self._claims[known] = self._claim(*known)
        return self._claims[known]

    def _claim(self, stored: StoredRun, owner: str, alive: frozenset[str], after: float) -> Outcome:
        now = NOW + after
        claimant = Claimant(owner, owner, now + LEASE_TICKS)
        is_alive = alive.__contains__
        return self.write(
            stored, [partial(statements.claim, run_id=self.run_id, claimant=claimant, now=now, is_alive=is_alive)]
        )

    def renew(self, stored: StoredRun, lease: Lease) -> Outcome:
        return self.write(stored, [partial(statements.renew, lease=lease, lease_until=NOW + LEASE_TICKS)])

    def release(self, stored: StoredRun, lease: Lease, log: StoredLog | None) -> Outcome:
        pending = [] if log is None else [PendingAppend(log, log.fsync)]
        return self.write(stored, [*pending, partial(statements.release, lease=lease)])

    def park(self, stored: StoredRun, lease: Lease, log: StoredLog, kills: int) -> Outcome:
        park = partial(statements.park, lease=lease, failure=PARKED, kills=kills)
        return self.write(stored, [PendingAppend(log, log.fsync), park])

    def unpark(self, stored: StoredRun) -> Outcome:
        return self.write(stored, [partial(statements.unpark, run_id=self.run_id)])

    def append(self, stored: StoredRun, log: StoredLog) -> Outcome:
        return self.write(stored, [PendingAppend(log, log.fsync)])

    def seal(self, stored: StoredRun, lease: Lease, log: StoredLog, last: Entry) -> Outcome:
        end = partial(statements.seal, lease=lease, entry=last, output_seqs=log.fold.output_seqs, now=NOW)
        return self.write(stored, [PendingAppend(log, log.fsync), end])

    def signal(self, stored: StoredRun, sent: Signal) -> Outcome:
        return self.write(stored, [partial(statements.signal, run_id=self.run_id, sent=sent)])

    # ── reads ──

    def run(self, stored: StoredRun) -> Run:
        self._load(stored)
        self._loaded = stored
        return queries.run_of(self._connection, self.run_id)

    def entries(self, stored: StoredRun) -> tuple[Entry, ...]:
        """Raises `CorruptLog` where the log has a gap."""
        if stored.batches not in self._logs:
            self._load(stored)
            self._loaded = stored
            self._logs[stored.batches] = tuple(queries.all_entries(self._connection, self.run_id))
        return self._logs[stored.batches]

    def signals(self, stored: StoredRun, after: int) -> list[Signal]:
        self._load(stored)
        self._loaded = stored
        return queries.signals_after(self._connection, self.run_id, after)

    def open_log(self, lease: Lease, known: Sequence[Entry]) -> StoredLog:
        """The writing end in the process that holds the lease and knows these entries."""
        return StoredLog(lease, self.num, fold(known), Tail(last_seq=len(known)), fsync=False)
