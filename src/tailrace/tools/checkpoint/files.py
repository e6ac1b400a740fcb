"""Which files of a directory a checkpoint holds: all but what git ignores, what is too large and what is no file.

Follows no link: a link is kept as a link. Knows nothing of how they are kept.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tailrace.tools.checkpoint.store import CheckpointError
from tailrace.tools.search.ignore import IgnoreRules

MB: Final = 1024 * 1024


class SnapshotLimits(msgspec.Struct, frozen=True):
    max_file_mb: float = 20  # a larger file is left out, and left alone when something is restored
    max_total_mb: float = 1000
    max_files: int = 50_000
    keep: int = 50  # checkpoints per directory


class Listing(NamedTuple):
    """Paths relative to the directory. `skipped` exists too, but is not part of the checkpoint: files, or directories
    as a whole."""

    files: list[str]
    skipped: list[str]


def listing(directory: Path, apart: frozenset[str], limits: SnapshotLimits) -> Listing:
    """`apart` are directories of our own, without the user's work. Raises `CheckpointError` where there is too much."""
    found = Listing([], [])
    total = 0
    for path, status in _walk(str(directory), "", IgnoreRules.at(str(directory)), apart, found.skipped):
        if status.st_size > limits.max_file_mb * MB:
            found.skipped.append(path)
            continue
        total += status.st_size
        found.files.append(path)
        if len(found.files) > limits.max_files or total > limits.max_total_mb * MB:
            raise CheckpointError(
                f"{directory} holds more than {limits.max_files} files or {limits.max_total_mb:g} MB: name what is not"
                " your work in a .gitignore, or turn checkpoints off"
            )
    return found


def _walk(
    directory: str, below: str, rules: IgnoreRules, apart: frozenset[str], skipped: list[str]
) -> Iterator[tuple[str, os.stat_result]]:
    """Goes down by name; a directory that cannot be read, or that is swapped for a link meanwhile, holds nothing."""
    try:
        entries = sorted(os.scandir(os.path.join(directory, below)), key=lambda entry: entry.name)  # noqa: PTH118
    except OSError:
        skipped.append(below)
        return
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.name == ".git":  # a repository's own memory is not what it is about
            continue
        is_directory = entry.is_dir(follow_symlinks=False)
        if entry.path in apart or rules.ignored_by_git(entry.name, directory=is_directory):
            skipped.append(path)
        elif is_directory:
            yield from _walk(directory, path, IgnoreRules(entry.path, rules), apart, skipped)
        elif (status := _status(entry)) is not None:
            yield path, status
        else:
            skipped.append(path)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for what cannot be kept: a pipe, a device, a file that we may not read, one that is gone."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return status
    return status if stat.S_ISREG(status.st_mode) and os.access(entry.path, os.R_OK) else None
