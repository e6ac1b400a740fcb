"""Copies a SQLite journal into an empty PostgreSQL one.

Both store the same rows: what is copied are rows, and no event is decoded. The copy is one transaction on either side:
nothing is written to the file meanwhile, and the other side has all of it or nothing.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.errors import JournalError
from tailrace.integrations.postgres import schema as postgres_schema
from tailrace.integrations.postgres.address import Address, Connection, connect, parse_address, translated
from tailrace.integrations.postgres.queries import is_text
from tailrace.journal.sqlite import schema as sqlite_schema
from tailrace.journal.sqlite.integrity import check_file
from tailrace.journal.sqlite.integrity import translated as sqlite_translated
from tailrace.journal.wakeup_pipe import WakeupPipe

BATCH_ROWS = 2_000
BATCH_BYTES = 8 << 20  # a batch ends after the row that exceeds it
OnProgress = Callable[[str, int, int], None]


class _Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    where: str = "true"
    select: dict[str, str] = {}  # noqa: RUF012 - never changed; a column that is not copied as it is
    identity: str = ""  # the column that PostgreSQL numbers


# Heartbeats are of processes that are gone. A run that was executed by one of them is free at once.
_TABLES = (
    _Table(
        "runs",
        ("num", "id", "kind", "session", "idempotency_key", "new", "created_at"),
        identity="num",
    ),
    _Table(
        "heads",
        (
            *("num", "epoch", "kills", "first_seq", "last_seq", "claimed_seq", "lease_until", "ended_at", "state"),
            *("owner", "outcome", "output_seqs"),
        ),
        select={"lease_until": "0.0"},
    ),
    _Table("batches", ("run", "crc", "first_seq", "last_seq", "attempt", "events", "at")),
    _Table("snapshots", ("run", "crc", "seq", "attempt", "state")),
    _Table("signals", ("id", "run", "name", "payload", "sender"), identity="id"),
    _Table("key_values", ("namespace", "key", "value"), where="namespace <> 'processes.heartbeats'"),
    _Table("counters", ("name", "value")),
)


async def copy_journal(source: Path, target_url: str, *, on_progress: OnProgress = lambda *_: None) -> dict[str, int]:
    """Returns how many rows of each table were copied. `on_progress` is called after each batch with the table, how
    many of its rows are copied, and how many there are. Raises `JournalError` where the source is in use or of another
    format, or the target is not empty; then the target is as it was."""
    address = parse_address(target_url)
    with _opened(source) as connection, translated(address):
        target = await connect(address, "copy", idle_in_transaction_session_timeout="0")
        try:
            await postgres_schema.prepare(target, address)
            async with target.transaction():
                await _check_empty(target, address)
                copied = {table.name: await _copy(connection, target, table, on_progress) for table in _TABLES}
        finally:
            target.terminate()
    return copied


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The source, in a transaction that keeps every other process from writing."""
    if not path.exists():
        raise JournalError(f"there is no journal at {path}")
    check_file(path)
    pipe = WakeupPipe(path)
    try:
        if pipe.has_peers:
            raise JournalError(f"{path} is in use; stop every tailrace process that has it open, and try again")
        with sqlite_translated(path), closing(sqlite_schema.connect(path, writer=True)) as connection:
            sqlite_schema.check_identity(connection, path)
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("ROLLBACK")
    finally:
        pipe.close()


async def _check_empty(target: Connection, address: Address) -> None:
    names = ", ".join(table.name for table in _TABLES)
    await target.execute(f"LOCK TABLE {names} IN EXCLUSIVE MODE")  # a process that starts meanwhile waits
    for table in _TABLES:
        if await target.fetchval(f"SELECT EXISTS (SELECT FROM {table.name})"):  # noqa: S608 - our own names
            raise JournalError(
                f"the journal in schema {address.schema} at {address.shown} is not empty;"
                " name another with ?schema=NAME, or remove that schema"
            )


async def _copy(source: sqlite3.Connection, target: Connection, table: _Table, on_progress: OnProgress) -> int:
    (total,) = source.execute(f"SELECT count(*) FROM {table.name} WHERE {table.where}").fetchone()  # noqa: S608
    columns = ", ".join(table.select.get(column, column) for column in table.columns)
    rows = source.execute(f"SELECT {columns} FROM {table.name} WHERE {table.where}")  # noqa: S608
    copied = 0
    on_progress(table.name, 0, total)
    while batch := await asyncio.to_thread(_next_batch, rows):
        _check_texts(table, batch)
        await target.copy_records_to_table(table.name, records=batch, columns=list(table.columns))
        copied += len(batch)
        on_progress(table.name, copied, total)
    if table.identity and (newest := _newest_number(source, table)):
        await target.execute(f"SELECT setval(pg_get_serial_sequence('{table.name}', '{table.identity}'), {newest})")
    return copied


def _newest_number(source: sqlite3.Connection, table: _Table) -> int:
    """The highest that was given out, also to a row that is gone. 0 where there was none."""
    (newest,) = source.execute(f"SELECT max({table.identity}) FROM {table.name}").fetchone()  # noqa: S608
    given = source.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,)).fetchone()
    return max(newest or 0, given[0] if given else 0)


def _check_texts(table: _Table, batch: list[tuple[Any, ...]]) -> None:
    for row in batch:
        for column, value in zip(table.columns, row, strict=True):
            if isinstance(value, str) and not is_text(value):
                whose = f"run {row[1]}" if table.name == "runs" else f"{table.name} {row[0]!r}"
                raise JournalError(f"the {column} of {whose} has a character that PostgreSQL cannot store")


def _next_batch(rows: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    batch: list[tuple[Any, ...]] = []
    size = 0
    while len(batch) < BATCH_ROWS and size < BATCH_BYTES and (row := rows.fetchone()) is not None:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, (bytes, str)))
    return batch
