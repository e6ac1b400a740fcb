"""The listening socket: its address, the deadline for a connection's first request, the orderly shutdown.

Owns the socket and the connections' limits. Requests are the pipeline's.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from aiohttp import web

from tailrace.app.http_connection import connection_factory
from tailrace.app.logging_setup import PEERS
from tailrace.errors import ConfigError
from tailrace.private_apis import request_count
from tailrace.server.http.pipeline import RequestPipeline

BACKLOG: Final = 1024


class ConnectionLimits(msgspec.Struct, frozen=True):
    """`headers_s`: the deadline for the first request's whole head (J126). `idle_s`: between two requests.
    `unacknowledged_s`: TCP_USER_TIMEOUT; a peer that acknowledges no byte for so long is cut off."""

    headers_s: float = 15.0
    idle_s: float = 75.0
    unacknowledged_s: float = 60.0
    max_header_bytes: int = 16_384  # of one line, and of one field
    max_headers: int = 128


@asynccontextmanager
async def listening(
    pipeline: RequestPipeline,
    application: web.Application,
    host: str,
    port: int,
    *,
    drain_s: float = 20.0,
    limits: ConnectionLimits | None = None,
) -> AsyncGenerator[str, None]:
    """Serves within the block; yields the address. On leaving, new requests get 503, requests in flight have
    `drain_s` to end, then they are cancelled and the socket is closed. Raises `ConfigError` where the address cannot
    be bound."""
    limits = limits if limits is not None else ConnectionLimits()
    runner = web.AppRunner(
        application,
        handler_cancellation=True,  # a disconnect cancels the handler, also while nothing is written (F68)
        keepalive_timeout=limits.idle_s,
        max_line_size=limits.max_header_bytes,
        max_field_size=limits.max_header_bytes,
        max_headers=limits.max_headers,
        access_log=None,
        logger=PEERS,
        shutdown_timeout=1.0,
    )
    await runner.setup()
    try:
        server = await _listen(runner, host, port, limits)
        try:
            yield _address(host, server)
        finally:
            # The socket still listens: a new connection is told 503 and when to retry, not refused.
            pipeline.draining = True
            await asyncio.gather(
                pipeline.drain(drain_s), pipeline.app.agents.drain(drain_s), pipeline.app.calls.drain(drain_s)
            )
            await pipeline.stop()
            server.close()
    finally:
        await runner.cleanup()


def _abort_if_silent(connection: web.RequestHandler) -> None:
    if request_count(connection) == 0 and connection.transport is not None:
        connection.transport.abort()


async def _listen(runner: web.AppRunner, host: str, port: int, limits: ConnectionLimits) -> asyncio.Server:
    loop, new_connection = asyncio.get_running_loop(), connection_factory(runner)

    def connect() -> web.RequestHandler:
        connection = new_connection()
        loop.call_later(limits.headers_s, _abort_if_silent, connection)
        return connection

    try:
        server = await loop.create_server(connect, host or None, port, backlog=BACKLOG)
    except OSError as exc:
        # asyncio's own message repeats the address
        reason = (
            "another program uses it; choose another with --port"
            if exc.errno == errno.EADDRINUSE
            else exc.strerror or exc
        )
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}", key="server.port") from exc
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # accepted sockets inherit it
        for listener in server.sockets:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(limits.unacknowledged_s * 1000))
    return server


def _address(host: str, server: asyncio.Server) -> str:
    port = server.sockets[0].getsockname()[1]
    shown = host or "0.0.0.0"  # noqa: S104 - only shown
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
