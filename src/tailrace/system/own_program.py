"""Programs of this installation as the user can type them: an environment that is not active is not on the PATH."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def typed(arguments: str = "") -> str:
    """`tailrace ARGUMENTS`, as it can be typed where this process was started."""
    return f"{own_command(sys.argv[0], sys.executable, directory_or_root())} {arguments}".rstrip()


def directory_or_root() -> Path:
    """Where this process is; the root where that directory is gone, since nothing can be typed relative to it."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def own_command(called_as: str, python: str, directory: Path) -> str:
    """How this program was started, in the shortest form that works from `directory`."""
    called = Path(called_as)
    if called.name in ("__main__.py", "-c", ""):  # python -m tailrace, or code that called it
        return f"{_short(Path(python), directory)} -m tailrace"
    found = shutil.which(called.name)
    if found is not None and (called.name == called_as or _same(Path(found), directory / called)):
        return called.name
    return _short(directory / called, directory)


def own_pip(python: str, directory: Path) -> str:
    """The pip beside this Python; plain `pip` where that is the one that a shell finds, and where there is none."""
    pip = Path(python).with_name("pip")
    found = shutil.which("pip")
    if not pip.is_file() or (found is not None and Path(found).parent == pip.parent):
        return "pip"
    return _short(pip, directory)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _short(path: Path, directory: Path) -> str:
    """Relative to the directory where it lies below it; not from the root, where that would save a slash alone. A shell
    does not find what lies in a directory by the bare name."""
    if directory == Path("/") or not path.is_relative_to(directory):
        return shlex.quote(str(path))
    below = path.relative_to(directory)
    return shlex.quote(str(below) if len(below.parts) > 1 else f"./{below}")
