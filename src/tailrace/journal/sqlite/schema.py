"""The SQLite file: its tables and how it is opened.

Owns the storage format (docs/decisions/0002-one-log-per-run.md). Knows nothing of leases, viewers or threads. A row of
`batches` holds what one group commit wrote to one run: the events' JSON, one a line, numbered from `first_seq`, and the
wall clock's time of that commit in `at`. `heads` holds the columns of a run that change, in narrow rows: the claims of
a thousand runs share a few pages. `heads.pipe` is the wake-up pipe of the owner's process; what follows
`heads.claimed_seq` is the owner's own work. `places` says by run where its rows are, except the newest, which come
after `indexed.upto` (`places.py`). `heads.output_seqs` is NULL but for a sequence (`stored/rows.py`).
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from threading import Lock

from tailrace.journal.sqlite.integrity import CountedConnection, check_file, translated
from tailrace.journal.stored.storage_format import FORMAT, ForeignStore, check_format

APPLICATION_ID = 0x7A11_4ACE
WAL_PAGES_MAX = 32_768  # 128 MB: where a writer stops to clear up itself; a reader's thread does it long before
# The write-ahead log is checkpointed when it is longer, and cut to this when it starts over. Hundreds of streams write
# the same pages of the index again and again, and a checkpoint moves each of them once: at an eighth of this length
# their tokens cost a tenth more, and there are eight times as many checkpoints.
WAL_BYTES = 8 << 20
WAL_BYTES_LONG = 2 * WAL_BYTES  # readers have kept it from starting over: a checkpoint waits for them
HELD_BYTES = 1 << 20  # a checkpoint leaves more than this only where a reader holds it up
RETRY_S = 0.01  # between tries to change a file that another process changes
RESTART_TIMEOUT_S = 0.02  # how long a checkpoint waits for readers; writers wait meanwhile
RESTART_TIMEOUT_LONG_S = 0.2  # where the log is long
BUSY_TIMEOUT_S = 30.0  # how long a writer waits for another process's commit

_preparing = Lock()  # `check_file` must not come between another thread's connections here, which are not counted
SCHEMA = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")


def connect(path: Path, *, writer: bool) -> sqlite3.Connection:
    """In autocommit mode: no transaction stays open by accident. One thread at a time may use the connection."""
    connection = sqlite3.connect(
        path,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=CountedConnection,
    )
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    if not writer:
        connection.execute("PRAGMA query_only = ON")
    return connection


def checkpoint(connection: sqlite3.Connection) -> None:
    """Moves committed pages into the database file. It syncs to disk, so it must not run in the writer's thread.

    Where commits follow upon each other the log never starts over by itself. So a checkpoint that found half of
    `WAL_BYTES` has the log start over: writers wait while the few new pages are moved. The file keeps its length,
    because to cut it can take as long as a dozen commits. A reader that stays (a backup, another program) is not waited
    for, because writers would wait too: the log starts over after it, and a long one is cut then."""
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


def prepare(path: Path) -> None:
    """Makes the file ready for use: checks it, and creates the tables in a new one. Raises `CorruptLog` for a damaged
    file and `JournalError` for another program's or of another format; none of them is written to."""
    with _preparing, translated(path):
        check_file(path)
        if path.exists():
            # Read-only: the last connection that may write removes the write-ahead log when it is closed.
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                check_identity(connection, path)
        with closing(connect(path, writer=True)) as connection:
            _log_ahead(connection)
            create_tables(connection)


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


def check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Raises `ForeignStore` for another program's file, and `JournalError` for another format."""
    connection.execute("BEGIN")  # one state of the file: another process may be making the tables right now
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    connection.execute("ROLLBACK")
    if tables and application != APPLICATION_ID:
        raise ForeignStore(f"{path} is another program's database; set store.url to a file of its own")
    check_format(str(path), version)


def create_tables(connection: sqlite3.Connection) -> None:
    """In one transaction: a process that is killed meanwhile leaves an empty file behind."""
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not version:
        for statement in SCHEMA.split(";"):  # one by one: `executescript` would commit before the first
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")
