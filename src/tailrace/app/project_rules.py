"""The rules of a project for its agents: AGENTS.md of the working directory and of the directories above it.

Owns which files these are and how much of them is read. The nearest file counts most: it stands last, and is cut last.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.system.working_directory import repository_of

MAX_BYTES: Final = 32_768  # of all files together: every call of the model pays for them


class ProjectRules(NamedTuple):
    """`files` are the ones that were read, the outermost first; `text` is what the model is told."""

    files: tuple[Path, ...] = ()
    text: str = ""


def project_rules(directory: Path, names: Sequence[str]) -> ProjectRules:
    """The first of these names that each directory has, up to the top of the git work tree; without one, up to below
    the home directory. A file that a link leads to elsewhere is no rule of this project."""
    found: list[tuple[Path, str]] = []
    room = MAX_BYTES
    top = _top(directory)
    for place in (directory, *directory.parents):
        if not place.is_relative_to(top) or room <= 0:
            break
        if (read := _rules_in(place, names, top, room)) is not None:
            found.insert(0, read)
            room -= len(read[1].encode())
    said = (f"The rules of this project, in {path}:\n\n{text}" for path, text in found)
    return ProjectRules(tuple(path for path, _ in found), "\n\n".join(said))


def _top(directory: Path) -> Path:
    if (repository := repository_of(directory)) is not None:
        return repository
    home = Path.home()
    below = directory.relative_to(home).parts if directory.is_relative_to(home) else ()
    return home / below[0] if below else directory


def _rules_in(place: Path, names: Sequence[str], top: Path, room: int) -> tuple[Path, str] | None:
    for name in names:
        path = place / name
        try:
            if not path.is_file() or not path.resolve().is_relative_to(top.resolve()):
                continue
            with path.open("rb") as file:
                data = file.read(room + 1)
        except OSError:
            continue
        text = data[:room].decode("utf-8", "replace").strip()
        return path, f"{text}\n[… cut off: the rules may have {MAX_BYTES} bytes]" if len(data) > room else text
    return None
