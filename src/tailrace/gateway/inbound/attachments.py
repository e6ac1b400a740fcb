"""The attachments of a message as the model gets them: images as images, text files as text, others by name.

They are fetched inside the run that answers the message, within `FETCH_S`: nothing else waits for a download (L147).
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import logging

from tailrace.delivery.planning.presenter import fenced, preview_line
from tailrace.delivery.port import Attachment, MessageReceived, Platform
from tailrace.errors import PlatformError
from tailrace.events.speakers import one_line_name
from tailrace.messages import READABLE_IMAGES, Image, Message, Part, Text

log = logging.getLogger("tailrace.gateway")

MAX_IMAGE_BYTES = 10 << 20
MAX_TEXT_BYTES = 256 << 10
MAX_FILES = 20  # of one message; the others are named
FETCH_S = 60.0  # for the files of one message together
_MAX_NAME = 120  # characters
_TEXTS = (
    "text/",
    "application/json",
    "application/xml",
    "application/x-yaml",
    "application/toml",
    "application/x-sh",
    "image/svg+xml",
)
_TEXT_NAMES = (".csv", ".tsv")  # which Windows takes for Excel's own


def named_message(received: MessageReceived) -> Message:
    """The message with the names of its attachments in their place: what the model gets where they are never fetched.
    An empty message has no parts."""
    named = (_unread(attachment, "; it was not fetched") for attachment in received.attachments)
    return Message("user", (*_text(received), *named))


def shown_text(received: MessageReceived) -> str:
    """The message as its sender saw it, with the names of its files."""
    names = [f"[{preview_line(attachment.name or 'a file', _MAX_NAME)}]" for attachment in received.attachments]
    return " ".join([*([received.text] if received.text.strip() else []), *names])


async def message_of(platform: Platform, received: MessageReceived) -> Message:
    """The message as the model gets it. An empty message has no parts."""
    parts = _text(received)
    deadline = asyncio.get_running_loop().time() + FETCH_S
    for number, attachment in enumerate(received.attachments):
        if number >= MAX_FILES:
            parts.append(_unread(attachment, "; too many files for one message"))
            continue
        try:
            async with asyncio.timeout_at(deadline):
                parts.append(await _part(platform, attachment))
        except (PlatformError, TimeoutError) as exc:
            log.warning("an attachment could not be read: %s", str(exc) or f"not fetched within {FETCH_S:.0f} s")
            parts.append(_unread(attachment, "; it could not be read"))
    return Message("user", tuple(parts))


def _text(received: MessageReceived) -> list[Part]:
    return [Text(received.text)] if received.text.strip() else []


def _unread(attachment: Attachment, why: str) -> Text:
    return Text(f"[attached: {_label(attachment)}{why}]")


async def _part(platform: Platform, attachment: Attachment) -> Part:
    kind = attachment.media_type.partition(";")[0].strip().lower()
    if kind in READABLE_IMAGES:
        if (attachment.size_bytes or 0) > MAX_IMAGE_BYTES:
            return _unread(attachment, f"; an image of more than {MAX_IMAGE_BYTES >> 20} MiB is not read")
        data = await platform.fetch(attachment, max_bytes=MAX_IMAGE_BYTES)
        return Image(data=base64.b64encode(data).decode(), media_type=kind)
    small = attachment.size_bytes is None or attachment.size_bytes <= MAX_TEXT_BYTES
    is_text = kind.startswith(_TEXTS) or attachment.name.lower().endswith(_TEXT_NAMES)
    if is_text and not small:
        return _unread(attachment, f"; a text of more than {MAX_TEXT_BYTES >> 10} KiB is not read")
    if small and (is_text or kind in ("", "application/octet-stream")):
        data = await platform.fetch(attachment, max_bytes=MAX_TEXT_BYTES)
        if (text := _decoded(data, is_text=is_text)) is not None:
            return Text(f"[attached: {_label(attachment)}]\n{fenced(text)}")
    return _unread(attachment, "; only images and text files can be read")


def _decoded(data: bytes, *, is_text: bool) -> str | None:
    """The text of a file; None where it is none. Windows writes UTF-16 with a mark, and in its own code page without
    one: that is taken where the sender's client says that the file is a text."""
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace") if is_text and b"\0" not in data else None


def _label(attachment: Attachment) -> str:
    """The name and the kind are whatever the sender's client says: neither ends the line that they stand in."""
    kind = one_line_name(attachment.media_type, _MAX_NAME)
    return (one_line_name(attachment.name, _MAX_NAME) or "a file") + (f" ({kind})" if kind else "")
