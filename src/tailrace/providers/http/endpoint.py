"""A provider's addresses and credentials, and how its key is kept out of everything that is shown. Opens nothing."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec

from tailrace import __version__
from tailrace.config.quirks import Quirk
from tailrace.errors import ConfigError
from tailrace.messages import Dialect
from tailrace.values.redact import without_secrets
from tailrace.wire.dialects import DIALECTS

_VERSION = re.compile(r"v\d+[a-z0-9]*")
# Written out: what the standard library calls private differs between versions of Python.
_LOCAL_NETWORKS = tuple(
    ipaddress.ip_network(block)
    for block in (
        *("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "0.0.0.0/32"),
        *("::1/128", "::/128", "fc00::/7", "fe80::/10"),
    )
)
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
NOTHING: Mapping[str, Any] = MappingProxyType({})
# The names of schemes, and what servers without keys are given for one.
_NO_SECRETS = frozenset(
    {"bearer", "apikey", "api-key", "ollama", "lm-studio", "not-needed", "no-key", "sk-no-key-required"}
)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One model endpoint. `key` and what `headers` hold are secret: the repr shows neither."""

    name: str
    dialect: Dialect
    base_url: str
    key: str = ""
    headers: Mapping[str, str] = NOTHING
    extra_body: Mapping[str, Any] = NOTHING  # merged into every request
    socket_path: str = ""  # a unix socket to connect to instead of the host in `base_url`
    quirks: tuple[str, ...] = ()  # names of quirks that hold here whatever the host
    own_quirks: tuple[Quirk, ...] = ()  # of the config, beside the registry's
    connect_timeout_s: float = 10.0
    reattach: bool = False  # the provider is asked to keep its answers, so that a broken stream can be reattached to

    def __repr__(self) -> str:
        return f"Endpoint(name={self.name!r}, dialect={self.dialect!r}, host={self.host!r})"

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_local(self) -> bool:
        """On this machine or in the same private network: such an endpoint is given more time."""
        return bool(self.socket_path) or is_local_host(self.host)

    def url(self) -> str:
        return url_of(self.base_url, self.dialect)

    def models_url(self) -> str:
        """Where the endpoint lists its models."""
        return self.route_url("/models")

    def route_url(self, route: str) -> str:
        """Where another route of the same API is: `/embeddings`."""
        parts = urlsplit(self.url())
        return urlunsplit(parts._replace(path=parts.path.removesuffix(DIALECTS[self.dialect].path) + route))

    def count_url(self) -> str | None:
        """Where the dialect counts the tokens of a request; None where it has no such route."""
        if not (route := DIALECTS[self.dialect].count_route):
            return None
        parts = urlsplit(self.url())
        return urlunsplit(parts._replace(path=parts.path + route))

    def answer_url(self, answer_id: str, route: str = "", **query: str) -> str:
        """Where an answer is kept; `route` is what is done with it."""
        parts = urlsplit(self.url())
        path = f"{parts.path}/{quote(answer_id, safe='')}{route}"
        return urlunsplit(parts._replace(path=path, query="&".join(filter(None, (parts.query, urlencode(query))))))

    def request_headers(self) -> dict[str, str]:
        """Ours first, then the user's, which win in whatever case they are written."""
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "user-agent": f"tailrace/{__version__}",
        }
        headers |= DIALECTS[self.dialect].credentials(self.key.strip())
        headers.update((name.lower(), value) for name, value in self.headers.items())
        for name, value in headers.items():
            if not value.isascii() or not value.isprintable():
                raise ConfigError("holds a character that no HTTP header can", key=f"providers.{self.name}: {name}")
        return headers

    def headers_with(self, asked: Mapping[str, str]) -> dict[str, str]:
        """The headers of a request with some of its own (K128): lists of features are joined, else the user's win."""
        headers, chosen = self.request_headers(), {name.lower() for name in self.headers}
        for name, value in asked.items():
            if name.endswith("-beta") and name in headers:
                features = (item.strip() for item in f"{headers[name]},{value}".split(","))
                headers[name] = ",".join(dict.fromkeys(filter(None, features)))
            elif name not in chosen:
                headers[name] = value
        return headers

    def redacted(self, text: str) -> str:
        """The same text without this endpoint's secrets: peers have echoed keys in their errors (J114)."""
        return without_secrets(text, self._secret_words())

    def secrets(self) -> list[str]:
        """What must not be in an answer: the key and the secrets in headers, without words that any text may hold."""
        return [word for word in self._secret_words() if word.lower() not in _NO_SECRETS]

    def _secret_words(self) -> list[str]:
        named = [value for name, value in self.headers.items() if _SECRET_HEADER.search(name)]
        return [word for value in (self.key, *named) for word in (value.strip(), *value.split())]


def url_of(base_url: str, dialect: Dialect) -> str:
    """The address of the dialect's route below the base URL of its official SDK, with `/v1` or without. An address that
    ends in the route is used as it is, query included."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"expected an http:// or https:// address, found {base_url[:40]!r}", key="base_url")
    path, wire = parts.path.rstrip("/"), DIALECTS[dialect]
    if not path.endswith(wire.path):
        segments = path.split("/")
        # OpenAI's SDK is given the version, wherever it stands (`/v1beta/openai`); Anthropic's puts it at the end.
        versioned = any(map(_VERSION.fullmatch, segments[-1:] if wire.version_is_last else segments))
        path += ("" if versioned else "/v1") + wire.path
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def is_local_host(host: str) -> bool:
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return any((mapped or address) in network for network in _LOCAL_NETWORKS)
