"""Finds text in files, with ripgrep's manners: ignored and hidden files stay out, binary files are skipped."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tailrace.ports import ToolContext, ToolOutcome
from tailrace.tools.paths import PathRefused, placed
from tailrace.tools.process import run_process
from tailrace.tools.search.child import REFUSED, Request
from tailrace.tools.typed import Arguments, TypedTool, failed

MAX_MATCHES = 200
TIMEOUT_S = 30.0
# Isolated and without `site`: starts fast, and finds no module in the tree that it searches.
_START = "import sys; sys.path += sys.argv.pop(1).splitlines(); from tailrace.tools.search.child import main; main()"


class SearchFilesArgs(Arguments):
    pattern: Annotated[str, Meta(min_length=1, description="A regular expression, matched within a line.")]
    path: Annotated[str, Meta(description="A directory or a file to search in.")] = "."
    glob: Annotated[str, Meta(description="Only files whose name or path matches, like *.py or src/**/*.ts.")] = ""
    ignore_case: bool = False
    files_only: Annotated[bool, Meta(description="List the files, not the lines.")] = False


class SearchFiles(TypedTool[SearchFilesArgs]):
    name = "search_files"
    description = "Search files for a regular expression. Skips hidden, binary and git-ignored files."
    Args = SearchFilesArgs
    repeatable = True
    parallel = True

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__()
        self._timeout_s = timeout_s

    async def execute(self, args: SearchFilesArgs, context: ToolContext) -> ToolOutcome:
        return await self._search(await asyncio.to_thread(_request, args, context))

    async def _search(self, request: Request) -> ToolOutcome:
        pieces: list[bytes] = []
        try:
            code = await run_process(
                (
                    sys.executable,
                    "-I",
                    "-S",
                    "-W",
                    "ignore",
                    "-c",
                    _START,
                    _package_directories(),
                    msgspec.json.encode(request).decode(),
                ),
                pieces.append,
                directory=Path("/"),
                environment={},
                timeout_s=self._timeout_s,
            )
        except OSError as exc:
            return failed(f"the search cannot be started: {exc.strerror}")
        found = b"".join(pieces).decode("utf-8", "replace").split("\n")[:-1]
        if code == REFUSED:
            return failed(found[-1])
        if code not in (0, None):
            return failed(f"the search failed: {found[-1] if found else f'exit code {code}'}")
        shown = found[:MAX_MATCHES]
        if code is None:
            shown.append(f"… ended after {self._timeout_s:g} s; narrow the pattern, the path or the glob")
        elif len(found) > MAX_MATCHES:
            shown.append(f"… stopped after {MAX_MATCHES} matches; narrow the pattern, the path or the glob")
        return ToolOutcome("\n".join(shown) or "(no match)", ok=code == 0)


@cache
def _package_directories() -> str:
    """Where this very package and pathspec are imported from, one a line."""
    pathspec = importlib.util.find_spec("pathspec")
    origin = pathspec.origin if pathspec and pathspec.origin else __file__
    return f"{Path(__file__).parents[3]}\n{Path(origin).parents[1]}"


def _request(args: SearchFilesArgs, context: ToolContext) -> Request:
    """Raises `PathRefused`."""
    place = placed(args.path, context)
    if not place.path.exists():
        raise PathRefused(f"{args.path}: no such file or directory")
    asked = (args.pattern, args.glob, args.ignore_case, args.files_only, MAX_MATCHES + 1)
    return Request(str(place.root), place.parts, os.path.realpath(context.directory), *asked)
