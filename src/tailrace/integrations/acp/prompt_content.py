"""The content blocks of a prompt as the user's message: text, images, files that the editor has embedded, and links.

Pure. What an editor embeds is part of the message, with the address it came from; a link is named, for the model to
read with its tools.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from acp import schema
from tailrace.errors import TailraceError
from tailrace.messages import READABLE_IMAGES, File, Image, Message, Part, Text

PromptBlock = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)
_PDF = "application/pdf"


class UnreadablePrompt(TailraceError):
    """A block that no model here can be given; says which."""


def message_of(blocks: Sequence[PromptBlock]) -> Message:
    """The user's message. Raises `UnreadablePrompt`."""
    message = Message("user", tuple(_part_of(block) for block in blocks))
    if message.is_blank:
        raise UnreadablePrompt("the prompt is empty")
    return message


def _part_of(block: PromptBlock) -> Part:
    match block:
        case schema.TextContentBlock(text=text):
            return Text(text)
        case schema.ImageContentBlock(data=data, mime_type=media_type):
            if media_type not in READABLE_IMAGES:
                readable = ", ".join(sorted(READABLE_IMAGES))
                raise UnreadablePrompt(f"images of type {media_type} cannot be read; {readable} can")
            return Image(data=_checked(data, "the image"), media_type=media_type)
        case schema.ResourceContentBlock(name=name, uri=uri):
            return Text(_link(name, uri))
        case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents(text=text, uri=uri)):
            return Text(f'\n<file path="{_shown(uri)}">\n{text}\n</file>\n')
        case schema.EmbeddedResourceContentBlock(
            resource=schema.BlobResourceContents(blob=data, mime_type=media_type, uri=uri)
        ):
            return _blob(data, media_type or "", uri)
        case _:
            raise UnreadablePrompt("sound cannot be read (promptCapabilities.audio is false)")


def _blob(data: str, media_type: str, uri: str) -> Part:
    name = _shown(uri)
    if media_type in READABLE_IMAGES:
        return Image(data=_checked(data, name), media_type=media_type)
    if media_type == _PDF:
        return File(data=_checked(data, name), media_type=media_type, name=name.rpartition("/")[2])
    return Text(f"[{name}: {media_type or 'a binary file'}, not readable here]")


def _link(name: str, uri: str) -> str:
    shown = _shown(uri)
    return f"[{shown}]" if shown == name or shown.endswith(f"/{name}") else f"[{name}: {shown}]"


def _shown(uri: str) -> str:
    """A file by its path, which the tools take; anything else by its address."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    place = f"#{parts.fragment}" if parts.fragment else ""
    return unquote(parts.path) + place


def _checked(data: str, what: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise UnreadablePrompt(f"{what} is not valid base64") from exc
    return data
