"""Pages of the public web, fetched: what is connected to, and what is read of the answer.

The address comes from the model, and the model reads what strangers write: so nothing but public addresses is ever
connected to (J116). Names are resolved here, every address is checked, and the connection goes to exactly the
addresses that were checked; each redirect is a new address, checked anew.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tailrace import __version__
from tailrace.errors import TailraceError
from tailrace.tools.text import byte_order_mark
from tailrace.tools.web.addresses import is_public, literal
from tailrace.tools.web.html_text import text_of

MAX_REDIRECTS: Final = 5
CONNECT_TIMEOUT_S: Final = 10.0
FETCH_ERRORS: Final = (aiohttp.ClientError, OSError, ValueError)
# Services that speak no HTTP and may take a request for orders: those above 1023 of the web platform's list of bad
# ports (WHATWG Fetch, "port blocking") and a few stores. Below 1024 only the web's own two are left.
_BAD_PORTS: Final = {
    *(1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697),
    *(10080, 3306, 5432, 6379, 11211, 27017),
}
_REDIRECTS: Final = {301, 302, 303, 307, 308}
_HTML: Final = {"text/html", "application/xhtml+xml"}
_TEXT: Final = re.compile(r"text/[\w.+-]+|application/(?:[\w.-]+\+)?(?:json|xml|yaml)|application/(?:javascript|toml)")
_META_CHARSET: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
# Not what they claim on the web, or slow, or no encodings of text at all.
_BAD_CODECS: Final = {"utf-7", "punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined"}

_HEADERS: Final = {
    "User-Agent": f"tailrace/{__version__}",
    "Accept": "text/html, text/plain, application/json;q=0.9, */*;q=0.5",
    "Accept-Encoding": "identity",  # what is read is what was sent: nothing grows while it is unpacked
}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class FetchRefused(TailraceError):
    """The address must not, or cannot, be fetched; says why in words for the model."""


class PageFetch:
    """Fetches pages. `allow_hosts`: names or addresses that may be reached although they are not public."""

    def __init__(self, allow_hosts: Collection[str], resolve: Resolve | None, max_bytes: int) -> None:
        self._allow = allow_hosts
        self._resolve = resolve or _system_resolve
        self._max_bytes = max_bytes

    async def fetch(self, address: str, progress: Callable[[str], None]) -> Page:
        """Raises `FetchRefused`, or one of `FETCH_ERRORS`."""
        url = parsed_url(address)
        for _ in range(MAX_REDIRECTS + 1):
            progress(f"fetching {url}")
            answer = await self._hop(url)
            if isinstance(answer, Page):
                return answer
            url = parsed_url(answer)
        raise FetchRefused(f"{address} redirects more than {MAX_REDIRECTS} times")

    async def _hop(self, url: URL) -> Page | str:
        """The page, or where it says it has gone."""
        async with (
            aiohttp.ClientSession(
                connector=await self.connector(url),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                headers=_HEADERS,
            ) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status in _REDIRECTS and (target := response.headers.get("Location")):
                return str(url.join(URL(target)))
            return await _read(response, self._max_bytes)

    async def connector(self, url: URL) -> aiohttp.TCPConnector:
        """Connects to the addresses of this host that were checked, and to no other. Raises `FetchRefused`."""
        addresses = await self._addresses(url)
        return aiohttp.TCPConnector(
            resolver=_Pinned(addresses), socket_factory=_gate(addresses), use_dns_cache=False, force_close=True
        )

    async def _addresses(self, url: URL) -> tuple[str, ...]:
        """What may be connected to. One address that is not public condemns the name: it is meant to be chosen."""
        host = url.raw_host or ""
        allowed = host.lower() in self._allow
        if not allowed and not _is_web_port(url.port):
            raise FetchRefused(f"{url}: port {url.port} is not one of the web")
        if literal(host) is not None:
            addresses: Sequence[str] = (host,)
        else:
            try:
                addresses = await self._resolve(host, url.port or 0)
            except OSError as exc:
                raise FetchRefused(f"{host} cannot be resolved: {exc.strerror or exc}") from exc
        for address in addresses:
            known = literal(address)
            if not allowed and (known is None or not is_public(known)):
                raise FetchRefused(f"{host} is not on the public Internet ({address}); it is not fetched")
        if not addresses:
            raise FetchRefused(f"{host} has no address")
        return tuple(addresses)


class _Pinned(AbstractResolver):
    """Resolves to the addresses that were checked, without another lookup: the name may have changed meanwhile."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=_family(address),
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
            if family in (socket.AF_UNSPEC, _family(address))
        ]

    async def close(self) -> None:
        pass


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _gate(addresses: Sequence[str]) -> Callable[[aiohttp.AddrInfoType], socket.socket]:
    """Makes the socket for a connection, to a checked address and to no other, whichever way it came here."""
    checked = {literal(address) for address in addresses}

    def make(info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, target = info
        if literal(str(target[0])) not in checked:
            raise PermissionError(errno.EACCES, f"{target[0]} was not checked")
        return socket.socket(family, kind, protocol)

    return make


async def _system_resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def parsed_url(address: str) -> URL:
    """Raises `FetchRefused` for what is no address of a page."""
    try:
        url = URL(address.strip())
        host, port = url.raw_host, url.port
    except ValueError as exc:
        raise FetchRefused(f"not an address: {exc}") from exc
    if url.scheme not in ("http", "https"):
        raise FetchRefused(f"{address}: only http:// and https:// addresses are fetched")
    if not host or port is None:
        raise FetchRefused(f"{address} names no host")
    if url.user is not None or url.password is not None:
        raise FetchRefused("an address with a user name or a password in it is not fetched")
    return url


def _is_web_port(port: int | None) -> bool:
    return port in (80, 443) or (port is not None and port >= 1024 and port not in _BAD_PORTS)


# ── the answer ───────────────────────────────────────────────────────────────────────────────────────────────


class Page(NamedTuple):
    url: str
    status: int
    reason: str
    title: str
    text: str
    cut: bool  # it was longer than we read


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> Page:
    kind = response.content_type.lower() if "Content-Type" in response.headers else "text/plain"
    if kind not in _HTML and not _TEXT.fullmatch(kind):
        raise FetchRefused(f"{response.url} is {kind}, which cannot be shown as text")
    data = bytearray()
    async for piece in response.content.iter_chunked(65_536):
        data += piece
        if len(data) > max_bytes:
            break
    text = decoded(bytes(data[:max_bytes]), response.charset, html=kind in _HTML)
    title = ""
    if kind in _HTML:
        title, text = await asyncio.to_thread(text_of, text, str(response.url))
    return Page(str(response.url), response.status, response.reason or "", title, text, len(data) > max_bytes)


def decoded(data: bytes, charset: str | None, *, html: bool) -> str:
    """Text by its byte order mark, by what the header says, by what the page says of itself, as UTF-8, or, where it
    is none, as what the web takes it for then (WHATWG Encoding, windows-1252)."""
    encoding, mark = byte_order_mark(data)
    if mark:
        return data[mark:].decode(encoding, "replace")
    said = charset
    if said is None and html and (meta := _META_CHARSET.search(data[:2048])):
        said = meta[1].decode("ascii")
    if said:
        try:
            return data.decode(_codec(said), "replace")
        except (LookupError, UnicodeError):  # unknown, or no encoding of text
            pass
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data)  # it may be cut within a character
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _codec(name: str) -> str:
    codec = codecs.lookup(name).name
    if codec in _BAD_CODECS:
        raise LookupError(name)
    return "cp1252" if codec in ("iso8859-1", "ascii") else codec
