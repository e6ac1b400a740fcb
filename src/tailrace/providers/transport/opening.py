"""The process's HTTP client, opened and closed: our own, or the one on aiohttp where the config asks for it."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tailrace.config.sections import TransportSettings
from tailrace.providers.transport.http1_transport import Http1Transport
from tailrace.providers.transport.port import Transport
from tailrace.providers.transport.proxies import ProxyRules

if TYPE_CHECKING:
    from tailrace.providers.transport.aiohttp_transport import AiohttpTransport

_DEFAULT = TransportSettings()


@asynccontextmanager
async def open_transport(
    settings: TransportSettings = _DEFAULT,
    *,
    environ: Mapping[str, str] = os.environ,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Transport, None]:
    """The process's HTTP client, closed with its pool at the end of the block, cancelled or not. `environ` names the
    proxies; `tls` is how servers are verified where the system's certificates do not do. Raises `ConfigError`."""
    transport = _new_transport(settings, ProxyRules(settings.proxy, environ), tls)
    try:
        yield transport
    finally:
        await asyncio.shield(transport.close())


def _new_transport(
    settings: TransportSettings, proxies: ProxyRules, tls: ssl.SSLContext | None
) -> Http1Transport | AiohttpTransport:
    if settings.client == "aiohttp":
        from tailrace.providers.transport.aiohttp_transport import AiohttpTransport

        return AiohttpTransport(proxies, tls)
    return Http1Transport(proxies, tls)
