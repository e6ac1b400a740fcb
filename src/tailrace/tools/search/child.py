"""The process that searches, with its request as JSON in one argument.

A process of its own because a regular expression may take for ever, and `re` holds the interpreter meanwhile: a process
can be ended. Prints one line per match, in the order of the paths. Follows no link, so it cannot leave the tree it was
sent into. Imports the standard library and light modules alone: it must start fast.
"""

# ruff: noqa: PTH118, PTH120 - a walk looks at thousands of names, and strings are several times faster than `Path`

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from tailrace.tools.paths import PathRefused, Place, opened_directory, opened_file
from tailrace.tools.search.ignore import Glob, IgnoreRules
from tailrace.tools.text import text_in

MAX_FILE_BYTES = 5 * 1024 * 1024
MAX_LINE_CHARS = 400
REFUSED = 3  # exit code: the request makes no sense; the last line printed says why
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


Compiled = TypeVar("Compiled")


class Request(NamedTuple):
    root: str
    parts: tuple[str, ...]  # a `Place`: from the root down to where the search begins
    shown_from: str  # paths are printed relative to this directory
    pattern: str
    glob: str
    ignore_case: bool
    files_only: bool
    max_lines: int


def main() -> None:
    request = Request(*json.loads(sys.argv[1]))
    pattern = _compiled("regular expression", re.compile, request.pattern, re.IGNORECASE if request.ignore_case else 0)
    wanted = _compiled("glob", Glob, request.glob) if request.glob else None
    printed = 0
    for path, text in _texts(request, wanted):
        shown = os.path.relpath(path, request.shown_from).replace("\n", "\\n")
        for number, line in _matches(text, pattern):
            said = shown if request.files_only else f"{shown}:{number}:{line}"
            sys.stdout.buffer.write(said.encode("utf-8", "replace") + b"\n")
            sys.stdout.buffer.flush()  # what was found counts, also when the rest takes too long
            printed += 1
            if printed >= request.max_lines:
                return
            if request.files_only:
                break


def _compiled(what: str, compile_it: Callable[..., Compiled], *args: Any) -> Compiled:
    try:
        return compile_it(*args)
    except (re.error, RecursionError, OverflowError) as exc:
        sys.stdout.write(f"not a {what}: {exc}\n")
        sys.exit(REFUSED)


def _texts(request: Request, wanted: Glob | None) -> Iterator[tuple[str, str]]:
    """Every text to look into, with its path. A file asked for by name is looked into whatever the rules say."""
    place = Place("", Path(request.root), tuple(request.parts))
    try:
        with opened_directory(place) as folder:
            yield from _walk(str(place.path), folder, wanted)
    except PathRefused:
        with opened_file(place) as file:
            if (text := _text(file)) is not None:
                yield str(place.path), text


def _walk(start: str, folder: int, wanted: Glob | None) -> Iterator[tuple[str, str]]:
    rules: dict[str, IgnoreRules] = {}
    for below, directories, names, fd in os.fwalk(".", dir_fd=folder):
        path = os.path.normpath(os.path.join(start, below))
        above = rules.get(os.path.dirname(path))
        here = rules[path] = IgnoreRules(path, above) if above else IgnoreRules.at(path)
        directories[:] = sorted(name for name in directories if _walked(here, name, directory=True))
        for name in sorted(names):
            if not _walked(here, name, directory=False):
                continue
            if wanted is None or wanted.matches(os.path.normpath(os.path.join(below, name))):
                text = _text_at(name, fd)
                if text:
                    yield os.path.join(path, name), text


def _walked(rules: IgnoreRules, name: str, *, directory: bool) -> bool:
    """Hidden entries stay out unless a rule lets them in."""
    ignored = rules.ignores(name, directory=directory)
    return not name.startswith(".") if ignored is None else not ignored


def _text_at(name: str, folder: int) -> str | None:
    try:
        with os.fdopen(os.open(name, _OPEN, dir_fd=folder), "rb") as file:
            return _text(file) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:  # a link, gone meanwhile, not ours to read
        return None


def _text(file: BinaryIO) -> str | None:
    data = file.read(MAX_FILE_BYTES + 1)
    return text_in(data) if len(data) <= MAX_FILE_BYTES else None


def _matches(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        content = line.removesuffix("\r")
        if pattern.search(content):
            yield number, content if len(content) <= MAX_LINE_CHARS else content[:MAX_LINE_CHARS] + " …"
