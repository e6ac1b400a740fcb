"""The process's HTTP client, opened and closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tailrace.providers.transport.aiohttp_transport import AiohttpTransport


@asynccontextmanager
async def open_transport() -> AsyncGenerator[AiohttpTransport, None]:
    """The process's HTTP client, closed with its pool at the end of the block, cancelled or not."""
    transport = AiohttpTransport()
    try:
        yield transport
    finally:
        await asyncio.shield(transport.close())
