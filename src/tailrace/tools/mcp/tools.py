"""One tool of an MCP server as a tool of the agent, named `<server>__<tool>`, and what it returns, as the model reads
it and as files.

A tool counts as acting outside this machine, so it asks. One that its server calls read-only runs without asking where
the config trusts that server. Hints that a call may be repeated, or run beside others, are believed: they approve none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import mimetypes
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tailrace.messages import READABLE_IMAGES, JsonObject, ToolFile, ToolSpec
from tailrace.ports import Effect, ToolContext, ToolOutcome
from tailrace.tools.typed import clipped, failed, preview_of

if TYPE_CHECKING:
    import mcp_types

    from tailrace.tools.mcp.link import Link

MAX_CHARS: Final = 50_000
MAX_NAME_CHARS: Final = 64  # the least that every provider takes


def text_of(result: mcp_types.CallToolResult) -> str:
    """What the model reads of a result. What is no text is named: the user gets it as a file."""
    from mcp_types import EmbeddedResource, TextContent

    parts = [block_text(block) for block in result.content]
    has_text = any(isinstance(block, TextContent | EmbeddedResource) for block in result.content)
    if not has_text and result.structured_content is not None:
        parts.append(msgspec.json.encode(result.structured_content).decode())
    return "\n".join(parts) or "(done)"


def block_text(block: mcp_types.ContentBlock) -> str:
    from mcp_types import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent

    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind) | AudioContent(mime_type=kind):
            return f"[{kind}]" if kind in READABLE_IMAGES else f"[{kind}: given to the user, not readable here]"
        case ResourceLink(name=name, uri=uri):
            return f"[{name}: {uri}]"
        case EmbeddedResource(resource=resource):
            return _resource_text(resource)


def _resource_text(resource: mcp_types.TextResourceContents | mcp_types.BlobResourceContents) -> str:
    from mcp_types import TextResourceContents

    if isinstance(resource, TextResourceContents):
        return resource.text
    if resource.mime_type in READABLE_IMAGES:
        return f"[{resource.uri}: {resource.mime_type}]"
    return f"[{resource.uri}: given to the user, not readable here]"


def files_of(blocks: Iterable[mcp_types.ContentBlock], source: str) -> tuple[ToolFile, ...]:
    """The images, recordings and binary resources among them. What is not valid base64 is left out. `source` is what
    a file without a name is named after."""
    from mcp_types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent

    files: list[ToolFile] = []
    for block in blocks:
        match block:
            case ImageContent(data=encoded, mime_type=kind) | AudioContent(data=encoded, mime_type=kind):
                suffix = mimetypes.guess_extension(kind) or ""
                name = f"{re.sub(r'[^A-Za-z0-9_-]', '_', source)[:MAX_NAME_CHARS]}-{len(files) + 1}{suffix}"
                files += _decoded(name, kind, encoded)
            case EmbeddedResource(resource=BlobResourceContents() as resource):
                kind = resource.mime_type or "application/octet-stream"
                files += _decoded(_file_name(str(resource.uri)), kind, resource.blob)
            case _:
                continue
    return tuple(files)


def _decoded(name: str, kind: str, encoded: str) -> tuple[ToolFile, ...]:
    with suppress(binascii.Error, ValueError):
        return (ToolFile(name, kind, base64.b64decode(encoded, validate=True)),)
    return ()


def _file_name(uri: str) -> str:
    """The end of a resource's address, as far as a chat can show it. A `data:` address has its content there."""
    name = "file" if uri.startswith("data:") else uri.rstrip("/").rpartition("/")[2]
    return "".join(char if char.isprintable() else "_" for char in name[-MAX_NAME_CHARS:]) or "file"


class McpTool:
    """One tool of one server."""

    def __init__(self, link: Link, described: mcp_types.Tool) -> None:
        hints = described.annotations
        self._link = link
        self._name = described.name
        self._reads_only = bool(hints and hints.read_only_hint)
        self.repeatable = self._reads_only or bool(hints and hints.idempotent_hint)
        self.parallel = self._reads_only
        self.spec = ToolSpec(
            offered_name(link.name, described.name), described.description or "", dict(described.input_schema)
        )

    def invalid(self, _args: JsonObject) -> str:
        """The server checks them: its schema may be of any draft and of any cost (L140)."""
        return ""

    def preview(self, args: JsonObject) -> str:
        return preview_of(args)

    def effect(self, args: JsonObject) -> Effect:
        if self._reads_only and self._link.is_trusted:
            return Effect()
        return Effect("external", f"{self.spec.name} {msgspec.json.encode(args).decode()}")

    async def run(self, args: JsonObject, context: ToolContext) -> ToolOutcome:
        from tailrace.tools.mcp.connection import McpFailed

        try:
            result = await self._link.call(self._name, args, context, again=self.repeatable)
        except McpFailed as exc:
            return failed(str(exc))
        files = files_of(result.content, self._name)
        return ToolOutcome(clipped(text_of(result), MAX_CHARS), not result.is_error, files)


def offered_name(server: str, tool: str) -> str:
    """The name that a model sees: letters, digits, `_` and `-` alone, and no longer than providers take."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{tool}")
    if plain == f"{server}__{tool}" and len(plain) <= MAX_NAME_CHARS:
        return plain
    mark = hashlib.sha256(tool.encode()).hexdigest()[:6]  # what was changed must not meet another tool's name
    return f"{plain[: MAX_NAME_CHARS - 7]}_{mark}"
