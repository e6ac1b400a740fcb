"""The directory that this process is in, and the git work tree around a directory. The directory may be gone: another
terminal has removed it, or a checkout."""

from __future__ import annotations

from functools import lru_cache
from os.path import exists
from pathlib import Path

from tailrace.errors import TailraceError


def working_directory() -> Path:
    """Raises `TailraceError` where it is gone."""
    try:
        return Path.cwd()
    except OSError as exc:
        raise TailraceError("the current directory is gone: change to one that is there") from exc


@lru_cache
def with_parents(directory: Path) -> tuple[Path, ...]:
    """The directory and those that it is in, the innermost first. Kept: every turn goes through them."""
    return (directory, *directory.parents)


def repository_of(directory: Path) -> Path | None:
    """The top of the git work tree that the directory is in; None where it is in none."""
    for place in with_parents(directory):
        if exists(f"{place}/.git"):  # noqa: PTH110 - for every turn: no path is made
            return place
    return None
