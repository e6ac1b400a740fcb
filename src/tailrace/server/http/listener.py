"""A server that listens: the connections' limits, the orderly shutdown.

Requests are the pipeline's, the listening socket is the address's.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from tailrace.app.http_connection import connection_factory
from tailrace.app.telemetry.logging_setup import PEERS
from tailrace.server.http.address import Address, SharedAddress
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.plain.connection import PlainConnections
from tailrace.server.http.plain.file_limit import FileLimit
from tailrace.system.open_files import open_file_limit


class ConnectionLimits(msgspec.Struct, frozen=True):
    """`headers_s`: the deadline for the first request's whole head (J126). `idle_s`: between two requests.
    `unacknowledged_s`: TCP_USER_TIMEOUT; a peer that acknowledges no byte for so long is cut off. `refused_s`: for so
    long the body of a request that was answered without it is read away: closed at once, the client might lose the
    answer."""

    headers_s: float = 15.0
    idle_s: float = 75.0
    unacknowledged_s: float = 60.0
    refused_s: float = 2.0
    body_buffer_bytes: int = 16_384  # of one body that waits for its reader; the rest stays with the system
    max_header_bytes: int = 16_384  # of one line, and of one field
    max_headers: int = 128
    open_files: int | None = None  # of this process; None is what the system allows it


@asynccontextmanager
async def listening(
    pipeline: RequestPipeline,
    application: web.Application,
    address: Address | SharedAddress,
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
        auto_decompress=False,  # `read_body` unpacks the bodies of admitted requests, in bounded steps (O176)
        read_bufsize=limits.body_buffer_bytes,
        lingering_time=limits.refused_s,
    )
    await runner.setup()
    try:
        connections = PlainConnections(
            pipeline.plain_targets,
            connection_factory(runner),
            headers_s=limits.headers_s,
            idle_s=limits.idle_s,
            max_body_bytes=pipeline.max_body_bytes,
            file_limit=FileLimit(
                open_file_limit() if limits.open_files is None else limits.open_files,
                is_stopping=lambda: pipeline.draining,
            ),
        )
        server = await address.listen(connections.connect)
        for listener in server.sockets:  # accepted sockets inherit it
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(limits.unacknowledged_s * 1000))
        try:
            yield address.url(server.sockets[0].getsockname()[1])
        finally:
            # The socket still listens: a new connection is told 503 and when to retry, not refused.
            pipeline.begin_drain()
            await asyncio.gather(
                pipeline.drain(drain_s), pipeline.app.agents.drain(drain_s), pipeline.app.calls.drain(drain_s)
            )
            await pipeline.stop()
            server.close()
            await connections.close()
    finally:
        try:
            await runner.cleanup()
        finally:
            pipeline.access_log.flush()
