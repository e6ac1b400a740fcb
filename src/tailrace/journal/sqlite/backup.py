"""A whole copy of the SQLite file, made while other processes write to it.

`VACUUM INTO` copies one moment of the database, the write-ahead log included, and no writer waits for it. The copy is
made beside the target under a name that ends in `.partial`, and gets the target's name once `quick_check` has found no
damage in it. A process that is killed meanwhile leaves the `.partial` file behind.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from tailrace.errors import JournalError
from tailrace.journal.sqlite.integrity import check_file, translated
from tailrace.journal.sqlite.schema import check_identity, wal_bytes

PROGRESS_OPCODES = 1_000_000  # of SQLite's machine, between two calls of `on_progress`: some milliseconds
OnProgress = Callable[[str, int, int], None]


class Backup(NamedTuple):
    size_bytes: int
    runs: int


def back_up(source: Path, target: Path, *, force: bool = False, on_progress: OnProgress = lambda *_: None) -> Backup:
    """Copies the database at `source` to the file `target`, which its owner alone may read. `force` replaces a target
    that exists, once the copy is complete. `on_progress` is called with what is being done, and how many bytes of how
    many; 0 where that is not known. Raises `JournalError` where the backup fails: the target is then as it was."""
    if not source.exists():
        raise JournalError(f"there is no journal at {source}")
    _check_target(source, target, force=force)
    check_file(source)
    _check_space(source, target.parent)
    partial = _new_file(target)
    try:
        _copy(source, partial, on_progress)
        runs = _verify(partial, on_progress)
        _sync(partial)
        _rename(partial, target, force=force)
        _sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)
    return Backup(target.stat().st_size, runs)


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


def _check_space(source: Path, directory: Path) -> None:
    needed = source.stat().st_size + wal_bytes(source)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise JournalError(f"the backup needs {needed / 1e6:.1f} MB in {directory}, where {free / 1e6:.1f} MB are free")


def _new_file(target: Path) -> Path:
    """An empty file for its owner alone, under a name that no other backup has."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".partial", dir=target.parent)
    except OSError as exc:
        raise JournalError(f"{target} cannot be written: {exc.strerror}") from exc
    os.close(descriptor)
    return Path(name)


def _copy(source: Path, partial: Path, on_progress: OnProgress) -> None:
    size = source.stat().st_size + wal_bytes(source)
    on_progress("copied", 0, size)
    with _read_only(source, lambda: on_progress("copied", partial.stat().st_size, size)) as reader:
        check_identity(reader, source)
        if not reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise JournalError(f"there is no journal at {source}")
        reader.execute("VACUUM INTO ?", (str(partial),))


def _verify(partial: Path, on_progress: OnProgress) -> int:
    """Returns how many runs the copy has."""
    size = partial.stat().st_size
    on_progress("verifying", 0, size)
    with _read_only(partial, lambda: on_progress("verifying", 0, size)) as copy:
        (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise JournalError(f"the backup is damaged ({found}) and was removed; tailrace doctor checks the database")
        (runs,) = copy.execute("SELECT count(*) FROM runs").fetchone()
    return int(runs)


@contextmanager
def _read_only(path: Path, show: Callable[[], None]) -> Iterator[sqlite3.Connection]:
    """Calls `show` from time to time while a statement runs; what it raises ends the statement and is raised here."""
    raised: list[BaseException] = []

    def handler() -> bool:
        try:
            show()
        except BaseException as exc:  # noqa: BLE001 - Ctrl-C too: SQLite would make an error of its own of it
            raised.append(exc)
        return bool(raised)

    # Read-only: the last connection that may write removes the write-ahead log when it is closed.
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with translated(path), closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        connection.set_progress_handler(handler, PROGRESS_OPCODES)
        try:
            yield connection
        except sqlite3.OperationalError:
            if raised:
                raise raised[0] from None
            raise


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
    """Without `force` it replaces no file, not even one that was made meanwhile."""
    try:
        if force:
            partial.replace(target)
        else:
            target.hardlink_to(partial)
    except FileExistsError as exc:
        raise _exists(target) from exc
    except OSError as exc:  # a directory without write permission, a file system without hard links
        raise JournalError(f"{target} cannot be written: {exc.strerror}; --force renames instead of linking") from exc
