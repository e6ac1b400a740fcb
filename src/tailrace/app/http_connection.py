"""One connection of an HTTP listener: what we answer a client whose bytes are no request.

Owns the answers that the HTTP library would give before any of our handlers is asked: for a head that cannot be parsed,
and for an exception that no handler caught. They name neither the library nor its version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong

from tailrace.app.telemetry.logging_setup import PEERS
from tailrace.system.private_apis import new_http_connection, reading_is_paused
from tailrace.system.random_hex import random_hex

SERVER_NAME = "tailrace"
READING_AT_ONCE: Final = 8  # connections, of 256 kB each at most


class HttpConnection(web.RequestHandler):
    """A connection whose errors have our body. Where hundreds of large bodies arrive together, a few connections read
    on in a turn of the loop: two megabytes, and not sixty (L143)."""

    __slots__ = ()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """The library calls this twice for every body, paused or not; at its end without `resume_parser`."""
        if not resume_parser and reading_is_paused(self):
            super().resume_reading(resume_parser)
        elif reading_is_paused(self):
            turns = _TURNS.setdefault(asyncio.get_running_loop(), _Turns())
            turns.waiting[self] = None
            turns.schedule()

    def stay_paused(self) -> None:
        """Until `resume_reading` is called again: the body's reader has no room."""
        if turns := _TURNS.get(asyncio.get_running_loop()):
            turns.waiting.pop(self, None)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - the library's own text
    ) -> web.StreamResponse:
        """Raises `ConnectionError` where the answer has begun."""
        return failure_response(request, status, exc)


class _Turns:
    """Of the paused connections of one loop."""

    def __init__(self) -> None:
        self.waiting: dict[HttpConnection, None] = {}
        self._is_due = False

    def schedule(self) -> None:
        if self.waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        self._is_due = False
        try:
            for connection in tuple(self.waiting)[:READING_AT_ONCE]:
                del self.waiting[connection]
                if connection.transport is not None:
                    web.RequestHandler.resume_reading(connection)
        finally:
            self.schedule()  # of the others, where one raises, too


_TURNS: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]()


def failure_response(request: web.BaseRequest, status: int, exc: BaseException | None) -> web.Response:
    """The answer where no handler has one; it closes the connection. Raises `ConnectionError` where an answer has
    begun."""
    request_id = f"req_{random_hex(24)}"
    transport = request.transport
    left = isinstance(exc, ConnectionError) and (transport is None or transport.is_closing())
    # any peer may send bytes that are no request, or leave before the end of the answer
    level = logging.ERROR if status >= 500 and not left else logging.DEBUG
    PEERS.log(level, "no answer for %s", request.remote, exc_info=exc, extra={"request_id": request_id})
    if request.writer.output_size > 0:
        raise ConnectionError("the answer has begun")
    kind, text = _told(status, exc)
    body = msgspec.json.encode({"error": {"kind": kind, "message": text}, "request_id": request_id})
    headers = {"Server": SERVER_NAME, "X-Content-Type-Options": "nosniff", "X-Request-Id": request_id}
    response = web.Response(status=status, body=body, content_type="application/json", headers=headers)
    response.force_close()
    return response


def _told(status: int, exc: BaseException | None) -> tuple[str, str]:
    match exc:
        case LineTooLong():
            return "head_too_large", "the request line or a header is longer than this server accepts"
        case BadHttpMethod():
            return "bad_request", "this is no HTTP method"
        case _ if status < 500:
            return "bad_request", "the request is not valid HTTP"
        case _:
            return "internal_error", "internal error"


def connection_factory(runner: web.BaseRunner) -> Callable[[], HttpConnection]:
    """Makes the connections of a runner that is set up: for `loop.create_server`."""
    server, loop = runner.server, asyncio.get_running_loop()
    if server is None:
        raise RuntimeError("the runner is not set up")
    return lambda: new_http_connection(HttpConnection, server, loop)
