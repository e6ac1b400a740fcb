"""Writes a whole file."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from tailrace.messages import JsonObject
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.paths import PathRefused, resolved, write_whole
from tailrace.tools.typed import TypedTool, failed


class WriteFileArgs(msgspec.Struct):
    path: Annotated[str, Meta(description="The file, relative to the working directory. Directories are made.")]
    content: Annotated[str, Meta(description="The whole new content.")]


class WriteFile(TypedTool[WriteFileArgs]):
    name = "write_file"
    description = "Create a file, or replace all of it. To change a part, use patch."
    Args = WriteFileArgs
    repeatable = True  # the same content again changes nothing

    def effect(self, args: JsonObject) -> Effect:
        return Effect("write", str(args.get("path", "")))

    async def do(self, args: WriteFileArgs, context: ToolContext) -> ToolOutcome:
        try:
            path = resolved(args.path, context)
            existed = path.exists()
            if path.is_dir():
                return failed(f"{args.path} is a directory")
            await asyncio.to_thread(write_whole, path, args.content)
        except PathRefused as exc:
            return failed(str(exc))
        except OSError as exc:
            return failed(f"{args.path}: {exc.strerror}")
        lines = len(args.content.splitlines())
        return ToolOutcome(f"{'Replaced' if existed else 'Created'} {args.path} ({lines} lines)")
