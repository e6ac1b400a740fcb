"""The rules of a project for its agents: AGENTS.md of the working directory and of the directories above it.

Owns which files these are and how much of them is read. The nearest file counts most: it stands last, and is cut last.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from os.path import expanduser, isfile
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.system.working_directory import repository_of, with_parents

MAX_BYTES: Final = 32_768  # of all files together: every call of the model pays for them


class ProjectRules(NamedTuple):
    """`files` are the ones that were read, the outermost first; `text` is what the model is told."""

    files: tuple[Path, ...] = ()
    text: str = ""


def project_rules(directory: Path, names: Sequence[str]) -> ProjectRules:
    """The first of these names that each directory has, up to the top of the git work tree; without one, up to below
    the home directory. A file that a link leads to elsewhere is no rule of this project. Every turn looks for them:
    names as text make 200 calls fewer than paths (`bench counts`, agent request)."""
    found: list[tuple[Path, str]] = []
    room = MAX_BYTES
    top = repository_of(directory) or _below_home(directory, expanduser("~"))  # noqa: PTH111 - as said
    for place in with_parents(directory):
        if (read := _rules_in(place, names, top, room)) is not None:
            found.insert(0, read)
            room -= len(read[1].encode())
        if place is top or room <= 0 or place == top:
            break
    said = (f"The rules of this project, in {path}:\n\n{text}" for path, text in found)
    return ProjectRules(tuple(path for path, _ in found), "\n\n".join(said))


@lru_cache
def _below_home(directory: Path, home: str) -> Path:
    """The directory right below the home one that this one is in, or is; itself where it is elsewhere."""
    below = directory.relative_to(home).parts if directory.is_relative_to(home) else ()
    return Path(home, below[0]) if below else directory


def _rules_in(place: Path, names: Sequence[str], top: Path, room: int) -> tuple[Path, str] | None:
    for name in names:
        if not isfile(f"{place}/{name}"):  # noqa: PTH113 - as said
            continue
        path = place / name
        try:
            if not path.resolve().is_relative_to(top.resolve()):
                continue
            with path.open("rb") as file:
                data = file.read(room + 1)
        except OSError:
            continue
        text = data[:room].decode("utf-8", "replace").strip()
        return path, f"{text}\n[… cut off: the rules may have {MAX_BYTES} bytes]" if len(data) > room else text
    return None
