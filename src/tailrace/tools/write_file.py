"""Writes a whole file."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta

from tailrace.messages import JsonObject
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.paths import PathRefused, placed, write_whole
from tailrace.tools.typed import Arguments, TypedTool, failed


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
            replaced = await asyncio.to_thread(lambda: write_whole(placed(args.path, context), args.content.encode()))
        except PathRefused as exc:
            return failed(str(exc))
        except UnicodeEncodeError:
            return failed("the content holds half of a surrogate pair, which no file can")
        return written(args, replaced=replaced)


_REPLACED = "Replaced "


def has_replaced(output: str) -> bool:
    """Whether the tool says that there was a file before."""
    return output.startswith(_REPLACED)


def written(args: WriteFileArgs, *, replaced: bool) -> ToolOutcome:
    """What the model reads of a file that was written."""
    lines = args.content.count("\n") + (not args.content.endswith("\n") and bool(args.content))
    return ToolOutcome(f"{_REPLACED if replaced else 'Created '}{args.path} ({lines} lines)")
