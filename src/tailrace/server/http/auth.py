"""API keys and their scopes: one authoriser for every route and every transport (J119).

Owns the search for a key, whose time reveals nothing of one, and the Host and Origin checks that keep foreign web pages
away from a server on this machine (J118). Keys come from the environment and are kept as digests only.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from tailrace.app.costs import has_prices
from tailrace.app.usage.stored_keys import RESERVED, StoredKey, digest_of
from tailrace.config.load import Config
from tailrace.config.sections import Scope
from tailrace.errors import ConfigError
from tailrace.plugins.installed import is_platform
from tailrace.server.http.api_errors import ApiError
from tailrace.system.extras import install_command

# `open`: no key is asked for; `any`: every valid key will do.
Access = Literal["open", "any"] | Scope
ALL: frozenset[Scope] = frozenset(("models", "runs", "approvals", "admin"))
MAX_PASSED = 64  # hosts that are remembered
MAX_REPORTED = 64  # refused pages and hosts that the log names, each once
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_CHALLENGE = {"WWW-Authenticate": "Bearer", "x-should-retry": "false"}  # Claude Code asks again for minutes otherwise

log = logging.getLogger(__name__)


class Identity(msgspec.Struct, frozen=True):
    """A caller. `name` is the key's."""

    name: str
    scopes: frozenset[Scope] = ALL
    models: tuple[str, ...] = ()  # patterns of those that it may use; empty: all

    def may(self, access: Access) -> bool:
        """The routes of approvals are for keys with `runs` too, which see all questions and answer their own."""
        if access == "approvals" and "runs" in self.scopes:
            return True
        return access in ("open", "any") or access in self.scopes or "admin" in self.scopes

    def require(self, access: Access, what: str = "this") -> None:
        """Raises `ApiError` 403 for a key without the scope."""
        if not self.may(access):
            message = f"{what} needs a key with the scope {access!r}"
            raise ApiError(403, message, code="insufficient_scope", details={"scope": access})

    def may_use(self, model: str) -> bool:
        return not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)

    def require_model(self, model: str, asked: str = "") -> None:
        """`model` by its whole name, `asked` as the client named it. Raises `ApiError` 403 for one that is not for the
        key to use."""
        if not self.may_use(model):
            may = ", ".join(self.models)
            stands_for = f", which stands for {model!r}" if asked not in ("", model) else ""
            message = f"this key may not use {asked or model!r}{stands_for}; it may use: {may}"
            raise ApiError(403, message, code="model_not_allowed", param="model")

    def may_answer(self, requester: str) -> bool:
        """Whether it may answer the questions of a run that `requester` began (J110, N168)."""
        return self.name == requester or self.answers_all

    @property
    def answers_all(self) -> bool:
        return not self.scopes.isdisjoint(("approvals", "admin"))

    def require_answer(self, requester: str) -> None:
        """Raises `ApiError` 403 for a key that may not."""
        if not self.may_answer(requester):
            message = "only the key that started this run, or one with the scope 'approvals', may answer its approvals"
            raise ApiError(403, message, code="not_the_requester")

    def owns(self, owner: str) -> bool:
        """Whether what the key of that name made is this caller's to read and delete. An admin's is everything."""
        return self.name == owner or "admin" in self.scopes


LOCAL = Identity("local")  # no key is configured: every client on the loopback interface is the user


