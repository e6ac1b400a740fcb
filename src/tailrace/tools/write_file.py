"""Writes a whole file."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from tailrace.errors import ToolRefused
from tailrace.messages import FileChange, JsonObject
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.file_change import MAX_ASKED_CHARS, file_change
from tailrace.tools.paths import PathRefused, Place, opened_file, placed, write_whole
from tailrace.tools.text import text_in
from tailrace.tools.typed import Arguments, TypedTool, failed

MAX_COMPARED_BYTES = 1_000_000  # of the old content


class WriteFileArgs(Arguments):
    path: Annotated[str, Meta(description="The file, relative to the working directory. Directories are made.")]
    content: Annotated[str, Meta(description="The whole new content.")]


class WriteFile(TypedTool[WriteFileArgs]):
    name = "write_file"
    description = "Create a file, or replace all of it. To change a part, use patch."
    Args = WriteFileArgs
    repeatable = True  # the same content again changes nothing

    def effect(self, args: JsonObject) -> Effect:
        return Effect("write", str(args.get("path", "")))

    async def change_of(self, args: JsonObject, context: ToolContext) -> FileChange | ToolOutcome:
        wanted = msgspec.convert(args, WriteFileArgs, strict=False)
        try:
            place = await asyncio.to_thread(placed, wanted.path, context)
            before = await self.text_before(place, context)
        except ToolRefused as exc:
            return failed(str(exc))
        return await asyncio.to_thread(file_change, wanted.path, before, wanted.content, MAX_ASKED_CHARS)

    async def text_before(self, place: Place, _context: ToolContext) -> str | None:
        return await asyncio.to_thread(old_text, place)

    async def execute(self, args: WriteFileArgs, context: ToolContext) -> ToolOutcome:
        try:
            return await asyncio.to_thread(_write, args, context)
        except UnicodeEncodeError:
            return failed("the content holds half of a surrogate pair, which no file can")


def _write(args: WriteFileArgs, context: ToolContext) -> ToolOutcome:
    place, data = placed(args.path, context), args.content.encode()
    before = old_text(place)
    return written(args, before, replaced=write_whole(place, data))


def old_text(place: Place) -> str | None:
    """What the file holds now; None where there is none, or none that can be compared."""
    try:
        with opened_file(place) as file:
            data = file.read(MAX_COMPARED_BYTES + 1)
    except PathRefused:
        return None
    return text_in(data) if len(data) <= MAX_COMPARED_BYTES else None


def written(args: WriteFileArgs, before: str | None, *, replaced: bool) -> ToolOutcome:
    """What the model reads of a file that was written, and the change for the user where `before` can be compared."""
    change = file_change(args.path, before, args.content) if before is not None or not replaced else None
    lines = args.content.count("\n") + (not args.content.endswith("\n") and bool(args.content))
    return ToolOutcome(
        f"{'Replaced' if replaced else 'Created'} {args.path} ({lines} {'line' if lines == 1 else 'lines'})",
        change=change,
    )
