"""Is the file what it was? Finds what SQLite itself would pass over, and says what a person can do.

Reads only. SQLite recovers a write-ahead log up to its last good frame and says nothing about the commits behind a
bad one; here that is found out before anything is written over them.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import CorruptLog, JournalError

HEADER = b"SQLite format 3\x00"
WAL_HEADER_BYTES = 32  # sqlite.org/fileformat2.html, section 4.1: magic, format, page size, checkpoint, salts, sums
FRAME_HEADER_BYTES = 24  # page number, size of the database after a commit, salts, sums
SHM_MX_FRAME_OFFSET = 16  # sqlite.org/walformat.html, section 2.1: `mxFrame`, in native byte order


def _advice(path: Path) -> str:
    return (
        f"nothing was written. Stop every tailrace process, copy {path.name}, {path.name}-wal and {path.name}-shm "
        f"to a safe place, then run: sqlite3 {path} .recover | sqlite3 recovered.db"
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors in our words, once, at this edge."""
    try:
        yield
    except sqlite3.DatabaseError as exc:
        name = getattr(exc, "sqlite_errorname", "")
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or "malformed" in str(exc):
            raise CorruptLog(f"{path} is damaged ({exc}); {_advice(path)}") from exc
        if name.startswith("SQLITE_FULL"):
            raise JournalError(f"no space left to write {path}; free some, then start again") from exc
        raise JournalError(f"{path}: {exc}") from exc


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
        return  # what the file lacks may stand there: a checkpoint writes the new size first
    page_bytes = int.from_bytes(header[16:18], "big")
    due = int.from_bytes(header[28:32], "big") * (65536 if page_bytes == 1 else page_bytes)
    size = path.stat().st_size
    if size < due:
        raise CorruptLog(f"{path} has {size} bytes where {due} are due: it was cut off; {_advice(path)}")


def newest_commit_in_wal(path: Path) -> tuple[bytes, int] | None:
    """The salts of the write-ahead log and the number of its last commit frame, whatever is between."""
    wal = path.with_name(path.name + "-wal")
    try:
        file = wal.open("rb")
    except FileNotFoundError:
        return None
    with file:
        header = file.read(WAL_HEADER_BYTES)
        if len(header) < WAL_HEADER_BYTES:
            return None
        (page_bytes,) = struct.unpack(">I", header[8:12])
        salts = header[16:24]
        newest = number = 0
        while len(frame := file.read(FRAME_HEADER_BYTES)) == FRAME_HEADER_BYTES:
            number += 1
            if frame[8:16] == salts and frame[4:8] != b"\0\0\0\0":
                newest = number
            file.seek(page_bytes, 1)
    return salts, newest


def check_wal(path: Path, committed: tuple[bytes, int]) -> None:
    """After SQLite has recovered: raises `CorruptLog` when it stopped before the last commit that was there.

    For whoever is alone with the file. While others write, a commit whose writer was killed before it could announce
    it may lie behind theirs, and looks the same."""
    now = newest_commit_in_wal(path)
    if now is None or now[0] != committed[0]:
        return
    shm = path.with_name(path.name + "-shm").read_bytes()[SHM_MX_FRAME_OFFSET:][:4]
    (good,) = struct.unpack("=I", shm)
    if good < committed[1]:
        raise CorruptLog(
            f"{path.name}-wal is damaged after frame {good}: commits up to frame {committed[1]} were there and cannot "
            f"be read; {_advice(path)}. To go on without them: sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'"
        )
