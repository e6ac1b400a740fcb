"""The process's own HTTP/1.1 client: a pool of connections, and the requests over them. Unbounded: a limit on
connections would let stalled streams keep others from starting."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from tailrace.config.sections import TransportSettings
from tailrace.errors import Unavailable
from tailrace.providers.transport import extension
from tailrace.providers.transport.dialling import Dialler
from tailrace.providers.transport.http1_connection import Http1Connection, Http1Reply
from tailrace.providers.transport.port import KEEPALIVE_S, HttpReply, Transport
from tailrace.providers.transport.proxies import ProxyRules
from tailrace.providers.transport.request_head import Destination, encoded_head, parse_address

_LARGE_BODY_BYTES = 256 * 1024  # past this a body is written in pieces
_MAX_PREPARED = 512  # heads of requests that are remembered
_DEFAULT = TransportSettings()


@asynccontextmanager
async def open_transport(
    settings: TransportSettings = _DEFAULT,
    *,
    environ: Mapping[str, str] = os.environ,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Transport, None]:
    """The process's HTTP client. `environ` names the proxies; `tls` replaces the system's certificates."""
    transport = Http1Transport(ProxyRules(settings.proxy, environ), tls)
    try:
        yield transport
    finally:
        await asyncio.shield(transport.close())


class _Prepared(NamedTuple):
    """The head of the requests to one address, encoded once. `headers` is what it was made of."""

    destination: Destination
    headers: dict[str, str]
    head: bytes


class Http1Transport:
    """Satisfies `Transport`."""

    def __init__(self, proxies: ProxyRules, tls: ssl.SSLContext | None = None) -> None:
        self._proxies = proxies
        self._dialler = Dialler(tls)
        self._prepared: dict[tuple[str, str, str], _Prepared] = {}
        self._open: set[Http1Connection] = set()
        self._idle: dict[Destination, dict[Http1Connection, None]] = {}  # the last one released is used first
        self._sweep: asyncio.TimerHandle | None = None
        self._all_lost: asyncio.Future[None] | None = None
        self.poller = extension.EXTENSION.Poller() if extension.EXTENSION is not None else None

    def post(
        self, url: str, *, headers: Mapping[str, str], body: bytes, connect_timeout_s: float, socket_path: str = ""
    ) -> Coroutine[Any, Any, HttpReply]:
        prepared = self._prepare("POST", url, headers, socket_path)
        head = b"%bcontent-length: %d\r\n\r\n" % (prepared.head, len(body))
        return self._exchange(prepared.destination, head, body, connect_timeout_s)

    def get(
        self, url: str, *, headers: Mapping[str, str], connect_timeout_s: float, socket_path: str = ""
    ) -> Coroutine[Any, Any, HttpReply]:
        prepared = self._prepare("GET", url, headers, socket_path)
        return self._exchange(prepared.destination, prepared.head + b"\r\n", b"", connect_timeout_s)

    async def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._idle.clear()
        self._prepared.clear()
        if self._open:
            self._all_lost = asyncio.get_running_loop().create_future()
            for connection in list(self._open):
                connection.abort()
            await self._all_lost

    # ── one request ──────────────────────────────────────────────────────────────────────────────────────────

    def _prepare(self, method: str, url: str, headers: Mapping[str, str], socket_path: str) -> _Prepared:
        key = method, url, socket_path
        prepared = self._prepared.get(key)
        if prepared is None or prepared.headers != headers:
            address = parse_address(url)
            proxy = None if socket_path else self._proxies.proxy_for(address.scheme, address.host, address.port)
            asked = proxy if address.scheme == "http" else None  # a tunnel is not asked: it is spoken through
            if len(self._prepared) >= _MAX_PREPARED:
                self._prepared.clear()
            prepared = self._prepared[key] = _Prepared(
                Destination(address.scheme, address.host, address.port, socket_path, proxy),
                dict(headers),
                encoded_head(method, address, headers, asked),
            )
        return prepared

    async def _exchange(self, to: Destination, head: bytes, body: bytes, connect_timeout_s: float) -> HttpReply:
        """The reply once its head is there. Raises as `Transport.post` does."""
        connection = self._pooled(to)
        may_repeat = connection is not None
        while True:
            if connection is None:
                connection = await self._dialler.connect(to, partial(Http1Connection, self, to), connect_timeout_s)
                self._open.add(connection)
            reply: Http1Reply | None = None
            try:
                if len(body) > _LARGE_BODY_BYTES:
                    reply = await connection.send_large(head, body)
                else:
                    reply = connection.send(head + body)
                while not reply.status:
                    await reply.woken()
            except Unavailable:
                if not may_repeat or reply is None or not reply.untouched:
                    raise
            except BaseException:
                connection.abort()
                raise
            else:
                return reply
            # It died while it was idle: nothing of the request was handled.
            may_repeat, connection = False, None

    def _pooled(self, to: Destination) -> Http1Connection | None:
        idle = self._idle.get(to)
        while idle:
            connection, _ = idle.popitem()
            if not idle:
                del self._idle[to]
            if connection.is_usable:
                return connection
        return None

    # ── for the connections ──────────────────────────────────────────────────────────────────────────────────

    def released(self, connection: Http1Connection) -> None:
        loop = connection.loop
        connection.idle_since = loop.time()
        idle = self._idle.get(connection.destination)
        if idle is None:
            idle = self._idle[connection.destination] = {}
        idle[connection] = None
        if self._sweep is None:
            self._sweep = loop.call_later(KEEPALIVE_S, self._close_expired)

    def lost(self, connection: Http1Connection) -> None:
        self._open.discard(connection)
        idle = self._idle.get(connection.destination)
        if idle is not None and connection in idle:
            del idle[connection]
            if not idle:
                del self._idle[connection.destination]
        if self._all_lost is not None and not self._open and not self._all_lost.done():
            self._all_lost.set_result(None)

    def _close_expired(self) -> None:
        """Closes connections that were idle for `KEEPALIVE_S`, and sets the timer for the next one."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        oldest: float | None = None
        for idle in list(self._idle.values()):
            for connection in list(idle):  # in the order of their release
                if connection.idle_since + KEEPALIVE_S > loop.time():
                    oldest = connection.idle_since if oldest is None else min(oldest, connection.idle_since)
                    break
                del idle[connection]
                connection.abort()
        self._idle = {destination: idle for destination, idle in self._idle.items() if idle}
        if oldest is not None:
            self._sweep = loop.call_at(oldest + KEEPALIVE_S, self._close_expired)
