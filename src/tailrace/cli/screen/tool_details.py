"""What `/verbose` shows of a tool call beside its line: arguments, progress, output and files. Text without markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tailrace.cli.screen.sanitize import sanitized
from tailrace.events import ToolOutputRecorded

MAX_LINES: Final = 20  # of one text


def argument_lines(args: dict[str, Any] | None, *, limit: int = MAX_LINES) -> list[str]:
    """`name: value`; the further lines of a value stand below its name, indented."""
    lines: list[str] = []
    for name, value in (args or {}).items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        first, *more = clipped(text, limit)
        lines += [f"{sanitized(name)}: {first}", *(f"  {line}" for line in more)]
    return lines


def output_lines(recorded: ToolOutputRecorded) -> list[str]:
    return [*clipped(recorded.output), *file_lines(recorded)]


def file_lines(recorded: ToolOutputRecorded) -> list[str]:
    return [
        sanitized(f"[{file.name}: {file.media_type}, {len(file.data)} bytes]").replace("\n", " ")
        for file in recorded.files
    ]


def progress_lines(text: str) -> Sequence[str]:
    return [f"… {line}" for line in clipped(text)]


def clipped(text: str, limit: int = MAX_LINES) -> list[str]:
    """The first lines, and how many more there are."""
    lines = sanitized(text).rstrip().split("\n")
    more = [f"… {len(lines) - limit} more lines"] if len(lines) > limit else []
    return lines[:limit] + more
