"""What is read of a reply that is no stream of events: its kind, its beginning, its error, a line for a message."""

from __future__ import annotations

import msgspec

from tailrace.messages import ErrorDelta, JsonObject
from tailrace.providers.transport.port import HttpReply
from tailrace.wire.failure import failure_in
from tailrace.wire.peer_json import object_of

_PEEK_BYTES = 16  # enough to tell a stream from a page


def media_type(reply: HttpReply) -> str:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


async def peek(reply: HttpReply) -> bytes:
    head = b""
    while len(head) < _PEEK_BYTES and (data := await reply.read()):
        head += data
    return head


async def read_some(reply: HttpReply, max_bytes: int) -> bytes:
    """The beginning of a body, up to its end or past so many bytes."""
    pieces: list[bytes] = []
    size = 0
    while size < max_bytes and (data := await reply.read()):
        pieces.append(data)
        size += len(data)
    return b"".join(pieces)[:max_bytes]


def excerpt(data: bytes) -> str:
    """One line of it, for a message."""
    return " ".join(data[:300].decode("utf-8", "replace").split())[:200]


def refusal_in(body: JsonObject, status: int) -> ErrorDelta | None:
    """The error of a body with another status, with the name of the field at fault where the provider has it beside
    the message alone."""
    error = failure_in(body, status=status)
    param = object_of(body.get("error")).get("param")
    if error is None or not isinstance(param, str) or not param or param in error.message:
        return error
    return msgspec.structs.replace(error, message=f"{error.message} ({param})")
