"""Where a request goes, and the bytes of its head: no header can end its line early. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from tailrace.errors import Rejected
from tailrace.providers.transport.proxies import Proxy, credentials_in

_PORTS: Final = {"http": 80, "https": 443}
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_NOT_IN_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OURS: Final = frozenset({"content-length", "transfer-encoding", "connection", "expect"})  # the client's own affair
_SAFE_IN_PATH: Final = "/%:@!$&'()*+,;=~-._"


class Destination(NamedTuple):
    """What connections have in common that can stand in for each other."""

    scheme: str
    host: str
    port: int
    socket_path: str = ""
    proxy: Proxy | None = None


class Address(NamedTuple):
    """A URL in the parts that a request needs. `host` is ASCII."""

    scheme: str
    host: str
    port: int
    target: str  # path and query
    credentials: str  # the value of `authorization` that the URL itself holds

    @property
    def authority(self) -> str:
        """As `host` has it: without the scheme's own port."""
        return self._bracketed if self.port == _PORTS[self.scheme] else self.authority_with_port

    @property
    def authority_with_port(self) -> str:
        """As `CONNECT` has it."""
        return f"{self._bracketed}:{self.port}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_address(url: str) -> Address:
    """Raises `Rejected`."""
    try:
        parts = urlsplit(url)
        scheme, port = parts.scheme, parts.port
        host = (parts.hostname or "").encode("ascii" if (parts.hostname or "").isascii() else "idna").decode("ascii")
        default_port = _PORTS[scheme]
    except (ValueError, KeyError):
        raise _invalid_url() from None
    if not host or re.search(r"[\s\x00-\x20]", host):
        raise _invalid_url()
    target = quote(parts.path or "/", safe=_SAFE_IN_PATH)
    if parts.query:
        target += "?" + quote(parts.query, safe=_SAFE_IN_PATH + "?")
    return Address(scheme, host, default_port if port is None else port, target, credentials_in(parts))


def encoded_head(method: str, address: Address, headers: Mapping[str, str], proxy: Proxy | None) -> bytes:
    """The head but for the length of the body and the empty line, for a proxy with the whole URL (RFC 9112, 3.2.2)."""
    target = address.target if proxy is None else f"{address.scheme}://{address.authority}{address.target}"
    fields = {"host": address.authority}
    if address.credentials:
        fields["authorization"] = address.credentials
    fields.update((name.lower(), value) for name, value in headers.items())
    if proxy is not None and proxy.credentials:
        fields["proxy-authorization"] = proxy.credentials
    lines = [f"{method} {target} HTTP/1.1\r\n"]
    for name, value in fields.items():
        if name in _OURS:
            continue
        if not _TOKEN.fullmatch(name) or _NOT_IN_VALUE.search(value):
            raise Rejected("a header holds a character that no HTTP header can", code="invalid_header")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("utf-8")


def _invalid_url() -> Rejected:
    return Rejected("the address is not a valid URL", code="invalid_url")
