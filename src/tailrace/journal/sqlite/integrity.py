"""Whether the database file is intact. Finds damage that SQLite itself would not report, and says what to do.

Reads only. SQLite recovers a write-ahead log up to its last good frame and does not report the commits after a bad
one; this module finds them before anything is written over them.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tailrace.errors import CorruptLog, JournalError, StorageFailed

HEADER = b"SQLite format 3\x00"
WAL_HEADER_BYTES = 32  # sqlite.org/fileformat2.html, section 4.1: magic, format, page size, checkpoint, salts, sums
FRAME_HEADER_BYTES = 24  # page number, size of the database after a commit, salts, sums
SHM_MX_FRAME_OFFSET = 16  # sqlite.org/walformat.html, section 2.1: `mxFrame`, in native byte order


_REFUSED = ("SQLITE_CANTOPEN", "SQLITE_READONLY")  # what SQLite says of a file or directory of another user's
# Of what `.recover` brings back, rows whose places are lost would never be read: the next start makes all places anew.
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


def check_file(path: Path) -> None:
    """Raises `CorruptLog` for a file that cannot be a database, or is shorter than it says it is."""
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


class WalCommits(NamedTuple):
    """The commits of a write-ahead log by their last frame, whether or not the frames before it are intact."""

    salts: bytes
    frames: list[int]


def commits_in_wal(path: Path) -> WalCommits | None:
    try:
        file = path.with_name(path.name + "-wal").open("rb")
    except FileNotFoundError:
        return None
    with file:
        header = file.read(WAL_HEADER_BYTES)
        if len(header) < WAL_HEADER_BYTES:
            return None
        (page_bytes,) = struct.unpack(">I", header[8:12])
        found = WalCommits(header[16:24], [])
        number = 0
        while len(frame := file.read(FRAME_HEADER_BYTES)) == FRAME_HEADER_BYTES:
            number += 1
            if frame[8:16] == found.salts and frame[4:8] != b"\0\0\0\0":
                found.frames.append(number)
            file.seek(page_bytes, 1)
    return found


def check_wal(path: Path, before: WalCommits) -> None:
    """Compares the log after recovery with the commits before it: raises `CorruptLog` where recovery stopped early.

    For a process that alone has the file open. One commit after the last good frame is no damage: a process killed
    while it wrote its last commit leaves that. Two are, because a writer completes a commit before the next begins.
    """
    now = commits_in_wal(path)
    if now is None or now.salts != before.salts:
        return
    shm = path.with_name(path.name + "-shm").read_bytes()[SHM_MX_FRAME_OFFSET:][:4]
    (good,) = struct.unpack("=I", shm)
    lost = [frame for frame in before.frames if frame > good]
    if len(lost) > 1:
        raise CorruptLog(
            f"{path.name}-wal is damaged after frame {good}: {len(lost)} commits behind it cannot be read; "
            f"{_advice(path)}. To go on without them: sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'"
        )
