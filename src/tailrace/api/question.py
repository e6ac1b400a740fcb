"""What a caller asks, and what was said before, as messages."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tailrace.errors import ConfigError, TailraceError
from tailrace.flows.steps.images import media_type_of
from tailrace.messages import READABLE_IMAGES, File, Image, Message, Text
from tailrace.wire.client_request import InvalidRequest
from tailrace.wire.dialects import CHAT

QuestionPart: TypeAlias = str | Path | bytes | Text | Image | File
Question: TypeAlias = QuestionPart | Sequence[QuestionPart]
History: TypeAlias = Sequence[Message | Mapping[str, Any]]


def message_of(question: Question) -> Message:
    """Reads files. A text, a `Path` to an image or a document, their bytes, or several of these. Raises `TypeError` for
    anything else, `ConfigError` for a file that cannot be read, `TailraceError` where nothing is asked."""
    parts = [question] if isinstance(question, QuestionPart) else question
    if not isinstance(parts, list | tuple):
        raise TypeError(f"a question is a str, a Path, bytes, or a list of these, not {type(question).__name__}")
    message = Message("user", tuple(map(_part_of, parts)))
    if message.is_blank:
        raise TailraceError("nothing was asked: the text is empty")
    return message


def _part_of(part: QuestionPart) -> Text | Image | File:
    match part:
        case str():
            return Text(part)
        case Path():
            try:
                return _media(part.read_bytes(), part.name)
            except OSError as exc:
                raise ConfigError(f"{part} cannot be read: {exc.strerror}") from exc
        case bytes():
            return _media(part, "")
        case Text() | Image() | File():
            return part
        case _:
            raise TypeError(f"a part of a question is a str, a Path or bytes, not {type(part).__name__}")


def _media(data: bytes, name: str) -> Image | File:
    pdf = "application/pdf" if data.startswith(b"%PDF-") else None
    media_type = media_type_of(data) or pdf or mimetypes.guess_type(name)[0]
    if media_type is None:
        raise ConfigError(f"{name or 'bytes'}: of which type? Give File(data=<base64>, media_type=…) or Image(…)")
    encoded = base64.b64encode(data).decode()
    if media_type in READABLE_IMAGES:
        return Image(data=encoded, media_type=media_type)
    return File(data=encoded, media_type=media_type, name=name)


def messages_of(history: History) -> tuple[Message, ...]:
    """Messages of ours, or in OpenAI's form. Raises `ConfigError`."""
    own = tuple(message for message in history if isinstance(message, Message))
    if len(own) == len(history):
        return own
    try:
        request = CHAT.parse_client_request({"model": "any", "messages": list(history)}).request
    except InvalidRequest as exc:
        raise ConfigError(f"history: {exc}") from exc
    if request.system:
        raise ConfigError("history: a system message belongs into Agent(system=…)")
    return request.messages
