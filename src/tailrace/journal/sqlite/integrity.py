"""Whether the database file can be used: what SQLite's errors mean, and what to do about them. Reads only."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from tailrace.errors import CorruptLog, JournalError, StorageFailed

HEADER = b"SQLite format 3\x00"
_REFUSED = ("SQLITE_CANTOPEN", "SQLITE_READONLY")  # SQLite's errors for a file or directory of another user
# `.recover` may lose the places of rows, which would then never be read: without any, the next start makes them anew.
FORGET_PLACES = "DELETE FROM places; DELETE FROM indexed"
NO_SPACE = "there is no space left to write the journal; what waits goes on when there is"


def _advice(path: Path) -> str:
    return (
        f"nothing was written. Stop every tailrace process, copy {path.name}, {path.name}-wal and {path.name}-shm "
        f"to a safe place, then run: sqlite3 {path} .recover | sqlite3 recovered.db;"
        f" sqlite3 recovered.db '{FORGET_PLACES}'"
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translates SQLite's errors into `StorageFailed` and `CorruptLog`."""
    try:
        yield
    except sqlite3.DatabaseError as exc:
        raise translation(path, exc) from exc


def translation(path: Path, exc: sqlite3.DatabaseError) -> JournalError:
    """The error that stands for one of SQLite's."""
    name = getattr(exc, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or "malformed" in str(exc):
        return CorruptLog(f"{path} is damaged ({exc}); {_advice(path)}")
    if name.startswith("SQLITE_FULL"):
        return StorageFailed(f"no space left to write {path}; free some, and what waits goes on", reason=NO_SPACE)
    return StorageFailed(f"{path}: {exc}{_not_ours(path) if name.startswith(_REFUSED) else ''}")


def _not_ours(path: Path) -> str:
    place = unwritable(path)
    return f"; this user may not write to {place}, or its file system is read-only" if place is not None else ""


def unwritable(path: Path) -> Path | None:
    """What this process may not write to, of the database and its directory: SQLite makes files beside it. Where they
    are not there yet, the directory in which they would be made. A file system may be read-only for root too."""
    nearest = path.absolute().parent
    try:
        nearest = next(place for place in path.absolute().parents if place.exists())
        return next((place for place in (nearest, path) if place.exists() and not os.access(place, os.W_OK)), None)
    except PermissionError:  # a directory that may not even be looked into
        return nearest


_files_lock = RLock()  # a connection may be forgotten, and so closed, inside
_open_files: Counter[str] = Counter()


class CountedConnection(sqlite3.Connection):
    """While one is open `check_file` leaves its file alone. A process that closes any descriptor of a file loses all
    its locks on it: another process that closes the database would then remove the write-ahead log in use here."""

    def __init__(self, path: Path, *args: Any, **kwargs: Any) -> None:
        with _files_lock:
            super().__init__(path, *args, **kwargs)
            self._counted = os.path.realpath(path)
            _open_files[self._counted] += 1

    def close(self) -> None:
        super().close()
        with _files_lock:
            _open_files[self._counted] -= bool(self._counted)
            self._counted = ""

    def __del__(self) -> None:
        if getattr(self, "_counted", ""):
            self.close()


def check_file(path: Path) -> None:
    """Raises `CorruptLog` for a file that cannot be a database, or is shorter than its header says. One that this
    process has open was checked before."""
    with _files_lock:
        if not _open_files[os.path.realpath(path)]:
            _check_closed_file(path)


def _check_closed_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise JournalError(f"{path} cannot be opened: {exc.strerror}") from exc
    if not header:
        return
    if not header.startswith(HEADER) or len(header) < 100:
        raise CorruptLog(f"{path} is not a database; {_advice(path)}")
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        return  # the missing pages may be in the write-ahead log: a checkpoint writes the new size first
    page_bytes = int.from_bytes(header[16:18], "big")
    due = int.from_bytes(header[28:32], "big") * (65536 if page_bytes == 1 else page_bytes)
    size = path.stat().st_size
    if size < due:
        raise CorruptLog(f"{path} has {size} bytes where {due} are due: it was cut off; {_advice(path)}")