class Authoriser:
    """The keys of this server. Without any, every client is let in."""

    def __init__(
        self,
        keys: Mapping[str, tuple[str, Collection[Scope]]],
        models: Mapping[str, tuple[str, ...]] | None = None,
        *,
        stored: Mapping[str, StoredKey] | None = None,
        required: bool = False,
    ) -> None:
        """`keys`: the secret and the scopes by name; `models`: those that a key may use. A key of `keys` stands before
        a stored one of its name. `required`: without any key no client is let in. Raises `ConfigError` for a blank
        secret, and where two keys have the same one."""
        for name, (secret, _) in keys.items():
            if not secret.strip():
                raise ConfigError(f"the key {name!r} is blank", key="server.keys")
        self._salt = secrets.token_bytes(32)
        self._keys = {
            self._digest(digest_of(secret)): Identity(name, frozenset(scopes), (models or {}).get(name, ()))
            for name, (secret, scopes) in keys.items()
        }
        if len(self._keys) < len(keys):
            raise ConfigError("two keys have the same value", key="server.keys")
        for name, key in (stored or {}).items():
            if name not in keys:
                self._keys[self._digest(key.digest)] = Identity(name, frozenset(key.scopes), key.models)
        self.required = required or bool(self._keys)

    @classmethod
    def of(cls, config: Config, stored: Mapping[str, StoredKey] | None = None, *, required: bool = False) -> Authoriser:
        """Raises `ConfigError` for a key whose variable is not set, and for a budget that nothing would hold it to."""
        keys: dict[str, tuple[str, Collection[Scope]]] = {}
        for index, key in enumerate(config.server.keys):
            if key.name in keys or key.name in RESERVED or is_platform(key.name.partition(":")[0]):
                raise ConfigError(f"the name {key.name!r} is taken", key=f"server.keys[{index}].name")
            if key.usd_per_day is not None and not has_prices(config):
                message = f"prices need an extra: {install_command('prices')}"
                raise ConfigError(message, key=f"server.keys[{index}].usd_per_day")
            keys[key.name] = (config.require_secret(key.key_env, f"server.keys[{index}].key_env"), key.scopes)
        if secret := config.secret(config.server.key_env):
            keys["default"] = (secret, ALL)
        models = {key.name: key.models for key in config.server.keys}
        return cls(keys, models, stored=stored, required=required)

    def authorise(self, headers: Mapping[str, str], access: Access) -> Identity:
        """The caller. Raises `ApiError` 401 without a valid key, 403 for a key without the scope."""
        if not self.required:
            return LOCAL
        identity = self._identify(headers)
        if identity is None:
            if access == "open":
                return Identity("anonymous", frozenset())
            raise ApiError(401, "a valid API key is needed", code="invalid_api_key", headers=_CHALLENGE)
        identity.require(access)
        return identity

    def lets_in(self, caller: Identity) -> bool:
        """Whether a caller who was let in before still is."""
        return not self.required or caller in self._keys.values()

    def _identify(self, headers: Mapping[str, str]) -> Identity | None:
        kind, _, token = headers.get("Authorization", "").partition(" ")
        given = token.strip() if kind.lower() == "bearer" else ""
        given = given or headers.get("x-api-key", "").strip()
        if not given:
            return None  # before any comparison: no key sent is never equal to a key (M151)
        return self._keys.get(self._digest(digest_of(given)))

    def _digest(self, digest: str) -> bytes:
        """What a key is found by. It is unknown outside this process, so the time of the search tells nothing of a
        key; and it takes no longer among thousands."""
        return hmac.digest(self._salt, digest.encode(), "sha256")


def is_loopback(host: str) -> bool:
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # Python looks into a mapped address (`::ffff:127.0.0.1`) from 3.13 on
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def check_bind(host: str, authoriser: Authoriser, key_env: str) -> None:
    """Only loopback may be bound without a key (J117). Raises `ConfigError`."""
    if not authoriser.required and not is_loopback(host):
        message = f"{host or 'every interface'} is reachable from outside and no key is set; set {key_env}"
        raise ConfigError(f"{message}, or bind to 127.0.0.1", key="server.host")


class Origins:
    """Which web pages may use this server, and under which host names."""

    def __init__(self, *, hosts: Collection[str], origins: Collection[str], any_host: bool) -> None:
        """`any_host`: a key guards the server, so DNS rebinding gains nothing."""
        self._hosts = LOOPBACK_NAMES | {host.lower() for host in hosts}
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._any_host = any_host and not hosts
        self._reported: set[tuple[str, ...]] = set()
        self._passed: set[str] = set()  # hosts that were let in: every client names one of a few

    def check(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Raises `ApiError` 403 for an unknown Host (DNS rebinding) and for an Origin of another site. A header that is
        given twice is refused: which of the two counts would depend on who reads it."""
        if not origins and len(hosts) == 1 and hosts[0] in self._passed:
            return
        if len(hosts) > 1 or len(origins) > 1:
            raise ApiError(403, "Host and Origin may be given once", code="header_given_twice")
        host, origin = next(iter(hosts), ""), next(iter(origins), None)
        name = _hostname(host)
        if host and not name:
            raise ApiError(403, "this Host is neither a name nor an address", code="host_not_allowed")
        if not self._any_host and name not in self._hosts and not is_loopback(name):
            self._report("a request for the host %.200r was refused: it is not in server.hosts", host)
            raise ApiError(403, "this Host is not allowed; add it to server.hosts", code="host_not_allowed")
        if origin is not None and not self._same(origin, host) and not self.allows(origin):
            message = "a page of %.200r was refused: it is not in server.cors_origins, and not ours at the host %.200r"
            self._report(message, origin, host)
            raise ApiError(403, "this Origin is not allowed; add it to server.cors_origins", code="origin_not_allowed")
        if len(self._passed) < MAX_PASSED:
            self._passed.add(host)

    def _report(self, message: str, *refused: str) -> None:
        """A browser shows a page neither the status nor the body of such an answer: the log is where people look."""
        if refused not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(refused)
            log.warning(message, *refused)

    def allows(self, origin: str) -> bool:
        """Whether CORS headers let this page read the answer. They repeat the origin, which is ASCII (Fetch, 3.2)."""
        if not origin.isascii():
            return False
        return origin.lower() in self._origins or ("*" in self._origins and origin != "null")

    @staticmethod
    def _same(origin: str, host: str) -> bool:
        return "://" in origin and origin.partition("://")[2].lower() == host.lower()


def _hostname(host: str) -> str:
    """The name or the address in a Host header; empty for anything but `name` or `name:port` (RFC 9110, 7.2). A URL
    parser would read more into it: `evil.example@127.0.0.1` is no host."""
    found = _HOST.fullmatch(host)
    return (found["address"] or found["name"]).lower() if found else ""
