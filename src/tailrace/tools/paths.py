"""Where file tools may go: the working directory and what the user has allowed, nothing else (J125).

A path is resolved before it is judged, so `..` and symbolic links lead nowhere that their target does not lie.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace.ports import ToolContext


class PathRefused(TailraceError):
    """The path leads outside, or to something that is no file."""


def resolved(path: str, context: ToolContext) -> Path:
    """The file this path means. Raises `PathRefused` where it lies outside the allowed directories."""
    if "\0" in path:
        raise PathRefused("a path cannot hold a NUL character")
    wanted = Path(path).expanduser()
    full = Path(os.path.realpath(wanted if wanted.is_absolute() else context.directory / wanted))
    for root in (context.directory, *context.roots):
        if full.is_relative_to(os.path.realpath(root)):
            return full
    raise PathRefused(f"{path} lies outside the working directory ({context.directory})")


def regular_file(path: str, context: ToolContext) -> Path:
    """The same for a file that must be there and be a plain one: a pipe or a device would never end."""
    full = resolved(path, context)
    try:
        mode = full.stat().st_mode
    except OSError as exc:
        raise PathRefused(f"{path}: {exc.strerror or 'cannot be read'}") from exc
    if stat.S_ISDIR(mode):
        raise PathRefused(f"{path} is a directory")
    if not stat.S_ISREG(mode):
        raise PathRefused(f"{path} is not a regular file")
    return full


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old or the new content, never half of one. Keeps its rights."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
