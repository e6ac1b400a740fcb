"""The directory that this process is in. It may be gone: another terminal has removed it, or a checkout."""

from __future__ import annotations

from pathlib import Path

from tailrace.errors import TailraceError


def working_directory() -> Path:
    """Raises `TailraceError` where it is gone."""
    try:
        return Path.cwd()
    except OSError as exc:
        raise TailraceError("the current directory is gone: change to one that is there") from exc
