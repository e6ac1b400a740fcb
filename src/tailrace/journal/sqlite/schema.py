"""The SQLite file: its tables, its versions, and how it is opened.

Owns the storage format (docs/decisions/0002-one-log-per-run.md). Knows nothing of leases, viewers or threads.

A row of `batches` holds what one group commit wrote to one run: the events' JSON, one a line, numbered from
`first_seq`, and the wall clock's time of that commit in `at`, NULL where an older format has written the row. `heads`
holds what changes of a run. It is apart from `runs` so that its rows stay narrow: the claims of a
thousand runs share a few pages however long their inputs are. `places` says by run where its rows are, except the
newest, which come after `indexed.upto`: the module of that name has the queries that see them all. SQLite gives the ids
of the newest rows again when they are gone, so a trigger takes `upto` back with them, whichever process removes them:
the row of that number is there.

A sequence's output is its steps' outputs, and they are stored once, in the `StepFinished` entries. `heads.output_seqs`
lists these entries; the run's `RunFinished` and its snapshot are stored without them and completed when they are read.
NULL: everything is stored where it is read, as in a file of the first two formats.

`heads.claimed_seq` is the last entry before the newest claim: what follows is what its owner has done.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from tailrace.journal.sqlite.integrity import check_file, check_wal, commits_in_wal, translated
from tailrace.journal.stored.storage_format import ForeignStore, check_version, log_upgrade, log_upgrading

APPLICATION_ID = 0x7A11_4ACE
WAL_PAGES_MAX = 32_768  # 128 MB: where a writer stops to clear up itself; a reader's thread does it long before
# The write-ahead log is checkpointed when it is longer, and cut to this when it starts over. Hundreds of streams write
# the same pages of the index again and again, and a checkpoint moves each of them once: at an eighth of this length
# their tokens cost a tenth more, and there are eight times as many checkpoints.
WAL_BYTES = 8 << 20
WAL_BYTES_LONG = 2 * WAL_BYTES  # readers have kept it from starting over: a checkpoint waits for them
HELD_BYTES = 1 << 20  # what a checkpoint leaves where nobody but writers is busy is less
RETRY_S = 0.01  # between tries to change a file that another process changes
RESTART_TIMEOUT_S = 0.02  # how long a checkpoint waits for readers; writers wait meanwhile
RESTART_TIMEOUT_LONG_S = 0.2  # where the log is long
BUSY_TIMEOUT_S = 30.0  # how long a writer waits for another process's commit

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE runs (
        num INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        session TEXT NOT NULL,
        idempotency_key TEXT UNIQUE,
        new BLOB NOT NULL,
        created_at REAL NOT NULL
    );
    CREATE INDEX runs_by_session ON runs (session, id);
    CREATE TABLE heads (
        num INTEGER PRIMARY KEY REFERENCES runs,
        state TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        kills INTEGER NOT NULL,
        owner TEXT NOT NULL,
        bell TEXT NOT NULL,
        lease_until REAL NOT NULL,
        first_seq INTEGER NOT NULL,
        last_seq INTEGER,
        ended_at REAL,
        outcome BLOB
    );
    CREATE INDEX heads_unfinished ON heads (num) WHERE ended_at IS NULL;
    CREATE INDEX heads_ended ON heads (ended_at) WHERE ended_at IS NOT NULL;
    CREATE TABLE batches (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs,
        first_seq INTEGER NOT NULL,
        last_seq INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        events BLOB NOT NULL
    );
    CREATE UNIQUE INDEX batches_by_run ON batches (run, first_seq);
    CREATE TABLE snapshots (
        run INTEGER PRIMARY KEY REFERENCES runs,
        seq INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        state BLOB NOT NULL
    );
    CREATE TABLE signals (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run INTEGER NOT NULL REFERENCES runs,
        name TEXT NOT NULL,
        payload BLOB NOT NULL,
        sender TEXT NOT NULL
    );
    CREATE INDEX signals_by_run ON signals (run, id);
    """,
    """
    CREATE TABLE key_values (
        namespace TEXT NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (namespace, key)
    ) WITHOUT ROWID
    """,
    """
    ALTER TABLE heads ADD COLUMN output_seqs BLOB
    """,
    """
    ALTER TABLE heads ADD COLUMN claimed_seq INTEGER NOT NULL DEFAULT 0
    """,
    """
    ALTER TABLE batches ADD COLUMN at REAL;
    CREATE INDEX IF NOT EXISTS runs_by_kind ON runs (kind, session, id);
    """,
    """
    CREATE TABLE counters (
        name TEXT PRIMARY KEY,
        value REAL NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE places (
        run INTEGER NOT NULL,
        first_seq INTEGER NOT NULL,
        id INTEGER NOT NULL,
        PRIMARY KEY (run, first_seq)
    ) WITHOUT ROWID;
    INSERT INTO places SELECT run, first_seq, id FROM batches ORDER BY run, first_seq;
    CREATE TABLE indexed (
        one INTEGER PRIMARY KEY,
        upto INTEGER NOT NULL
    );
    INSERT INTO indexed SELECT 1, coalesce(max(id), 0) FROM batches;
    CREATE TRIGGER batches_removed AFTER DELETE ON batches WHEN OLD.id <= (SELECT upto FROM indexed) BEGIN
        DELETE FROM places WHERE run = OLD.run AND first_seq = OLD.first_seq AND id = OLD.id;
        UPDATE indexed SET upto = (SELECT coalesce(max(id), 0) FROM batches WHERE id < OLD.id)
            WHERE upto = OLD.id;
    END;
    DROP INDEX batches_by_run;
    """,
)


