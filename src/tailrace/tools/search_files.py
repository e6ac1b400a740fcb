"""Finds text in files, with ripgrep's manners: ignored and hidden files stay out, binary files are skipped."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Annotated

import msgspec
from msgspec import Meta

from tailrace.ports import ToolContext, ToolOutcome
from tailrace.tools.ignore import IgnoreRules
from tailrace.tools.paths import PathRefused, resolved
from tailrace.tools.typed import TypedTool, failed

MAX_MATCHES = 200
MAX_FILE_BYTES = 5 * 1024 * 1024
MAX_LINE_CHARS = 400


class SearchFilesArgs(msgspec.Struct):
    pattern: Annotated[str, Meta(min_length=1, description="A regular expression, matched within a line.")]
    path: Annotated[str, Meta(description="A directory or a file to search in.")] = "."
    glob: Annotated[str, Meta(description="Only files whose name matches, like *.py.")] = ""
    ignore_case: bool = False
    files_only: Annotated[bool, Meta(description="List the files, not the lines.")] = False


class SearchFiles(TypedTool[SearchFilesArgs]):
    name = "search_files"
    description = "Search files for a regular expression. Skips hidden, binary and git-ignored files."
    Args = SearchFilesArgs
    repeatable = True
    parallel = True

    async def do(self, args: SearchFilesArgs, context: ToolContext) -> ToolOutcome:
        try:
            start = resolved(args.path, context)
            pattern = re.compile(args.pattern, re.IGNORECASE if args.ignore_case else 0)
        except PathRefused as exc:
            return failed(str(exc))
        except re.error as exc:
            return failed(f"not a regular expression: {exc}")
        if not start.exists():
            return failed(f"{args.path}: no such file or directory")
        cancelled = Event()
        try:
            return await asyncio.to_thread(_search, start, pattern, args, context.directory, cancelled)
        finally:
            cancelled.set()  # a thread cannot be interrupted: it looks between files


def _search(
    start: Path, pattern: re.Pattern[str], args: SearchFilesArgs, directory: Path, cancelled: Event
) -> ToolOutcome:
    found: list[str] = []
    for path in _files(start, args.glob):
        if cancelled.is_set():
            break
        shown = os.path.relpath(path, directory)
        for number, line in _matches(path, pattern):
            found.append(shown if args.files_only else f"{shown}:{number}:{line}")
            if args.files_only or len(found) >= MAX_MATCHES:
                break
        if len(found) >= MAX_MATCHES:
            found.append(f"… stopped after {MAX_MATCHES} matches; narrow the pattern, the path or the glob")
            break
    return ToolOutcome("\n".join(found) or "(no match)")


def _files(start: Path, glob: str) -> Iterator[Path]:
    if start.is_file():
        yield start
        return
    rules = IgnoreRules(start)
    for folder, directories, names in os.walk(start):
        rules.enter(Path(folder))
        kept = (d for d in directories if not d.startswith(".") and not rules.ignores(Path(folder, d), directory=True))
        directories[:] = sorted(kept)
        for name in sorted(names):
            path = Path(folder, name)
            if name.startswith(".") or rules.ignores(path, directory=False):
                continue
            if not glob or fnmatch.fnmatch(name, glob) or fnmatch.fnmatch(str(path.relative_to(start)), glob):
                yield path


def _matches(path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return
        data = path.read_bytes()
    except OSError:
        return
    if b"\0" in data[:8192]:
        return
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        text = line.rstrip("\r")
        if pattern.search(text):
            yield number, text if len(text) <= MAX_LINE_CHARS else text[:MAX_LINE_CHARS] + " …"
