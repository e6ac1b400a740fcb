"""What a tool changed in a file: how many lines, and the lines themselves, with those around them.

Pure. The difference is looked for between the first and the last line that differ: a general comparison of two long
texts takes long.
"""

from __future__ import annotations

import difflib
from typing import Final, NamedTuple

from tailrace.messages import FileChange

MAX_DIFF_CHARS: Final = 8000
MAX_ASKED_CHARS: Final = 40_000  # of the difference that a person is asked about
_MAX_COMPARED_LINES: Final = 5000
_CONTEXT_LINES: Final = 2


class ChangedLines(NamedTuple):
    """The part of a text that differs. `lines` are those of a unified diff, "…" between two places; None where the
    part is too long to be compared."""

    start: int  # the number of the first of `lines`, from 1
    first: int  # of the first changed line
    last: int  # of its last changed line in the new text
    was: int
    now: int
    lines: list[str] | None


def changed_lines(before: str, after: str) -> ChangedLines:
    old, new = _lines(before, after), _lines(after, before)
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    rest = min(len(old), len(new)) - first
    same = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    start = max(0, first - _CONTEXT_LINES)
    was = old[start : len(old) - same + _CONTEXT_LINES]
    now = new[start : len(new) - same + _CONTEXT_LINES]
    counts = len(old) - same - first, len(new) - same - first
    if len(was) + len(now) > _MAX_COMPARED_LINES:
        return ChangedLines(start + 1, first + 1, len(new) - same, *counts, None)
    found = list(difflib.unified_diff(was, now, lineterm="", n=_CONTEXT_LINES))[3:]
    lines = ["…" if line.startswith("@@") else line.rstrip("\r") for line in found]
    return ChangedLines(start + 1, first + 1, len(new) - same, *counts, lines)


def _lines(text: str, other: str) -> list[str]:
    """The line end of the last line is no line, unless the two texts differ in it alone."""
    differ_more = text.removesuffix("\n") != other.removesuffix("\n")
    if text.endswith("\n") and not other.endswith("\n") and other and differ_more:
        return text.removesuffix("\n").split("\n")
    return text.split("\n")


def file_change(path: str, before: str | None, after: str, max_chars: int = MAX_DIFF_CHARS) -> FileChange:
    """`before` is None for a new file, and where it was no text that can be compared."""
    if before is None or not before:
        lines = after.removesuffix("\n").split("\n") if after else []
        return FileChange(
            path, len(lines), 0, _clipped([f"+{line}" for line in lines], max_chars), created=before is None
        )
    changed = changed_lines(before, after)
    if changed.lines is None:
        return FileChange(path, changed.now, changed.was)
    added = sum(line.startswith("+") for line in changed.lines)
    removed = sum(line.startswith("-") for line in changed.lines)
    return FileChange(path, added, removed, _clipped(changed.lines, max_chars), changed.start if changed.lines else 1)


def _clipped(lines: list[str], room: int) -> str:
    """Whole lines, as many as fit."""
    kept = 0
    while kept < len(lines) and (room := room - len(lines[kept]) - 1) >= 0:
        kept += 1
    more = [f"… {len(lines) - kept} more lines"] if kept < len(lines) else []
    return "\n".join([*lines[:kept], *more])
