"""How an editor shows a tool call: its kind, its title, the files it is about, the change it makes, what it gave.

Pure. Knows the built-in tools by name; any other tool is shown by its name and its first argument.
"""

from __future__ import annotations

import base64
import os.path
import re
from typing import Any, Final, Literal, TypeAlias

from tailrace.messages import READABLE_IMAGES, FileChange, JsonObject, ToolFile
from tailrace.tools.typed import preview_line, preview_of

ToolKind: TypeAlias = Literal["read", "edit", "search", "execute", "fetch", "other"]
ToolStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]
Content: TypeAlias = dict[str, Any]

TERMINAL: Final = "terminal"
WRITE_FILE: Final = "write_file"
PATCH: Final = "patch"
MAX_TITLE_CHARS: Final = 200
MAX_OUTPUT_CHARS: Final = 30_000  # of an output as it is shown; the model has read what there is
_KINDS: Final[dict[str, ToolKind]] = {
    "read_file": "read",
    WRITE_FILE: "edit",
    PATCH: "edit",
    "search_files": "search",
    TERMINAL: "execute",
    "web_fetch": "fetch",
}
_VERBS: Final = {
    "read_file": "Read",
    WRITE_FILE: "Write",
    PATCH: "Edit",
    "search_files": "Search",
    "web_fetch": "Fetch",
}
_FENCES: Final = re.compile(r"^`{3,}", re.MULTILINE)


def kind_of(tool: str) -> ToolKind:
    return _KINDS.get(tool, "other")


def title_of(tool: str, args: JsonObject | None, preview: str | None = None) -> str:
    """What the call is about, in one line."""
    about = preview_line(preview or preview_of(args or {}), MAX_TITLE_CHARS)
    if tool == TERMINAL:
        return about or tool
    word = _VERBS.get(tool, tool)
    return f"{word} {about}" if about else word


def locations_of(tool: str, args: JsonObject | None, directory: str) -> list[Content]:
    """The files that an editor may open to follow along."""
    if tool not in ("read_file", WRITE_FILE, PATCH) or not (path := _path(args)):
        return []
    line = (args or {}).get("offset")
    place: Content = {"path": absolute(path, directory)}
    if isinstance(line, int) and not isinstance(line, bool) and line > 0:
        place["line"] = line
    return [place]


def patch_diff(tool: str, args: JsonObject | None, directory: str) -> list[Content]:
    """The change that a call of `patch` asks for; empty for any other call."""
    match tool, args:
        case ("patch", {"path": str(path), "old": str(old), "new": str(new)}):
            return [{"type": "diff", "path": absolute(path, directory), "oldText": old, "newText": new}]
        case _:
            return []


def change_diff(change: FileChange, directory: str) -> Content:
    """What was changed in a file: the lines around it, before and after."""
    lines = change.diff.split("\n")
    old, new = ("\n".join(line[1:] for line in lines if line[:1] in signs) for signs in ((" ", "-"), (" ", "+")))
    path = absolute(change.path, directory)
    return {"type": "diff", "path": path, "oldText": None if change.created else old, "newText": new}


def output_content(tool: str, output: str, files: tuple[ToolFile, ...] = ()) -> list[Content]:
    """What the tool gave."""
    shown = output if len(output) <= MAX_OUTPUT_CHARS else f"{output[:MAX_OUTPUT_CHARS]}\n…"
    content = (
        [text_content(fenced(shown) if kind_of(tool) in ("read", "execute", "search") else shown)] if shown else []
    )
    return [*content, *map(_file_content, files)]


def text_content(text: str) -> Content:
    return {"type": "content", "content": {"type": "text", "text": text}}


def fenced(text: str) -> str:
    """As a code block that nothing in the text can end."""
    fence = "`" * max(3, *(len(found) + 1 for found in _FENCES.findall(text)), 0)
    return f"{fence}\n{text}\n{fence}"


def absolute(path: str, directory: str) -> str:
    return os.path.normpath(os.path.join(directory, path))  # noqa: PTH118 - text: nothing looks at the disk


def _path(args: JsonObject | None) -> str:
    path = (args or {}).get("path")
    return path if isinstance(path, str) else ""


def _file_content(file: ToolFile) -> Content:
    data = base64.b64encode(file.data).decode()
    if file.media_type in READABLE_IMAGES:
        return {"type": "content", "content": {"type": "image", "data": data, "mimeType": file.media_type}}
    resource = {"uri": f"file:///{file.name}", "mimeType": file.media_type, "blob": data}
    return {"type": "content", "content": {"type": "resource", "resource": resource}}
