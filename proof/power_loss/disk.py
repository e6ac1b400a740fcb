"""A disk that forgets what was not synced, rebuilt from a record of what processes did to it.

A write lasts once its file was synced after it. Until then each sector of it may be there or not, whichever came
first: a drive and a kernel write back in any order. What changes directories (a file is made, renamed, removed) lasts
in its order, and all of it before a sync does, as on a file system with a journal.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

SECTOR: Final = 512
_HEAD: Final = struct.Struct("=6Q")
WRITE, TRUNCATE, SYNC, CREATE, RENAME, UNLINK, MKDIR, RMDIR = range(1, 9)


class Done(NamedTuple):
    """One call of the record. `path` is relative to the recorded directory; that itself is empty."""

    what: int
    path: str
    second: str
    offset: int
    data: bytes


def recorded(log: bytes, directory: Path) -> Iterator[Done]:
    at, start = 0, len(str(directory)) + 1
    while at + _HEAD.size <= len(log):
        what, offset, data_bytes, path_bytes, second_bytes, _ = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        path, second = log[at : at + path_bytes], log[at + path_bytes : at + path_bytes + second_bytes]
        at += path_bytes + second_bytes
        yield Done(what, path.decode()[start:], second.decode()[start:], offset, log[at : at + data_bytes])
        at += data_bytes


class File:
    """`kept` lasts. `pending` are the writes (offset, data) and lengths (length, None) since, in their order."""

    def __init__(self, kept: bytes = b"") -> None:
        self.kept = bytearray(kept)
        self.pending: list[tuple[int, bytes | None]] = []

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.kept, *change)
        self.pending.clear()

    def survivors(self, rng: random.Random, chance: float) -> bytes:
        """What may be there after a loss: each pending sector with this chance."""
        left = bytearray(self.kept)
        for offset, data in self.pending:
            if data is None:
                if rng.random() < chance:
                    _apply(left, offset, None)
                continue
            start = 0
            while start < len(data):
                end = min(len(data), start + SECTOR - (offset + start) % SECTOR)
                if rng.random() < chance:
                    _apply(left, offset + start, data[start:end])
                start = end
        return bytes(left)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class Disk:
    """`base` is what was there before, and lasts."""

    def __init__(self, base: Path | None = None) -> None:
        found = sorted(base.rglob("*")) if base is not None else []
        self._lasting: dict[str, File | None] = {}  # None: a directory
        for path in found:
            content = None if path.is_dir() else File(path.read_bytes())
            self._lasting[str(path.relative_to(base or path))] = content
        self._live = dict(self._lasting)
        self._pending: list[tuple[int, str, str, File | None]] = []

    def apply(self, done: Done) -> None:
        if done.what == SYNC:
            if (file := self._live.get(done.path)) is not None:
                file.sync()
            for change in self._pending:
                _move(self._lasting, *change)
            self._pending.clear()
        elif done.what in (WRITE, TRUNCATE):
            file = self._live.get(done.path)
            if file is None:  # it was made by a call that is not recorded
                file = self._made(CREATE, done)
            assert file is not None
            file.pending.append((done.offset, done.data if done.what == WRITE else None))
        else:
            self._made(done.what, done)

    def _made(self, what: int, done: Done) -> File | None:
        change = (what, done.path, done.second, File() if what == CREATE else None)
        _move(self._live, *change)
        self._pending.append(change)
        return change[-1]

    def after_loss(self, rng: random.Random, chance: float) -> dict[str, bytes | None]:
        """What is there when the power comes back, by path; None for a directory."""
        lasting = dict(self._lasting)
        for change in self._pending[: round(len(self._pending) * min(1.0, rng.random() * 2 * chance))]:
            _move(lasting, *change)
        return {path: None if file is None else file.survivors(rng, chance) for path, file in lasting.items()}


def _move(places: dict[str, File | None], what: int, path: str, second: str, file: File | None) -> None:
    if what in (CREATE, MKDIR):
        places[path] = file
    elif what in (UNLINK, RMDIR):
        places.pop(path, None)
    else:
        for name in [name for name in places if name == path or name.startswith(path + "/")]:
            moved = places.pop(name)
            if second:
                places[second + name[len(path) :]] = moved


def write_disk(directory: Path, files: dict[str, bytes | None]) -> None:
    for name, content in sorted(files.items()):
        path = directory / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
