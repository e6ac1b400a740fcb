"""The attachments of a message as the model gets them: images as images, text files as text, others by name."""

from __future__ import annotations

import base64
import logging

from tailrace.delivery.planning.presenter import fenced, preview_line
from tailrace.delivery.port import Attachment, MessageReceived, Platform
from tailrace.errors import PlatformError
from tailrace.messages import READABLE_IMAGES, Image, Message, Part, Text

log = logging.getLogger("tailrace.platforms")

MAX_IMAGE_BYTES = 10 << 20
MAX_TEXT_BYTES = 256 << 10
_TEXTS = ("text/", "application/json", "application/xml", "application/x-yaml", "application/toml", "application/x-sh")


async def message_of(platform: Platform, received: MessageReceived) -> Message:
    """The message as the model gets it. An empty message has no parts."""
    parts: list[Part] = [Text(received.text)] if received.text.strip() else []
    for attachment in received.attachments:
        try:
            parts.append(await _part(platform, attachment))
        except PlatformError as exc:
            log.warning("an attachment could not be read: %s", exc)
            parts.append(Text(f"[attached: {_label(attachment)}; it could not be read]"))
    return Message("user", tuple(parts))


async def _part(platform: Platform, attachment: Attachment) -> Part:
    kind = attachment.media_type.partition(";")[0].strip().lower()
    if kind in READABLE_IMAGES:
        data = await platform.fetch(attachment, max_bytes=MAX_IMAGE_BYTES)
        return Image(data=base64.b64encode(data).decode(), media_type=kind)
    small = attachment.size_bytes is None or attachment.size_bytes <= MAX_TEXT_BYTES
    if small and (kind.startswith(_TEXTS) or kind in ("", "application/octet-stream")):
        data = await platform.fetch(attachment, max_bytes=MAX_TEXT_BYTES)
        try:
            return Text(f"[attached: {_label(attachment)}]\n{fenced(data.decode())}")
        except UnicodeDecodeError:
            pass
    return Text(f"[attached: {_label(attachment)}; only images and text files can be read]")


def _label(attachment: Attachment) -> str:
    return preview_line(attachment.name or "a file", 120) + (
        f" ({attachment.media_type})" if attachment.media_type else ""
    )
