"""Replaces one exact piece of a file."""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tailrace.messages import JsonObject
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.paths import PathRefused, regular_file, write_whole
from tailrace.tools.typed import TypedTool, clipped, failed

MAX_FILE_BYTES = 10 * 1024 * 1024


class PatchArgs(msgspec.Struct):
    path: Annotated[str, Meta(description="The file, relative to the working directory.")]
    old: Annotated[str, Meta(min_length=1, description="The exact text to replace, blanks and line ends included.")]
    new: Annotated[str, Meta(description="What to put in its place.")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence, not just the only one.")] = False


class Patch(TypedTool[PatchArgs]):
    name = "patch"
    description = "Replace an exact piece of a file. The piece must occur once, unless replace_all is set."
    Args = PatchArgs

    def effect(self, args: JsonObject) -> Effect:
        return Effect("write", str(args.get("path", "")))

    async def do(self, args: PatchArgs, context: ToolContext) -> ToolOutcome:
        try:
            return await asyncio.to_thread(_patch, regular_file(args.path, context), args)
        except PathRefused as exc:
            return failed(str(exc))
        except OSError as exc:
            return failed(f"{args.path}: {exc.strerror}")


def _patch(path: Path, args: PatchArgs) -> ToolOutcome:
    if path.stat().st_size > MAX_FILE_BYTES:
        return failed(f"{args.path} is larger than {MAX_FILE_BYTES} bytes")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            before = file.read()
    except UnicodeDecodeError:
        return failed(f"{args.path} is not UTF-8 text")
    old, new = args.old, args.new
    if old not in before and "\r\n" in before:  # the model saw plain line ends
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = before.count(old)
    if count == 0:
        return failed(f"{args.path} does not contain that text. {_nearest(before, args.old)}".rstrip())
    if count > 1 and not args.replace_all:
        return failed(f"{args.path} contains that text {count} times; give more of it, or set replace_all")
    after = before.replace(old, new) if args.replace_all else before.replace(old, new, 1)
    write_whole(path, after)
    return ToolOutcome(clipped(_diff(before, after, args.path), 8000) or "(no change)")


def _nearest(text: str, wanted: str) -> str:
    first = next((line for line in wanted.splitlines() if line.strip()), "")
    lines = text.splitlines()
    close = difflib.get_close_matches(first, lines[:5000], n=1, cutoff=0.6)
    return f"The closest line is {lines.index(close[0]) + 1}: {close[0].strip()!r}" if close else ""


def _diff(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=2)
    return "\n".join(lines)
