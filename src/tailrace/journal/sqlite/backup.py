"""A copy of the SQLite file that is whole, made while other processes write to it.

One read transaction spans the copy: every page, those in the write-ahead log included, is of one moment, and no writer
waits for it. The copy is made beside the target under a name that ends in `.partial`. It takes the target's name when
SQLite has found no damage in it and its tables have as many rows as the source had at that moment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from tailrace.errors import JournalError
from tailrace.journal.sqlite.integrity import check_file, check_wal, commits_in_wal, translated
from tailrace.journal.sqlite.schema import check_identity, wal_bytes
from tailrace.journal.wakeup_pipe import has_living_process

STEP_PAGES = 1024  # 4 MB: how much is copied between two calls of `on_progress`
PROGRESS_OPCODES = 1_000_000  # of SQLite's machine, between two calls while it counts or checks: some milliseconds
OnProgress = Callable[[str, int, int], None]


class Backup(NamedTuple):
    size_bytes: int
    rows: dict[str, int]  # by table


def back_up(
    source: Path,
    target: Path,
    *,
    force: bool = False,
    on_progress: OnProgress = lambda *_: None,
    step_pages: int = STEP_PAGES,
) -> Backup:
    """Copies the database at `source` to the file `target`, which its owner alone may read. `force` replaces a target
    that exists, once the copy is complete. `on_progress` is told what is being done, and how many bytes of how many; 0
    where that is not known.
    Raises `JournalError` where that cannot be done: the target is then as it was before."""
    if not source.exists():
        raise JournalError(f"there is no journal at {source}")
    _check_target(source, target, force=force)
    partial = target.with_name(target.name + ".partial")
    with _only_writer(partial):
        check_file(source)
        _check_space(source, partial)
        with translated(source):
            rows = _copy(source, partial, on_progress, step_pages)
        _verify(partial, rows, on_progress)
        _sync(partial)
        _rename(partial, target, force=force)
        _sync(target.parent)
    return Backup(target.stat().st_size, rows)


def _check_target(source: Path, target: Path, *, force: bool) -> None:
    for suffix in ("", "-wal", "-shm"):
        own = source.with_name(source.name + suffix)
        if target.absolute() == own.absolute() or (target.exists() and own.exists() and target.samefile(own)):
            raise JournalError(f"{target} is the database itself; name another file")
    if target.is_dir():
        raise JournalError(f"{target} is a directory; name a file in it")
    if not target.parent.is_dir():
        raise JournalError(f"there is no directory {target.parent}")
    if target.exists() and not force:
        raise _exists(target)


def _exists(target: Path) -> JournalError:
    return JournalError(f"{target} exists; name another file, or replace it with --force")


@contextmanager
def _only_writer(partial: Path) -> Iterator[None]:
    """Makes the empty file of the unfinished copy, holds its lock, and removes it on leaving. What a process that was
    killed has left is removed first: the kernel has released its lock."""
    leftovers = (partial, partial.with_name(partial.name + "-journal"))
    try:
        with contextlib.suppress(FileNotFoundError):
            left = os.open(partial, os.O_RDWR)
            try:
                _lock(left, partial)
                for path in leftovers:
                    path.unlink(missing_ok=True)
            finally:
                os.close(left)
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as exc:
        raise JournalError(f"{partial} cannot be written: {exc.strerror}") from exc
    try:
        _lock(descriptor, partial)
        try:
            yield
        finally:
            for path in leftovers:
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, partial: Path) -> None:
    """Raises `JournalError` where another process makes a backup of that name. Windows has no such lock."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), partial.stat()):  # else it was removed before it was locked
            return
    raise JournalError(f"another process is making a backup at {partial}")


def _check_space(source: Path, partial: Path) -> None:
    needed = source.stat().st_size + wal_bytes(source)
    free = _free_bytes(partial.parent)
    if free < needed:
        raise JournalError(
            f"the backup needs {needed / 1e6:.1f} MB in {partial.parent}, where {free / 1e6:.1f} MB are free"
        )


def _free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


def _copy(source: Path, partial: Path, on_progress: OnProgress, step_pages: int) -> dict[str, int]:
    """Returns the number of rows of each table, in the state that was copied."""
    committed = None if has_living_process(source) else commits_in_wal(source)
    # Read-only: the last connection that may write removes the write-ahead log when it is closed.
    with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as reader:
        reader.isolation_level = None
        check_identity(reader, source, known=None)
        if committed is not None:
            check_wal(source, committed)
        _call_meanwhile(reader, lambda: on_progress("counting the rows of", 0, source.stat().st_size))
        reader.execute("BEGIN")
        rows = _count_rows(reader)  # the first read: from here on the transaction sees this state
        if "runs" not in rows:
            raise JournalError(f"there is no journal at {source}")
        (page_bytes,) = reader.execute("PRAGMA page_size").fetchone()

        def show(_status: int, left: int, pages: int) -> None:
            on_progress("copied", (pages - left) * page_bytes, pages * page_bytes)

        with closing(sqlite3.connect(partial)) as writer:
            # Without a transaction of the reader's own, each commit of another process would start the copy anew.
            reader.backup(writer, pages=step_pages, progress=show)
            writer.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read where nothing can be written
        reader.execute("ROLLBACK")
    return rows


def _count_rows(connection: sqlite3.Connection) -> dict[str, int]:
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    return {
        name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608 - our own names
        for (name,) in tables
    }


def _verify(partial: Path, rows: dict[str, int], on_progress: OnProgress) -> None:
    size = partial.stat().st_size
    on_progress("verifying", 0, size)
    with translated(partial), closing(sqlite3.connect(f"{partial.absolute().as_uri()}?mode=ro", uri=True)) as copy:
        _call_meanwhile(copy, lambda: on_progress("verifying", 0, size))
        found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise JournalError(f"the backup is damaged ({found}) and was removed; tailrace doctor checks the database")
        if (there := _count_rows(copy)) != rows:
            raise JournalError(f"the backup has {there} rows where {rows} are due, and was removed")


def _call_meanwhile(connection: sqlite3.Connection, show: Callable[[], None]) -> None:
    """Calls `show` from time to time while a statement of the connection runs."""
    connection.set_progress_handler(show, PROGRESS_OPCODES)  # it returns None: the statement goes on


def _sync(path: Path) -> None:
    """To disk. Windows cannot open a directory: its names are not synced there."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename(partial: Path, target: Path, *, force: bool) -> None:
    """A file that came to be there meanwhile is replaced with `force` alone."""
    if not force:
        try:
            target.hardlink_to(partial)
        except FileExistsError as exc:
            raise _exists(target) from exc
        except OSError:  # a file system without hard links
            if target.exists():
                raise _exists(target) from None
        else:
            return
    try:
        partial.replace(target)
    except OSError as exc:
        raise JournalError(f"{target} cannot be replaced: {exc.strerror}") from exc
