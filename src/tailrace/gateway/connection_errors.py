"""Requests over aiohttp, for every adapter that makes them: what no answer means (G80)."""

from __future__ import annotations

import ssl

import aiohttp

from tailrace.delivery.port import AnyReply, Failed, Unknown

_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")  # by version of OpenSSL
NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError)


def no_connection(error: Exception) -> str:
    """Where to and why not, in words of the system: what the library says has the address twice, and its own terms."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        why = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        return f"no connection: {str(error) or why}"
    return f"no connection to {error.host}:{error.port}: {_cause(error.os_error)}"


def _cause(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ssl.SSLError) and any(reason in str(error) for reason in _NO_TLS):
        return "it does not speak TLS; is its address http:// and not https://?"
    return str(getattr(error, "verify_message", "") or error.strerror or error)  # of a certificate; of all others


def reply_without_answer(error: Exception) -> AnyReply:
    """Certain where no connection was made: then nothing was written. Unknown in every other case."""
    match error:
        case aiohttp.ClientConnectorError():
            return Failed(no_connection(error))
        case aiohttp.ConnectionTimeoutError():
            return Failed("no connection in time")
        case _:
            return Unknown(str(error) or type(error).__name__)


def first_error(group: ExceptionGroup[Exception]) -> Exception:
    """The error that ended a task group; the others followed from it."""
    error = group.exceptions[0]
    return first_error(error) if isinstance(error, ExceptionGroup) else error
