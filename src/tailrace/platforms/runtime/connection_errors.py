"""Requests over aiohttp, for every adapter that makes them: what no answer means (G80)."""

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


def first_error(group: ExceptionGroup[Exception]) -> Exception:
    """The error that ended a task group; the others followed from it."""
    error = group.exceptions[0]
    return first_error(error) if isinstance(error, ExceptionGroup) else error
