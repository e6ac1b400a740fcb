"""Requests over aiohttp, for every adapter that makes them: what no answer means (G80), and downloads up to a size."""

from __future__ import annotations

import aiohttp

from tailrace.delivery.port import AnyReply, Failed, Unknown

NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError)


def reply_without_answer(error: Exception) -> AnyReply:
    """Certain where no connection was made: then nothing was written. Unknown in every other case."""
    match error:
        case aiohttp.ClientConnectorError():
            return Failed(f"no connection: {error.os_error.strerror or error.os_error}")
        case aiohttp.ConnectionTimeoutError():
            return Failed("no connection in time")
        case _:
            return Unknown(str(error) or type(error).__name__)


async def download(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """The body of the answer; None where it is larger than `max_bytes`."""
    content = bytearray()
    async for piece in response.content.iter_chunked(65536):
        content += piece
        if len(content) > max_bytes:
            return None
    return bytes(content)


def first_error(group: ExceptionGroup[Exception]) -> Exception:
    """The error that ended a task group; the others followed from it."""
    error = group.exceptions[0]
    return first_error(error) if isinstance(error, ExceptionGroup) else error
