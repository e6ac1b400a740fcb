"""The access log: a line for each request, many of them written at once.

A line that is logged by itself costs a record, its redaction and a system call, an eighth of a short request. Here a
request leaves a tuple; a timer has the handler format, redact and write all that wait. A process that is killed loses
the lines of that moment at most.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from tailrace.app.telemetry.logging_setup import ACCESS, FIELDS, OURS, REQUEST, LineHandler

WAIT_S: Final = 0.1  # at most, until a line is written


class AccessLog:
    """The lines of one server's requests."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due = False  # a timer runs

    def add(
        self,
        request_id: str,
        method: str,
        route: str,
        status: int,
        duration_s: float,
        key: str,
        *,
        level: int = logging.INFO,
    ) -> None:
        """Logs a request that has been answered."""
        if not ACCESS.isEnabledFor(level):
            return
        duration_ms = round(duration_s * 1000, 1)
        handler = _only_handler() if level == logging.INFO else None
        if handler is None:
            values = (request_id, method, route, status, duration_ms, key)
            ACCESS.log(level, REQUEST, extra=dict(zip(FIELDS, values, strict=True)))
            return
        handler.add_request((time.time(), request_id, method, route, status, duration_ms, key))
        if not self._due:
            self._due = True
            self._loop.call_later(WAIT_S, self._write)

    def flush(self) -> None:
        """Writes what waits: no timer runs once the loop has ended."""
        for handler in OURS.handlers:
            handler.flush()

    def _write(self) -> None:
        self._due = False
        self.flush()


def _only_handler() -> LineHandler | None:
    """The handler of `configure`, where records of requests reach it and no other, and nothing looks at them before.
    None where the host program has set up logging in another way: that takes records."""
    if ACCESS.handlers or ACCESS.filters or not ACCESS.propagate or OURS.propagate or len(OURS.handlers) != 1:
        return None
    handler = OURS.handlers[0]
    if not isinstance(handler, LineHandler) or handler.filters or handler.level > logging.INFO:
        return None
    return handler
