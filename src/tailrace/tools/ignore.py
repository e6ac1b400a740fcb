"""What `.gitignore` files leave out of a walk over a tree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class _Rule(NamedTuple):
    base: Path
    pattern: re.Pattern[str]
    negated: bool
    directories_only: bool


class IgnoreRules:
    """The rules in force, those of the directories above included up to the root of the repository."""

    def __init__(self, start: Path) -> None:
        self._rules: list[_Rule] = []
        above: list[Path] = []
        for parent in start.parents if not (start / ".git").exists() else ():
            above.append(parent)
            if (parent / ".git").exists():
                break
        else:
            above = []
        for parent in reversed(above):
            self.enter(parent)

    def enter(self, folder: Path) -> None:
        """Reads the rules of a directory on the way down."""
        try:
            lines = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        self._rules += [rule for line in lines if (rule := _rule(folder, line)) is not None]

    def ignores(self, path: Path, *, directory: bool) -> bool:
        """The last rule that matches decides."""
        for rule in reversed(self._rules):
            if rule.directories_only and not directory:
                continue
            if path.is_relative_to(rule.base) and rule.pattern.fullmatch(path.relative_to(rule.base).as_posix()):
                return not rule.negated
        return False


def _rule(base: Path, line: str) -> _Rule | None:
    text = line.rstrip()
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!").removeprefix("\\")
    directories_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    regex = _regex(text.lstrip("/"))
    try:
        return _Rule(base, re.compile(regex if anchored else rf"(?:.*/)?{regex}"), negated, directories_only)
    except re.error:
        return None


def _regex(glob: str) -> str:
    out, at = "", 0
    while at < len(glob):
        rest = glob[at:]
        if rest.startswith("**/"):
            out, at = out + "(?:.*/)?", at + 3
        elif rest.startswith("**"):
            out, at = out + ".*", at + 2
        elif rest[0] == "*":
            out, at = out + "[^/]*", at + 1
        elif rest[0] == "?":
            out, at = out + "[^/]", at + 1
        elif rest[0] == "[" and "]" in rest[2:]:
            end = rest.index("]", 2)
            inner = rest[1:end].replace("\\", "\\\\")
            out, at = out + "[" + ("^" + inner[1:] if inner[0] == "!" else inner) + "]", at + end + 1
        else:
            out, at = out + re.escape(rest[0]), at + 1
    return out
