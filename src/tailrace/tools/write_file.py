"""Writes a whole file."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from tailrace.messages import JsonObject
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.file_change import file_change
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

    async def execute(self, args: WriteFileArgs, context: ToolContext) -> ToolOutcome:
        try:
            return await asyncio.to_thread(_write, args, context)
        except PathRefused as exc:
            return failed(str(exc))
        except UnicodeEncodeError:
            return failed("the content holds half of a surrogate pair, which no file can")


def _write(args: WriteFileArgs, context: ToolContext) -> ToolOutcome:
    place, data = placed(args.path, context), args.content.encode()
    before = _text_at(place)
    replaced = write_whole(place, data)
    change = file_change(args.path, before, args.content) if before is not None or not replaced else None
    return msgspec.structs.replace(written(args, replaced=replaced), change=change)


def _text_at(place: Place) -> str | None:
    """What the file holds now; None where there is none, or none that can be compared."""
    try:
        with opened_file(place) as file:
            data = file.read(MAX_COMPARED_BYTES + 1)
    except PathRefused:
        return None
    return text_in(data) if len(data) <= MAX_COMPARED_BYTES else None


_REPLACED = "Replaced "


def has_replaced(output: str) -> bool:
    """Whether the tool says that there was a file before."""
    return output.startswith(_REPLACED)


def written(args: WriteFileArgs, *, replaced: bool) -> ToolOutcome:
    """What the model reads of a file that was written."""
    lines = args.content.count("\n") + (not args.content.endswith("\n") and bool(args.content))
    return ToolOutcome(
        f"{_REPLACED if replaced else 'Created '}{args.path} ({lines} {'line' if lines == 1 else 'lines'})"
    )
