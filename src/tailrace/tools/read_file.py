"""Reads a text file, or a part of one, with line numbers."""

from __future__ import annotations

import asyncio
import io
import os
from typing import Annotated, BinaryIO

from msgspec import Meta

from tailrace.ports import ToolContext, ToolOutcome
from tailrace.tools.paths import opened_file, placed
from tailrace.tools.text import byte_order_mark
from tailrace.tools.typed import Arguments, TypedTool, failed

MAX_LINES = 2000
MAX_LINE_CHARS = 2000
MAX_OUTPUT_CHARS = 100_000
_PROBE_BYTES = 8192


class ReadFileArgs(Arguments):
    path: Annotated[str, Meta(description="The file, relative to the working directory.")]
    offset: Annotated[int, Meta(ge=1, description="The first line to read, counted from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=MAX_LINES, description="How many lines at most.")] = MAX_LINES


class ReadFile(TypedTool[ReadFileArgs]):
    name = "read_file"
    description = "Read a text file with line numbers. Use offset and limit for a part of a long one."
    Args = ReadFileArgs
    repeatable = True
    parallel = True

    async def execute(self, args: ReadFileArgs, context: ToolContext) -> ToolOutcome:
        try:
            return await asyncio.to_thread(_read, args, context)
        except OSError as exc:
            return failed(f"{args.path}: {exc.strerror}")


def _read(args: ReadFileArgs, context: ToolContext) -> ToolOutcome:
    with opened_file(placed(args.path, context)) as file:
        probe = file.read(_PROBE_BYTES)
        encoding, mark = byte_order_mark(probe)
        if encoding == "utf-8" and b"\0" in probe:
            return failed(f"{args.path} is a binary file of {os.fstat(file.fileno()).st_size} bytes")
        file.seek(mark)
        return ToolOutcome(numbered(file, encoding, args))


def numbered(file: BinaryIO, encoding: str, args: ReadFileArgs) -> str:
    """The lines that were asked for, each with its number."""
    text = io.TextIOWrapper(file, encoding, errors="replace", newline=None)
    shown: list[str] = []
    size = 0
    number = 0
    try:
        while line := _next_line(text):
            number += 1
            if number < args.offset:
                continue
            if len(shown) >= args.limit or size > MAX_OUTPUT_CHARS:
                shown.append(f"… more lines follow; read on with offset={number}")
                break
            shown.append(f"{number:6}\t{line.rstrip(chr(10))}")
            size += len(shown[-1])
    finally:
        text.detach()  # the caller closes the file
    if shown:
        return "\n".join(shown)
    return f"(the file ends at line {number})" if number else "(the file is empty)"


def _next_line(text: io.TextIOWrapper) -> str:
    """The next line, cut where it is too long: a file of one endless line is never in memory whole."""
    line = text.readline(MAX_LINE_CHARS + 1)
    if len(line) <= MAX_LINE_CHARS or line.endswith("\n"):
        return line
    left = 1
    while (more := text.readline(65_536)) and not more.endswith("\n"):
        left += len(more)
    return f"{line[:MAX_LINE_CHARS]} … {left + len(more.rstrip(chr(10)))} more characters\n"
