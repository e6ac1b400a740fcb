"""The HTTP client that stands on aiohttp.

Owns sockets, pooling and the translation of the client library's exceptions. Knows no dialect, no provider and no
deadline but the one for connecting: the caller cancels the wait when it takes too long, and the connection is dropped
at once.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tailrace.errors import PeerError, ProviderError, Rejected, StreamCut, TimedOut, Unavailable
from tailrace.providers.transport.port import CANNOT_CONNECT, KEEPALIVE_S, HttpReply
from tailrace.providers.transport.proxies import Proxy, ProxyRules
from tailrace.providers.transport.request_head import parse_address
from tailrace.system.private_apis import buffered_bytes

_LARGE_BODY_BYTES = 1 << 20  # past this aiohttp wants a file, so that one write does not hold the loop


class _AiohttpReply(HttpReply):
    __slots__ = ("_content", "_response")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._content = response.content

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self) -> bytes:
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, ConnectionError) as exc:
            if tail := buffered_bytes(self._content):  # a cut must not eat the last tokens of a busy reader
                return tail
            raise _broken_body(exc) from exc

    @property
    def at_end(self) -> bool:
        return self._content.at_eof()

    def close(self) -> None:
        connection = self._response.connection
        if connection is not None and connection.transport is not None and not self._content.is_eof():
            connection.transport.abort()  # `close` alone would let a TLS connection linger over its goodbye
        self._response.close()


class _Trace:
    """Whether a request went out on a connection that had been used before."""

    __slots__ = ("reused",)

    def __init__(self) -> None:
        self.reused = False


async def _note_reuse(_session: aiohttp.ClientSession, context: Any, _params: object) -> None:
    trace: _Trace = context.trace_request_ctx
    trace.reused = True


class AiohttpTransport:
    """The pool. Unbounded: a limit on connections would let stalled streams keep others from starting."""

    def __init__(self, proxies: ProxyRules | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._proxies = proxies if proxies is not None else ProxyRules()
        verified = tls if tls is not None else True
        self._tcp = _session(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ssl=verified))
        self._unix: dict[str, aiohttp.ClientSession] = {}

    async def post(
        self, url: str, *, headers: Mapping[str, str], body: bytes, connect_timeout_s: float, socket_path: str = ""
    ) -> HttpReply:
        data = io.BytesIO(body) if len(body) > _LARGE_BODY_BYTES else body
        return await self._request("POST", url, headers, data, connect_timeout_s, socket_path)

    async def get(
        self, url: str, *, headers: Mapping[str, str], connect_timeout_s: float, socket_path: str = ""
    ) -> HttpReply:
        return await self._request("GET", url, headers, None, connect_timeout_s, socket_path)

    async def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        data: io.BytesIO | bytes | None,
        connect_timeout_s: float,
        socket_path: str,
    ) -> HttpReply:
        session = await self._session_for(socket_path)
        proxy = None if socket_path else self._proxy_for(url)
        if url.startswith("http:"):  # asked of the proxy itself; a tunnel is given them by `proxy_headers` alone
            headers = {**headers, **_proxy_credentials(proxy)}
        # The threshold keeps aiohttp from rounding the deadline up to a full second.
        timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout_s, ceil_threshold=float("inf"))
        for is_last in (False, True):
            trace = _Trace()
            try:
                return _AiohttpReply(
                    await session.request(
                        method,
                        url,
                        data=data,
                        headers=headers,
                        timeout=timeout,
                        allow_redirects=False,
                        trace_request_ctx=trace,
                        proxy=proxy.url if proxy is not None else None,
                        proxy_headers=_proxy_credentials(proxy),
                    )
                )
            except (aiohttp.ClientError, ConnectionError) as exc:
                # A pooled connection may have died while it was idle; then nothing of the request was handled.
                if trace.reused and not is_last and isinstance(exc, _DEAD):
                    continue
                raise _no_answer(exc, connect_timeout_s) from _quotable(exc)
        raise AssertionError("unreachable")

    def _proxy_for(self, url: str) -> Proxy | None:
        address = parse_address(url)
        return self._proxies.proxy_for(address.scheme, address.host, address.port)

    async def _session_for(self, socket_path: str) -> aiohttp.ClientSession:
        if not socket_path:
            return self._tcp
        session = self._unix.get(socket_path)
        if session is None:
            # A server that has ended took its socket with it, and comes back under another name.
            dead = [self._unix.pop(path) for path in list(self._unix) if not _exists(path)]
            connector = aiohttp.UnixConnector(socket_path, limit=0, keepalive_timeout=KEEPALIVE_S)
            session = self._unix[socket_path] = _session(connector)
            await asyncio.gather(*(other.close() for other in dead))
        return session

    async def close(self) -> None:
        sessions = [self._tcp, *self._unix.values()]
        self._unix.clear()
        await asyncio.gather(*(session.close() for session in sessions))


_DEAD = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError, BrokenPipeError)


def _exists(path: str) -> bool:
    return Path(path).exists()


def _session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    reuse = aiohttp.TraceConfig()
    reuse.on_connection_reuseconn.append(_note_reuse)
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[reuse], trust_env=False
    )


def _proxy_credentials(proxy: Proxy | None) -> dict[str, str]:
    return {"proxy-authorization": proxy.credentials} if proxy is not None and proxy.credentials else {}


def _no_answer(exc: Exception, connect_timeout_s: float) -> ProviderError:
    """The error for a request that brought no status line."""
    match exc:
        case aiohttp.ServerTimeoutError():
            return TimedOut(f"no connection within {connect_timeout_s:g} s", deadline="connect")
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ServerFingerprintMismatch():
            return Rejected("the server's certificate is not trusted", code="certificate")
        case aiohttp.ClientHttpProxyError(status=407):
            return Rejected("the proxy asks for other credentials (407)", code="proxy_credentials")
        case aiohttp.ClientHttpProxyError():
            return Unavailable(f"the proxy cannot connect ({exc.status})", code=CANNOT_CONNECT)
        case aiohttp.ClientConnectorError():
            reason = exc.os_error.strerror or exc.os_error
            return Unavailable(f"cannot connect to {exc.host}: {reason}", code=CANNOT_CONNECT)
        case aiohttp.InvalidURL():
            return Rejected("the address is not a valid URL", code="invalid_url")
        case aiohttp.ClientResponseError():
            return PeerError(f"the peer does not speak HTTP: {exc.message}")
        case aiohttp.ServerDisconnectedError():
            return Unavailable("the connection was closed before an answer came")
        case _:
            return Unavailable(f"the connection failed before an answer came: {exc}")


def _broken_body(exc: Exception) -> ProviderError:
    cause = exc.__cause__
    if isinstance(cause, aiohttp.http_exceptions.ContentEncodingError):
        return PeerError("the body is not in the encoding that its header names")
    return StreamCut("the connection broke in the middle of the answer", code="stream_cut")


def _quotable(exc: Exception) -> Exception | None:
    """The cause to chain: none where it carries the request's headers, and the key with them (J114)."""
    return None if isinstance(exc, aiohttp.ClientResponseError) else exc
