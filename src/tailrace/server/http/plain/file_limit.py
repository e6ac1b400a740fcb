"""Connections for which hardly a file is left: they get 503 and are closed. `/healthz` is answered all the same: a
supervisor ends a process that does not answer it, and this one is only busy.

The system gives a new connection the lowest number that is free: so the number says how many files are open at least,
and a connection costs one comparison. Refusals take files too: where half of the reserve is used up, each new one takes
the place of the oldest. Where no file is left at all, the event loop's library closes new connections without a word.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final

from tailrace.app.http_connection import SERVER_NAME

log = logging.getLogger("tailrace.server")
RESERVED_SHARE: Final = 8  # of the files one in so many is kept for all that is no client's connection
MIN_RESERVED: Final = 64
MAX_RESERVED: Final = 1024
LINGER_S: Final = 1.0  # in which a client that was refused reads the answer and closes
TOLD_EVERY_S: Final = 60.0
_HEALTH_LINE: Final = re.compile(rb"(GET|HEAD) /healthz[? ]")


def _answer(status: bytes, body: bytes, *, headers: bytes = b"") -> bytes:
    head = b"HTTP/1.1 %b\r\nServer: %b\r\n%bConnection: close\r\n" % (status, SERVER_NAME.encode(), headers)
    content = b"Content-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    return head + content


_REFUSAL: Final = _answer(
    b"503 Service Unavailable",
    b'{"error":{"kind":"overloaded","message":"too many connections at once"}}',
    headers=b"Retry-After: 1\r\n",
)
_OK, _STOPPING = (_answer(b"200 OK", body) for body in (b'{"status":"ok"}', b'{"status":"stopping"}'))


class FileLimit:
    """`open_files`: how many this process may have; 0 is any number. `is_stopping`: what `/healthz` says."""

    def __init__(self, open_files: int, *, is_stopping: Callable[[], bool]) -> None:
        reserved = min(max(open_files // RESERVED_SHARE, MIN_RESERVED), MAX_RESERVED, open_files // 2)
        self._is_stopping = is_stopping
        self._open_files = open_files
        self._refused_from = max(open_files - reserved, 1)  # the number of a connection's file
        self._full_from = self._refused_from + reserved // 2  # no more refusals at once from here on
        self._refused: dict[_RefusedConnection, None] = {}  # the oldest first
        self._told_at: float | None = None

    def refuses(self, transport: asyncio.Transport) -> bool:
        """Whether the new connection is not served; then it is answered and closed. Where there are too many of those,
        one is cut off, first the one that has asked nothing for longest: it is no probe."""
        if not self._open_files:
            return False
        number = transport.get_extra_info("socket").fileno()
        if number < self._refused_from:
            return False
        self._tell()
        if number >= self._full_from and self._refused:
            silent = (each for each in self._refused if not each.answered)
            next(silent, next(iter(self._refused))).cut()
        refused = _RefusedConnection(transport, self._is_stopping, lambda: self._refused.pop(refused, None))
        self._refused[refused] = None
        transport.set_protocol(refused)
        return True

    def _tell(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._told_at is None or now - self._told_at >= TOLD_EVERY_S:
            self._told_at = now
            message = "new connections are refused: %d files are open, and this process may have %d (ulimit -n)"
            log.warning(message, self._refused_from, self._open_files)


class _RefusedConnection(asyncio.Protocol):
    """Answers the first bytes and reads the rest away: closed with bytes unread, the client might lose the answer."""

    def __init__(
        self, transport: asyncio.Transport, is_stopping: Callable[[], bool], on_closed: Callable[[], object]
    ) -> None:
        self._transport = transport
        self._is_stopping = is_stopping
        self._on_closed = on_closed
        self.answered = False
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.cut)

    def cut(self) -> None:
        self._timer.cancel()
        self._on_closed()
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self.answered:
            self.answered = True
            self._transport.write(self._answer_to(data))
            self._transport.write_eof()

    def _answer_to(self, data: bytes) -> bytes:
        asked = _HEALTH_LINE.match(data)
        if asked is None:
            return _REFUSAL
        answer = _STOPPING if self._is_stopping() else _OK
        return answer if asked[1] == b"GET" else answer[: answer.index(b"\r\n\r\n") + 4]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._timer.cancel()
        self._on_closed()
