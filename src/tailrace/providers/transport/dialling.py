"""Connections to a destination: sockets, TLS, tunnels through a proxy. Translates the system's errors."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar, cast

import aiohappyeyeballs

from tailrace.errors import PeerError, ProviderError, Rejected, TimedOut, Unavailable
from tailrace.providers.transport.http1_connection import MAX_HEAD_BYTES, Http1Connection
from tailrace.providers.transport.port import CANNOT_CONNECT
from tailrace.providers.transport.proxies import Proxy
from tailrace.providers.transport.request_head import Address, Destination

HAPPY_EYEBALLS_S = 0.25  # before the next address of a name is tried beside the one before (RFC 8305)
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |\r?\n)")
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")

NewConnection: TypeAlias = Callable[[], Http1Connection]
_AddressInfo: TypeAlias = tuple[
    int, int, int, str, tuple[str, int] | tuple[str, int, int, int]
]  # as `getaddrinfo` has it
_AnyProtocol = TypeVar("_AnyProtocol", bound=asyncio.Protocol)


class Dialler:
    """`tls`: how servers are verified; without one, by the certificates that the system trusts."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def connect(self, to: Destination, new: NewConnection, timeout_s: float) -> Http1Connection:
        """Raises `TimedOut` ("connect"), `Unavailable`, `PeerError` or `Rejected`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connect(to, new)
        except TimeoutError as exc:
            raise TimedOut(f"no connection within {timeout_s:g} s", deadline="connect") from exc
        except UnicodeError as exc:
            raise Rejected(f"{to.host!r} is no name of a host", code="invalid_url") from exc
        except (OSError, ssl.CertificateError) as exc:
            raise _cannot_connect(exc, to.proxy.host if to.proxy is not None else to.host) from exc

    async def _connect(self, to: Destination, new: NewConnection) -> Http1Connection:
        loop = asyncio.get_running_loop()
        tls = await self._context() if to.scheme == "https" else None
        name = to.host if tls is not None else None
        if to.socket_path:
            _, connection = await loop.create_unix_connection(new, to.socket_path, ssl=tls, server_hostname=name)
            return connection
        if to.proxy is None:
            return await self._open(to.host, to.port, new, tls)
        if tls is None:  # the request itself is for the proxy
            return await self._open(to.proxy.host, to.proxy.port, new, await self._proxy_tls(to.proxy))
        return await self._tunnel(to, to.proxy, new, tls)

    async def _open(
        self, host: str, port: int, new: Callable[[], _AnyProtocol], tls: ssl.SSLContext | None
    ) -> _AnyProtocol:
        loop = asyncio.get_running_loop()
        name = host if tls is not None else None
        if _is_address(host):
            _, protocol = await loop.create_connection(new, host, port, ssl=tls, server_hostname=name)
            return protocol
        resolved = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        found = cast("list[_AddressInfo]", resolved)
        sock = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=HAPPY_EYEBALLS_S, interleave=1)
        try:
            _, protocol = await loop.create_connection(new, sock=sock, ssl=tls, server_hostname=name)
        except BaseException:
            sock.close()
            raise
        return protocol

    async def _tunnel(self, to: Destination, proxy: Proxy, new: NewConnection, tls: ssl.SSLContext) -> Http1Connection:
        loop = asyncio.get_running_loop()
        tunnel = await self._open(proxy.host, proxy.port, _Tunnel, await self._proxy_tls(proxy))
        try:
            await tunnel.establish(to, proxy)
            connection = new()
            transport = await loop.start_tls(tunnel.transport, connection, tls, server_hostname=to.host)
        except BaseException:
            tunnel.transport.abort()
            raise
        if transport is None:
            raise ConnectionResetError("the tunnel was closed")
        connection.connection_made(transport)
        return connection

    async def _proxy_tls(self, proxy: Proxy) -> ssl.SSLContext | None:
        return await self._context() if proxy.scheme == "https" else None

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(_default_context)  # reads every certificate of the system
        return self._tls


class _Tunnel(asyncio.Protocol):
    """The first exchange with a proxy: `CONNECT`, and what it answers."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._seen = b""
        self._established: asyncio.Future[None] | None = None
        self._host = ""

    async def establish(self, to: Destination, proxy: Proxy) -> None:
        self._host = proxy.host
        authority = Address(to.scheme, to.host, to.port, "", "").authority_with_port
        head = f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n"
        if proxy.credentials:
            head += f"proxy-authorization: {proxy.credentials}\r\n"
        self._established = asyncio.get_running_loop().create_future()
        self.transport.write(f"{head}\r\n".encode("ascii"))
        await self._established

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._seen += data
        while (end := _END_OF_HEAD.search(self._seen)) is not None:
            status = _STATUS_LINE.match(self._seen)
            if status is None:
                self._settle(PeerError(f"the proxy {self._host} does not speak HTTP"))
            elif (code := int(status[1])) < 200:
                self._seen = self._seen[end.end() :]
                continue
            elif code < 300:
                self._settle(None)
            else:
                self._settle(_refused_by_proxy(self._host, code))
            return
        if len(self._seen) > MAX_HEAD_BYTES:
            self._settle(PeerError(f"the proxy {self._host} does not speak HTTP"))

    def connection_lost(self, _exc: Exception | None) -> None:
        self._settle(Unavailable(f"the proxy {self._host} closed the connection", code=CANNOT_CONNECT))

    def _settle(self, error: ProviderError | None) -> None:
        if self._established is None or self._established.done():
            return
        if error is None:
            self._established.set_result(None)
        else:
            self._established.set_exception(error)


def _refused_by_proxy(host: str, status: int) -> ProviderError:
    if status == 407:
        return Rejected(f"the proxy {host} asks for other credentials (407)", code="proxy_credentials")
    return Unavailable(f"the proxy {host} cannot connect ({status})", code=CANNOT_CONNECT)


def _cannot_connect(exc: OSError | ssl.CertificateError, host: str) -> ProviderError:
    if isinstance(exc, ssl.CertificateError):
        return Rejected("the server's certificate is not trusted", code="certificate")
    return Unavailable(f"cannot connect to {host}: {exc.strerror or exc}", code=CANNOT_CONNECT)


def _default_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
