"""Files and directories that their owner alone may read, whatever the umask: conversations, tool output, histories.

Owns the modes. What is there with wider ones is tightened where it belongs to this user; what does not, or lies on a
file system without modes, is left as it is: `tailrace doctor` says so. What root makes in another user's directory is
that user's: no file that a service cannot read is left in its home directory.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private_directory(path: Path) -> None:
    """Makes the directory and the missing ones above it, 0700, and tightens one that exists. Raises `OSError`."""
    for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
        _give_directory(missing)
    tighten(path)


def make_private_file(path: Path) -> None:
    """Makes an empty file, 0600, and tightens one that exists. Raises `OSError`."""
    flags = os.O_CREAT | os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    try:
        made = os.open(path, flags | os.O_EXCL, 0o600)
        with contextlib.suppress(OSError):
            give(made, path.parent)
        os.close(made)
    except FileExistsError:  # it is not opened: this process may have a lock on it, which closing any descriptor ends
        pass
    tighten(path)


def tighten(path: Path) -> None:
    """Takes the rights of all other users away. Never from a directory that users share."""
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        if mode & _OTHERS and not _is_shared(path, mode):
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def is_open_to_others(path: Path) -> bool:
    """Whether other users have any right to it."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return os.name == "posix" and bool(mode & _OTHERS)


def give(made: int, directory: Path) -> None:
    """What is open as `made` becomes the directory's owner's, where this process is root's. By its descriptor: the
    name may lead elsewhere by now, since the directory is another user's. Raises `OSError`."""
    if os.name != "posix" or os.geteuid() != 0:
        return
    owner = directory.stat()
    if owner.st_uid != 0:
        os.fchown(made, owner.st_uid, owner.st_gid)


def _give_directory(path: Path) -> None:
    with contextlib.suppress(OSError):
        made = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
        try:
            give(made, path.parent)
        finally:
            os.close(made)


def _is_shared(path: Path, mode: int) -> bool:
    """A directory such as /tmp, and the root."""
    return stat.S_ISDIR(mode) and (bool(mode & stat.S_ISVTX) or path.resolve() == Path(path.anchor or "/"))