def connect(path: Path, *, writer: bool) -> sqlite3.Connection:
    """In autocommit mode: no transaction stays open by accident. One thread at a time may use the connection."""
    sqlite3.register_adapter(bytes, bytes)  # as it is: without one `sqlite3` raises and catches two errors per value
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    if not writer:
        connection.execute("PRAGMA query_only = ON")
    return connection


def checkpoint(connection: sqlite3.Connection) -> None:
    """Moves committed pages into the database file. It syncs to disk, so it must not run in the writer's thread.

    Where commits follow upon each other the log never starts over by itself: each finds pages in it that came while the
    others were moved. So a checkpoint that found half of `WAL_BYTES` has the log start over: writers wait while the
    few new pages are moved. The file keeps its length, because to cut it can take as long as a dozen commits. A reader
    that stays (a backup, another program) is not waited for, because writers would wait too: the log starts over after
    it, and a long one is cut then."""
    busy, pages, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    is_held = bool(busy) or (pages - moved) * page_bytes > HELD_BYTES  # by another checkpoint, or by such a reader
    if is_held or pages * page_bytes < WAL_BYTES // 2:
        return
    is_long = pages * page_bytes > WAL_BYTES_LONG
    timeout_s = RESTART_TIMEOUT_LONG_S if is_long else RESTART_TIMEOUT_S
    connection.execute(f"PRAGMA busy_timeout = {int(timeout_s * 1000)}")
    try:
        connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if is_long else 'RESTART'})").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")


def wal_bytes(path: Path | str) -> int:
    """The size of the write-ahead log. A path as text costs less, once a commit."""
    try:
        return os.stat(f"{path}-wal").st_size  # noqa: PTH116 - once a commit: a `Path` costs more than the call
    except OSError:
        return 0


def prepare(path: Path, *, alone: bool = True, upgrade: bool = True, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Makes the file ready for use: creates it, checks it, brings it to this version. `alone` says that no other
    process has it open. Raises `CorruptLog` for one that is damaged, `JournalError` for one that is not ours or
    is too new, and `OlderFormat` for one that is older where it may not `upgrade` it; none of them is written to."""
    check_file(path)
    committed = commits_in_wal(path) if alone else None
    with translated(path):
        if path.exists():
            # Read-only: the last connection that may write removes the write-ahead log when it is closed.
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                check_identity(connection, path, known=len(migrations), upgrade=upgrade)
                if committed is not None:
                    check_wal(path, committed)
        with closing(connect(path, writer=True)) as connection:
            _log_ahead(connection)
            began_at = time.monotonic()
            began = _migrate(connection, migrations, str(path))
            log_upgrade(str(path), began, len(migrations), time.monotonic() - began_at)


def _log_ahead(connection: sqlite3.Connection) -> None:
    """SQLite refuses the change at once, whatever the time-out, while another process makes it."""
    until = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(RETRY_S)
        else:
            return


def check_identity(connection: sqlite3.Connection, path: Path, *, known: int | None, upgrade: bool = True) -> None:
    """Raises `ForeignStore` for another program's file, and `JournalError` for a format newer than `known`. None: any
    format."""
    connection.execute("BEGIN")  # one state of the file: another process may be making the tables right now
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    connection.execute("ROLLBACK")
    if tables and application != APPLICATION_ID:
        raise ForeignStore(f"{path} is another program's database; set store.url to a file of its own")
    if known is not None:
        check_version(str(path), version, known, upgrade=upgrade)


def _migrate(connection: sqlite3.Connection, migrations: Sequence[str], where: str) -> int:
    """Each version is one transaction, so a process that dies in between leaves a complete version behind. Returns the
    version from which this process has begun, the newest one where another process has made it."""
    began = len(migrations)
    for number, script in enumerate(migrations, start=1):
        connection.execute("BEGIN IMMEDIATE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version < number:
            if version < began:  # the first of them
                began = version
                log_upgrading(where, version, len(migrations), _count_rows(connection) if version else None)
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    return began


def _count_rows(connection: sqlite3.Connection) -> int:
    """About how many rows the log has, without reading them: those that were removed are among them."""
    (newest,) = connection.execute("SELECT coalesce(max(id), 0) FROM batches").fetchone()
    return int(newest)


def _statements(script: str) -> Iterator[str]:
    """One by one: `executescript` would commit before the first. A trigger has statements of its own inside."""
    statement = ""
    for part in script.split(";"):
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
