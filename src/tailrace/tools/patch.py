"""Replaces one exact piece of a file."""

from __future__ import annotations

import asyncio
import difflib
import os
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from tailrace.errors import ToolRefused
from tailrace.messages import FileChange, JsonObject
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.file_change import MAX_ASKED_CHARS, MAX_DIFF_CHARS, ChangedLines, changed_lines, file_change
from tailrace.tools.paths import Place, opened_file, placed, write_whole
from tailrace.tools.typed import Arguments, TypedTool, clipped, failed

MAX_FILE_BYTES = 10 * 1024 * 1024
_MAX_COMPARED_LINES = 5000


class PatchArgs(Arguments):
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

    async def change_of(self, args: JsonObject, context: ToolContext) -> FileChange | ToolOutcome:
        wanted = msgspec.convert(args, PatchArgs, strict=False)
        try:
            text = await self.text_before(wanted, context)
        except (ToolRefused, OSError) as exc:
            return failed(str(exc))
        change = await asyncio.to_thread(replace_text, text, wanted)
        if isinstance(change, ToolOutcome):
            return change
        return await asyncio.to_thread(file_change, wanted.path, text, change.after, MAX_ASKED_CHARS)

    async def text_before(self, args: PatchArgs, context: ToolContext) -> str:
        """Raises `ToolRefused` where no text can be replaced."""
        text, _ = await asyncio.to_thread(_read, args, placed(args.path, context))
        return text

    async def execute(self, args: PatchArgs, context: ToolContext) -> ToolOutcome:
        try:
            return await asyncio.to_thread(_patch, args, context)
        except OSError as exc:
            return failed(f"{args.path}: {exc.strerror}")


def _patch(args: PatchArgs, context: ToolContext) -> ToolOutcome:
    place = placed(args.path, context)
    before, status = _read(args, place)
    change = replace_text(before, args)
    if isinstance(change, ToolOutcome):
        return change
    write_whole(place, change.after.encode(), expected=status)
    return ToolOutcome(change.shown, change=file_change(args.path, before, change.after))


def _read(args: PatchArgs, place: Place) -> tuple[str, os.stat_result]:
    """Raises `ToolRefused` for what is no text, and for too much of it."""
    with opened_file(place) as file:
        status = os.fstat(file.fileno())
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ToolRefused(f"{args.path} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode(), status
    except UnicodeDecodeError:
        raise ToolRefused(f"{args.path} is not UTF-8 text") from None


class Replacement(NamedTuple):
    """The whole text after the change, and the change as the model is shown it."""

    after: str
    shown: str


def replace_text(before: str, args: PatchArgs) -> Replacement | ToolOutcome:
    """What becomes of a file's text; an outcome where it cannot be changed so."""
    old, new = args.old, args.new
    if old not in before and "\r\n" in before:  # the model saw plain line ends
        old, new = _with_crlf(old), _with_crlf(new)
    count = before.count(old)
    if count == 0:
        return failed(f"{args.path} does not contain that text. {_nearest(before, args.old)}".rstrip())
    if count > 1 and not args.replace_all:
        return failed(f"{args.path} contains that text {count} times; give more of it, or set replace_all")
    after = before.replace(old, new)
    if after == before:
        return failed("old and new are the same text; nothing was changed")
    return Replacement(after, clipped(_shown(changed_lines(before, after), args.path), MAX_DIFF_CHARS))


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _nearest(text: str, wanted: str) -> str:
    first = next((line for line in wanted.splitlines() if line.strip()), "")
    lines = text.split("\n")[:_MAX_COMPARED_LINES]
    close = difflib.get_close_matches(first, lines, n=1, cutoff=0.6)
    return f"The closest line is {lines.index(close[0]) + 1}: {close[0].strip()!r}" if close else ""


def _shown(changed: ChangedLines, name: str) -> str:
    """The change as the model reads it."""
    if changed.lines is None:
        return f"Changed {name} between lines {changed.first} and {changed.last}"
    return "\n".join((f"{name}, from line {changed.start}:", *changed.lines))
