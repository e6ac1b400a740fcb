"""Where file tools may go: the working directory and what the user has allowed, nothing else (J125).

A path is resolved before it is judged: `..` and symbolic links count as their target. The judged path is then opened
step by step from the allowed directory without following links: a link that is swapped in meanwhile is refused.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from tailrace.errors import ToolRefused

if TYPE_CHECKING:  # the process that searches needs this module, and nothing that takes time to import
    from tailrace.ports import ToolContext

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking, since opening a pipe without a writer would wait for ever.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PathRefused(ToolRefused):
    """The path leads outside, or to something that cannot be read or written as a file."""


class Place(NamedTuple):
    """A judged path: an allowed directory, and the way down from it, without a link in it when it was judged."""

    asked: str  # as the model wrote it, for messages
    root: Path
    parts: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)


def placed(path: str, context: ToolContext) -> Place:
    """The place this path means. Raises `PathRefused` where it lies outside the allowed directories."""
    if "\0" in path:
        raise PathRefused("a path cannot hold a NUL character")
    if path.startswith("~"):
        raise PathRefused(f"{path}: ~ is not expanded; give the path relative to the working directory, or in full")
    full = Path(os.path.realpath(context.directory / path))
    for allowed in (context.directory, *context.roots):
        root = Path(os.path.realpath(allowed))
        if full.is_relative_to(root):
            return Place(path, root, full.relative_to(root).parts)
    raise PathRefused(f"{path} lies outside the working directory ({context.directory})")


@contextmanager
def opened_directory(place: Place, *, make: bool = False) -> Iterator[int]:
    """The directory at this place as a descriptor. Raises `PathRefused`."""
    with _translated(place):
        fd = os.open(place.root, _DIRECTORY)
    try:
        for part in place.parts:
            with _translated(place):
                fd = _step(fd, part, make=make)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_file(place: Place) -> Iterator[BinaryIO]:
    """The plain file at this place, for reading. Raises `PathRefused`, also for a pipe, a device or a directory."""
    if not place.parts:
        raise PathRefused(f"{place.asked} is a directory")
    with opened_directory(parent_of(place)) as folder, _translated(place):
        fd = os.open(place.parts[-1], _READ, dir_fd=folder)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise PathRefused(f"{place.asked} is {'a directory' if stat.S_ISDIR(mode) else 'no plain file'}")
    with os.fdopen(fd, "rb") as file:
        yield file


def write_whole(
    place: Place, data: bytes, *, expected: os.stat_result | None = None, executable: bool | None = None
) -> bool:
    """Puts a file in place so that a reader sees the old or the new content, never half of one. Keeps its rights
    (`executable` says otherwise of one of them) and makes the directories it lies in. Returns whether it replaced one.
    Raises `PathRefused`, also where `expected` is given and the file is not that one any more."""
    if not place.parts:
        raise PathRefused(f"{place.asked} is a directory")
    name = place.parts[-1]
    temporary = f".tailrace-{secrets.token_hex(6)}"  # not made of the name, which may be as long as a name can be
    with opened_directory(parent_of(place), make=True) as folder, _translated(place):
        before = _status(name, folder)
        if before is not None and not stat.S_ISREG(before.st_mode):
            raise PathRefused(f"{place.asked} is {'a directory' if stat.S_ISDIR(before.st_mode) else 'no plain file'}")
        try:
            with os.fdopen(os.open(temporary, _WRITE_NEW, 0o666, dir_fd=folder), "wb") as file:
                file.write(data)
                mode = stat.S_IMODE((before or os.fstat(file.fileno())).st_mode)
                os.fchmod(file.fileno(), mode if executable is None else _made_executable(mode, executable))
            if expected is not None and not _same(expected, _status(name, folder)):
                raise PathRefused(f"{place.asked} was changed by another program meanwhile; read it again")
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
    return before is not None


def _made_executable(mode: int, executable: bool) -> int:
    """Executable for those who may read it, as git does."""
    return mode | (mode & 0o444) >> 2 if executable else mode & ~0o111


def parent_of(place: Place) -> Place:
    """The directory that holds it."""
    return place._replace(parts=place.parts[:-1])


def _step(folder: int, name: str, *, make: bool) -> int:
    """Goes down one directory; the descriptor given is closed when that worked."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    below = os.open(name, _DIRECTORY, dir_fd=folder)
    os.close(folder)
    return below


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _same(one: os.stat_result, other: os.stat_result | None) -> bool:
    return other is not None and (one.st_ino, one.st_size, one.st_mtime_ns) == (
        other.st_ino,
        other.st_size,
        other.st_mtime_ns,
    )


@contextmanager
def _translated(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.EMLINK):  # a link where there was none when the path was judged
            raise PathRefused(f"{place.asked} was changed into a link meanwhile") from exc
        raise PathRefused(f"{place.asked}: {(exc.strerror or 'cannot be opened').lower()}") from exc
