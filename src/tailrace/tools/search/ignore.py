"""What git's ignore files leave out of a walk over a tree (gitignore(5)).

They count within a repository only. pathspec reads the patterns. It is imported with the first pattern: the search runs
in a process of its own, which must start fast.
"""

# ruff: noqa: PTH110, PTH118, PTH119, PTH120 - a walk looks at thousands of names, and strings are several times faster than `Path`

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterator
from typing import NamedTuple

# pathspec hands a bracket expression to `re`, which has no POSIX classes.
_POSIX_CLASS = re.compile(r"\[:([a-z]+):\]")
_POSIX_RANGES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "xdigit": "0-9a-fA-F",
    "space": " \t\n\r\f\v", "blank": " \t", "punct": ":-@[-`{-~!-.", "graph": "0-~!-.",
    "print": " -~", "cntrl": "\0-\x1f\x7f",
}  # fmt: skip
_DIRECTORY_MARK = "ps_d"  # pathspec's group for the slash after a directory's name
MAX_GLOBS = 100  # what the braces of one glob may expand to


class _Rule(NamedTuple):
    """One line of an ignore file. pathspec's expression matches a path; `matches` says whether it means this entry
    and not only a directory above it."""

    pattern: re.Pattern[str]
    negated: bool = False

    def matches(self, path: str, directory: bool) -> bool:
        subject = f"{path}/" if directory else path
        if _DIRECTORY_MARK in self.pattern.groupindex:
            return any(match.end() == len(subject) for match in self.pattern.finditer(subject))
        found = self.pattern.search(subject)  # `dir/**` means all that is in dir, but not dir
        return found is not None and (found.end() < len(subject) or self.pattern.pattern == ".")


class IgnoreRules:
    """The rules in force in one directory: its own, and through `above` those of the directories it lies in."""

    def __init__(self, folder: str, above: IgnoreRules | None = None) -> None:
        self._name = os.path.basename(folder)
        self._above = above
        self._is_repository: bool = os.path.exists(os.path.join(folder, ".git"))
        self._in_repository: bool = self._is_repository or (above is not None and above._in_repository)
        self._rules: list[_Rule] = []
        if self._is_repository:
            self._rules += _rules(os.path.join(folder, ".git", "info", "exclude"))
        if self._in_repository:
            self._rules += _rules(os.path.join(folder, ".gitignore"))

    @classmethod
    def at(cls, folder: str) -> IgnoreRules:
        """The rules for a walk that begins here, those of every directory above included."""
        parent = os.path.dirname(folder)
        return cls(folder, cls.at(parent) if parent != folder else None)

    def ignores(self, name: str, *, directory: bool) -> bool | None:
        """Whether this entry of the directory is left out; None where no rule matches it. The nearest file with a rule
        that matches decides, and in it the last such rule. Files above the repository do not count in it."""
        path, level = name, self
        while True:
            verdict = _verdict(level._rules, path, directory)
            if verdict is not None or level._above is None or level._is_repository:
                return verdict
            path, level = f"{level._name}/{path}", level._above


def _verdict(rules: list[_Rule], path: str, directory: bool) -> bool | None:
    for rule in reversed(rules):
        if rule.matches(path, directory):
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
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of `re`: "[[]" might mean a nested set one day
            line = _POSIX_CLASS.sub(lambda found: _POSIX_RANGES.get(found[1], ""), line)
            read = GitIgnoreSpecPattern(re.sub(r"/\*\*/$", "/**/*/", line))  # the directories in it, not itself
            if read.regex is None:
                return None
            # git's brackets never match a slash.
            return _Rule(re.compile(read.regex.pattern.replace("[^", "[^/")), not read.include)
    except (re.error, ValueError):
        return None  # git ignores a pattern that it cannot read


class Glob:
    """The paths below a directory that a glob means: one without a slash means a name anywhere. Raises `re.error`."""

    def __init__(self, glob: str) -> None:
        self._rules = [_rule(f"{'/' if '/' in glob else ''}{one}") for one in _expand_braces(glob.removeprefix("/"))]
        if None in self._rules:
            raise re.error(glob)

    def matches(self, path: str) -> bool:
        return any(rule.matches(path, directory=False) for rule in self._rules if rule)


def _expand_braces(glob: str) -> list[str]:
    done: list[str] = []
    waiting = [glob]
    while waiting and len(done) + len(waiting) <= MAX_GLOBS:
        glob = waiting.pop()
        if found := re.search(r"(?<!\\)\{([^{}]*)\}", glob):
            waiting += [glob[: found.start()] + choice + glob[found.end() :] for choice in found[1].split(",")]
        else:
            done.append(glob)
    if waiting:
        raise re.error("its braces expand to too many globs")
    return done
