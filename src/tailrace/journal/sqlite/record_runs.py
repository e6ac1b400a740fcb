"""Runs that ended in memory, written whole: each table by one statement for many runs.

SQLite releases the interpreter lock at every step, so the number of steps is what a group costs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple

from tailrace.errors import JournalError
from tailrace.events import RunFinished
from tailrace.journal.sqlite.commits import insert_rows
from tailrace.journal.stored.rows import TimedRow, encode, last_line, timed_rows
from tailrace.journal.stored.unrecorded_runs import EndedRun

MAX_RUNS: Final = 64  # per statement: a power of two
_RUNS: Final = ("runs", "num, id, kind, session, new, created_at")
_HEADS: Final = (
    "heads",
    "num, state, epoch, kills, owner, pipe, lease_until, first_seq, last_seq, ended_at, outcome",
)


class EncodedRun(NamedTuple):
    """One run as it is stored, but for its number: the values of each table's columns after it."""

    run: tuple[Any, ...]
    head: tuple[Any, ...]
    rows: list[TimedRow]
    epoch: int


def encoded_run(ended: EndedRun, ended_at: float) -> EncodedRun:
    """A run without an idempotency key. Raises `JournalError` for one that cannot be written as JSON."""
    run, entries, times = ended.run, ended.entries, ended.times
    new, last = run.new, entries[-1]
    if not isinstance(last.event, RunFinished):
        raise TypeError(last)
    try:
        rows = timed_rows(entries, times)
        stored = (run.id, new.kind, new.session, encode(new), run.created_at)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:  # a lone surrogate, a strange object
        raise JournalError(f"run {run.id}: an event cannot be written as JSON: {exc}") from exc
    outcome = last_line(rows[-1].events)
    state = (last.event.status, run.claims, run.kills, "", "", 0.0, run.first_seq, last.seq, ended_at, outcome)
    return EncodedRun(stored, state, rows, run.claims)


def record_runs(connection: sqlite3.Connection, runs: Sequence[EncodedRun]) -> None:
    """Stores them under the next numbers; inside a group's transaction."""
    (newest,) = connection.execute("SELECT ifnull(max(num), 0) FROM runs").fetchone()
    numbered = list(enumerate(runs, newest + 1))
    _insert(connection, _RUNS, [(num, *each.run) for num, each in numbered])
    _insert(connection, _HEADS, [(num, *each.head) for num, each in numbered])
    insert_rows(connection, [(num, *row, each.epoch) for num, each in numbered for row in each.rows])


def _insert(connection: sqlite3.Connection, table: tuple[str, str], rows: Sequence[tuple[Any, ...]]) -> None:
    start = 0
    for size in _sizes(len(rows)):
        values = chain.from_iterable(rows[start : start + size])
        connection.execute(_insert_sql(*table, size), [*values])
        start += size


def _sizes(count: int) -> Iterable[int]:
    """Powers of two with this sum: there are few statements to compile."""
    while count:
        size = min(MAX_RUNS, 1 << (count.bit_length() - 1))
        yield size
        count -= size


@cache
def _insert_sql(table: str, columns: str, rows: int) -> str:
    marks = f"({', '.join('?' * (columns.count(',') + 1))})"
    return f"INSERT INTO {table} ({columns}) VALUES {', '.join([marks] * rows)}"  # noqa: S608 - names of ours alone
