"""The built-in file tools in the editor's hands: files as its buffers have them.

Where a path may lead, what is asked first and what is kept in a checkpoint is decided as ever, before any of these run.
An editor that cannot do a thing leaves it to the tool as it is without one.
"""

from __future__ import annotations

import asyncio
import io
import os
import stat
from pathlib import Path

from tailrace.integrations.acp.editor import Editor, EditorRefused
from tailrace.integrations.acp.tool_updates import absolute
from tailrace.ports import Tool, ToolContext, ToolOutcome
from tailrace.tools.file_change import file_change
from tailrace.tools.patch import MAX_FILE_BYTES, Patch, PatchArgs, replace_text
from tailrace.tools.paths import PathRefused, Place, opened_directory, parent_of, placed
from tailrace.tools.read_file import ReadFile, ReadFileArgs, numbered
from tailrace.tools.write_file import WriteFile, WriteFileArgs, written


class EditorFiles:
    """The files of one session, as the editor has them."""

    def __init__(self, editor: Editor, session_id: str) -> None:
        self._editor = editor
        self._session_id = session_id

    @property
    def can_read(self) -> bool:
        files = self._editor.offered.fs
        return bool(files and files.read_text_file)

    @property
    def can_write(self) -> bool:
        files = self._editor.offered.fs
        return bool(files and files.write_text_file)

    async def text_at(self, place: Place, context: ToolContext) -> str | None:
        """What the editor has there; None where the disk must be read: it cannot tell, or it is no plain file."""
        if not self.can_read or await asyncio.to_thread(_is_unfit, place.path):
            return None
        try:
            return await self._editor.read_text(self._session_id, _editor_path(place, context))
        except EditorRefused:
            return None

    async def write(self, place: Place, context: ToolContext, text: str) -> bool:
        """Whether it replaced a file. Makes the directories. Raises `PathRefused`, `EditorRefused`."""
        replaced = await asyncio.to_thread(_prepare, place)
        await self._editor.write_text(self._session_id, _editor_path(place, context), text)
        return replaced


class EditorReadFile(ReadFile):
    def __init__(self, files: EditorFiles) -> None:
        super().__init__()
        self._files = files

    async def execute(self, args: ReadFileArgs, context: ToolContext) -> ToolOutcome:
        place = await asyncio.to_thread(placed, args.path, context)
        text = await self._files.text_at(place, context)
        if text is None:
            return await super().execute(args, context)
        data = io.BytesIO(text.encode("utf-8", "replace"))
        return ToolOutcome(await asyncio.to_thread(numbered, data, "utf-8", args))


class EditorWriteFile(WriteFile):
    def __init__(self, files: EditorFiles) -> None:
        super().__init__()
        self._files = files

    async def text_before(self, place: Place, context: ToolContext) -> str | None:
        text = await self._files.text_at(place, context)
        return text if text is not None else await super().text_before(place, context)

    async def execute(self, args: WriteFileArgs, context: ToolContext) -> ToolOutcome:
        try:
            args.content.encode()
            place = await asyncio.to_thread(placed, args.path, context)
            before = await self.text_before(place, context)
            replaced = await self._files.write(place, context, args.content)
            return await asyncio.to_thread(written, args, before, replaced=replaced)
        except UnicodeEncodeError:  # the tool itself says so
            return await super().execute(args, context)


class EditorPatch(Patch):
    """Reads and writes in the editor, or does neither: a buffer and a file on the disk may differ."""

    def __init__(self, files: EditorFiles) -> None:
        super().__init__()
        self._files = files

    async def text_before(self, args: PatchArgs, context: ToolContext) -> str:
        text = None
        if self._files.can_write:
            text = await self._files.text_at(await asyncio.to_thread(placed, args.path, context), context)
        return text if text is not None else await super().text_before(args, context)

    async def execute(self, args: PatchArgs, context: ToolContext) -> ToolOutcome:
        if not self._files.can_write:
            return await super().execute(args, context)
        place = await asyncio.to_thread(placed, args.path, context)
        before = await self._files.text_at(place, context)
        if before is None:
            return await super().execute(args, context)
        change = await asyncio.to_thread(replace_text, before, args)
        if isinstance(change, ToolOutcome):
            return change
        await self._files.write(place, context, change.after)
        return ToolOutcome(change.shown, change=await asyncio.to_thread(file_change, args.path, before, change.after))


def editor_tools(editor: Editor, session_id: str) -> dict[str, Tool]:
    """What stands in for the built-in tools of the same names."""
    files = EditorFiles(editor, session_id)
    tools: list[Tool] = [EditorWriteFile(files)] if files.can_write else []
    if files.can_read:
        tools += [EditorReadFile(files), EditorPatch(files)]
    return {tool.spec.name: tool for tool in tools}


def _editor_path(place: Place, context: ToolContext) -> str:
    """The path as the editor knows it: with the links by which it has opened the directory, where both are the same."""
    path = absolute(place.asked, str(context.directory))
    return path if os.path.realpath(path) == str(place.path) else str(place.path)


def _is_unfit(path: Path) -> bool:
    """Whether an editor should not be asked for it: a pipe, a device, a directory, or very long."""
    try:
        status = path.stat()
    except OSError:
        return False  # it may be a buffer that was never saved
    return not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES


def _prepare(place: Place) -> bool:
    """Makes the directories of a file; returns whether it is there. Raises `PathRefused` for what is no plain file."""
    if not place.parts:
        raise PathRefused(f"{place.asked} is a directory")
    with opened_directory(parent_of(place), make=True) as folder:
        try:
            status = os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
    if not stat.S_ISREG(status.st_mode):
        raise PathRefused(f"{place.asked} is {'a directory' if stat.S_ISDIR(status.st_mode) else 'no plain file'}")
    return True
