"""Webhooks: requests of platforms as values, and a listener for a gateway that runs without the server.

Under `tailrace serve` the same handler is one of the server's routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web

from tailrace.app.http_connection import SERVER_NAME, connection_factory
from tailrace.delivery.port import HookRequest
from tailrace.errors import ConfigError
from tailrace.gateway.gateway import Gateway

MAX_HOOK_BYTES = 1 << 20


async def answer(gateway: Gateway, request: web.Request, body: bytes) -> web.Response:
    """Answers one call. The body is raw: signatures are over its bytes (J120)."""
    answered = await gateway.hook(
        HookRequest(
            request.method,
            request.path,
            dict(request.query),
            {name.lower(): value for name, value in request.headers.items()},
            body,
        )
    )
    return web.Response(status=answered.status, body=answered.body, headers={"Content-Type": answered.content_type})


async def _name_server(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = SERVER_NAME  # the library's own text has its version in it


@asynccontextmanager
async def listening(gateway: Gateway, host: str, port: int) -> AsyncGenerator[str, None]:
    """Listens within the block and yields the address. Raises `ConfigError` for an address that cannot be bound."""

    async def handle(request: web.Request) -> web.Response:
        return await answer(gateway, request, await request.read())

    application = web.Application(client_max_size=MAX_HOOK_BYTES)
    application.on_response_prepare.append(_name_server)
    for path in gateway.hook_paths:
        application.router.add_route("*", path, handle)
    runner = web.AppRunner(application, access_log=None, auto_decompress=False)
    await runner.setup()
    try:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(connection_factory(runner), host, port)
        except OSError as exc:
            raise ConfigError(f"cannot listen on {host}:{port}: {exc.strerror or exc}", key="server.port") from exc
        try:
            yield f"http://{host}:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
    finally:
        await runner.cleanup()
