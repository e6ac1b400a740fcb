"""Which proxy a request goes through: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in either case, and
`transport.proxy`. This machine itself is reached without a proxy of the environment. What is shown of a proxy is its
host: its address may hold a password."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from tailrace.errors import ConfigError

FROM_ENVIRONMENT, NO_PROXY = "environment", "none"  # values of `transport.proxy` beside an address


class Proxy(NamedTuple):
    scheme: str
    host: str
    port: int
    credentials: str = ""  # the value of `proxy-authorization`

    def __repr__(self) -> str:
        return f"Proxy({self.scheme}://{self.host}:{self.port})"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class ProxyRules:
    """`setting` is the value of `transport.proxy`. A SOCKS proxy in ALL_PROXY is ignored. Raises `ConfigError`."""

    def __init__(self, setting: str = NO_PROXY, environ: Mapping[str, str] | None = None) -> None:
        environ = environ if environ is not None else {}
        self._chosen: Proxy | None = None
        self._by_scheme: dict[str, Proxy] = {}
        if setting == FROM_ENVIRONMENT:
            for scheme in ("http", "https"):
                for name in (f"{scheme}_proxy", "all_proxy"):
                    address = _variable(environ, name)
                    if address and not (name == "all_proxy" and address.lower().startswith("socks")):
                        self._by_scheme[scheme] = _proxy(address, name.upper())
                        break
        elif setting != NO_PROXY:
            self._chosen = _proxy(setting, "transport.proxy")
        self._exempt = [entry.strip().lower() for entry in _variable(environ, "no_proxy").split(",") if entry.strip()]

    def proxy_for(self, scheme: str, host: str, port: int) -> Proxy | None:
        if self._chosen is None and (not self._by_scheme or _is_loopback(host)):
            return None
        if any(_matches(entry, host.lower(), port) for entry in self._exempt):
            return None
        return self._chosen or self._by_scheme.get(scheme)


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _proxy(address: str, where: str) -> Proxy:
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        raise ConfigError("expected the http:// or https:// address of a proxy", key=where)
    return Proxy(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), credentials_in(parts))


def credentials_in(parts: SplitResult) -> str:
    """The value of `authorization` that an address itself holds."""
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _matches(entry: str, host: str, port: int) -> bool:
    """`*`, a host with its subdomains, the same with a port, an address, or a network (`10.0.0.0/8`)."""
    if entry == "*":
        return True
    if "/" in entry:
        address = _address(host)
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, number = entry.rpartition(":")
    if colon and number.isdigit() and (":" not in name or name.endswith("]")):
        if int(number) != port:
            return False
        entry = name
    entry = entry.strip("[]").lstrip(".").removeprefix("*.")
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
