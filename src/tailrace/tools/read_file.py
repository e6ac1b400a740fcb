"""Reads a text file, or a part of one, with line numbers."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tailrace.ports import ToolContext, ToolOutcome
from tailrace.tools.paths import PathRefused, regular_file
from tailrace.tools.typed import TypedTool, failed

MAX_LINES = 2000
MAX_LINE_CHARS = 2000
MAX_OUTPUT_CHARS = 100_000


class ReadFileArgs(msgspec.Struct):
    path: Annotated[str, Meta(description="The file, relative to the working directory.")]
    offset: Annotated[int, Meta(ge=1, description="The first line to read, counted from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=MAX_LINES, description="How many lines at most.")] = MAX_LINES


class ReadFile(TypedTool[ReadFileArgs]):
    name = "read_file"
    description = "Read a text file with line numbers. Use offset and limit for a part of a long one."
    Args = ReadFileArgs
    repeatable = True
    parallel = True

    async def do(self, args: ReadFileArgs, context: ToolContext) -> ToolOutcome:
        try:
            path = regular_file(args.path, context)
            return await asyncio.to_thread(_read, path, args)
        except PathRefused as exc:
            return failed(str(exc))
        except OSError as exc:
            return failed(f"{args.path}: {exc.strerror}")


def _read(path: Path, args: ReadFileArgs) -> ToolOutcome:
    with path.open("rb") as file:
        if b"\0" in file.read(8192):
            return failed(f"{args.path} is a binary file of {path.stat().st_size} bytes")
    shown: list[str] = []
    size = 0
    with path.open(encoding="utf-8", errors="replace", newline=None) as text:
        for number, line in enumerate(islice(text, args.offset - 1, None), args.offset):
            if len(shown) >= args.limit or size > MAX_OUTPUT_CHARS:
                shown.append(f"… more lines follow; read on with offset={number}")
                break
            content = line.rstrip("\n")
            content = content if len(content) <= MAX_LINE_CHARS else content[:MAX_LINE_CHARS] + " …"
            shown.append(f"{number:6}\t{content}")
            size += len(shown[-1])
    if not shown:
        return ToolOutcome("(the file is empty)" if args.offset == 1 else "(the file has no such line)")
    return ToolOutcome("\n".join(shown))
