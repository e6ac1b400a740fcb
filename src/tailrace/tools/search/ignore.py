"""What ignore files leave out of a walk over a tree, as git and ripgrep read them (gitignore(5)).

`.gitignore` and `.git/info/exclude` count within a repository only; `.ignore` and `.rgignore` count everywhere and win
over them. Imports nothing heavy: the search runs in a process of its own, which must start fast.
"""

# ruff: noqa: PTH110, PTH118, PTH119, PTH120 - a walk looks at thousands of names, and strings are several times faster than `Path`

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

_OWN_FILES = (".ignore", ".rgignore")  # the later one wins


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    negated: bool
    directories_only: bool


class IgnoreRules:
    """The rules in force in one directory: its own, and through `above` those of the directories it lies in."""

    def __init__(self, folder: str, above: IgnoreRules | None = None) -> None:
        self._name = os.path.basename(folder)
        self._above = above
        self._is_repository: bool = os.path.exists(os.path.join(folder, ".git"))
        self._in_repository: bool = self._is_repository or (above is not None and above._in_repository)
        self._own = [rule for name in _OWN_FILES for rule in _rules(os.path.join(folder, name))]
        self._git: list[_Rule] = []
        if self._is_repository:
            self._git += _rules(os.path.join(folder, ".git", "info", "exclude"))
        if self._in_repository:
            self._git += _rules(os.path.join(folder, ".gitignore"))

    @classmethod
    def at(cls, folder: str) -> IgnoreRules:
        """The rules for a walk that begins here, those of every directory above included."""
        parent = os.path.dirname(folder)
        return cls(folder, cls.at(parent) if parent != folder else None)

    def ignores(self, name: str, *, directory: bool) -> bool | None:
        """Whether this entry of the directory is left out; None where no rule speaks of it. The nearest file that has
        a word on it decides, and in it the last rule."""
        path, level = name, self
        while True:
            if (said := _verdict(level._own, path, directory)) is not None:
                return said
            if level._above is None:
                return self.ignored_by_git(name, directory=directory)
            path, level = f"{level._name}/{path}", level._above

    def ignored_by_git(self, name: str, *, directory: bool) -> bool | None:
        """The same by git's files alone. What is above the repository has no word on what is in it."""
        path, level = name, self
        while True:
            said = _verdict(level._git, path, directory)
            if said is not None or level._above is None or level._is_repository:
                return said
            path, level = f"{level._name}/{path}", level._above


def _verdict(rules: list[_Rule], path: str, directory: bool) -> bool | None:
    for rule in reversed(rules):
        if (directory or not rule.directories_only) and rule.pattern.fullmatch(path):
            return not rule.negated
    return None


def _rules(file: str) -> Iterator[_Rule]:
    try:
        with open(file, encoding="utf-8", errors="replace", opener=_open) as lines:
            for line in lines:
                if (rule := _rule(line.rstrip("\n"))) is not None:
                    yield rule
    except OSError:
        return


def _open(path: str, flags: int) -> int:
    file = os.open(path, flags | os.O_NONBLOCK)  # a pipe of that name would wait for a writer
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(path)
    return file


def _rule(line: str) -> _Rule | None:
    text = re.sub(r"(?<!\\)\s+$", "", line)  # trailing blanks count where they are escaped
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!")
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    anchored = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    try:
        regex = _regex(text)
        return _Rule(re.compile(regex if anchored else f"(?:.*/)?{regex}", re.DOTALL), negated, directories_only)
    except re.error:
        return None  # git ignores a pattern that it cannot read


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Matches the paths below a directory that a glob means: one without a slash means a name anywhere. Raises
    `re.error`."""
    regex = _regex(glob.removeprefix("/"))
    return re.compile(regex if "/" in glob else f"(?:.*/)?{regex}", re.DOTALL)


_TOKEN = re.compile(
    r"(?P<deep>(?:^|(?<=/))\*\*/)|(?P<below>(?<=/)\*\*$)|(?P<all>^\*\*$)|(?P<stars>\*+)|(?P<one>\?)"
    r"|\[(?P<not>[!^])?(?P<class>\]?[^\]]*)\]|\\(?P<escaped>.)|\{(?P<choices>[^{}]*)\}|(?P<plain>.)",
    re.DOTALL,
)


def _regex(glob: str) -> str:
    return "".join(_translated(token) for token in _TOKEN.finditer(glob))


def _translated(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "deep":
            return "(?:.*/)?"
        case "below":
            return ".+"
        case "all":
            return ".*"
        case "stars":
            return "[^/]*"
        case "one":
            return "[^/]"
        case "class":
            inner = re.sub(r"([\[\]&~|^])", r"\\\1", token["class"])
            return f"(?!/)[{'^' if token['not'] else ''}{inner}]"
        case "choices":
            return f"(?:{'|'.join(_regex(choice) for choice in token['choices'].split(','))})"
        case _:
            return re.escape(token["escaped"] or token["plain"])
