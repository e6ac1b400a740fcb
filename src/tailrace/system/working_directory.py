"""The directory that this process is in, and the git work tree around a directory. The directory may be gone: another
terminal has removed it, or a checkout."""

from __future__ import annotations

from pathlib import Path

from tailrace.errors import TailraceError


def working_directory() -> Path:
    """Raises `TailraceError` where it is gone."""
    try:
        return Path.cwd()
    except OSError as exc:
        raise TailraceError("the current directory is gone: change to one that is there") from exc


def repository_of(directory: Path) -> Path | None:
    """The top of the git work tree that the directory is in; None where it is in none."""
    return next((place for place in (directory, *directory.parents) if (place / ".git").exists()), None)
