"""The command that goes on with a session, as this user can type it: `tailrace` may not be on the PATH."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def go_on_command(session: str) -> str:
    return f"{own_command(sys.argv[0], sys.executable, Path.cwd())} chat --session {session}"


def own_command(called_as: str, python: str, directory: Path) -> str:
    """How this program was started, in the shortest form that works from `directory`."""
    called = Path(called_as)
    if called.name == "__main__.py":  # python -m tailrace
        return f"{_short(Path(python), directory)} -m tailrace"
    found = shutil.which(called.name)
    if found is not None and (called.name == called_as or _same(Path(found), directory / called)):
        return called.name
    return _short(directory / called, directory)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _short(path: Path, directory: Path) -> str:
    """Relative to the directory where it lies below it."""
    if path.is_relative_to(directory):
        path = path.relative_to(directory)
    return shlex.quote(str(path))
