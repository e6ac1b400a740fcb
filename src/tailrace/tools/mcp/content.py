"""What MCP servers send, as the model reads it and as files: of tool results, resources and prompts alike."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tailrace.messages import READABLE_IMAGES, ToolFile
from tailrace.tools.typed import preview_line

if TYPE_CHECKING:
    import mcp_types

MAX_CHARS: Final = 50_000
MAX_NAME_CHARS: Final = 64  # the least that every provider takes


_MAX_ADDRESS_CHARS: Final = 2000


def one_line(name: str) -> str:
    """A server's name for a thing as a list can show it: it cannot begin a line of its own, nor fill the list."""
    return preview_line(name, _MAX_ADDRESS_CHARS)


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
            return resource_text(resource)


def resource_text(resource: mcp_types.TextResourceContents | mcp_types.BlobResourceContents) -> str:
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
                files += resource_files(resource)
            case _:
                continue
    return tuple(files)


def resource_files(
    resource: mcp_types.TextResourceContents | mcp_types.BlobResourceContents,
) -> tuple[ToolFile, ...]:
    """The file that a binary resource is; none of a text."""
    from mcp_types import BlobResourceContents

    if not isinstance(resource, BlobResourceContents):
        return ()
    kind = resource.mime_type or "application/octet-stream"
    return _decoded(_file_name(str(resource.uri)), kind, resource.blob)


def _decoded(name: str, kind: str, encoded: str) -> tuple[ToolFile, ...]:
    with suppress(binascii.Error, ValueError):
        return (ToolFile(name, kind, base64.b64decode(encoded, validate=True)),)
    return ()


def _file_name(uri: str) -> str:
    """The end of a resource's address, as far as a chat can show it. A `data:` address has its content there."""
    name = "file" if uri.startswith("data:") else uri.rstrip("/").rpartition("/")[2]
    return "".join(char if char.isprintable() else "_" for char in name[-MAX_NAME_CHARS:]) or "file"
