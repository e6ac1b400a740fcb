"""The keys that `tailrace keys` makes and revokes while servers run.

Owns their form in the store: a digest and the limits, never the secret. All of them are one value, so that a process
that waits for its next change hears of each key.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import msgspec

from tailrace.app.costs import has_prices
from tailrace.config.load import Config
from tailrace.config.sections import Scope, ServerKey
from tailrace.errors import ConfigError, JournalError
from tailrace.journal.key_values import KeyValues
from tailrace.journal.storage_wait import warning_level
from tailrace.messages import Value
from tailrace.plugins.installed import is_platform
from tailrace.ports import SmallState
from tailrace.system.extras import install_command

# Names under which what comes without a key is counted and owned, beside those of the platforms.
RESERVED = frozenset({"default", "local", "unknown", "terminal", "cli", "editor", "python", "mcp"})
log = logging.getLogger("tailrace.app")
RETRY_S: Final = 5.0  # between reads while storage fails
_NAMESPACE: Final = "server.keys"
_ALL: Final = "all"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class StoredKey(Value):
    """`created_at` is the wall clock, in seconds since the epoch."""

    digest: str
    scopes: tuple[Scope, ...]
    models: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    usd_per_day: float | None = None
    created_at: float = 0.0

    def limits(self, name: str) -> ServerKey:
        return ServerKey(
            name=name,
            key_env="",
            requests_per_minute=self.requests_per_minute,
            tokens_per_day=self.tokens_per_day,
            usd_per_day=self.usd_per_day,
        )


def check_new_key(config: Config, name: str, usd_per_day: float | None) -> None:
    """Raises `ConfigError` for a name that is taken, and for a budget that nothing would hold the key to."""
    if name in RESERVED or is_platform(name.partition(":")[0]) or name in {key.name for key in config.server.keys}:
        raise ConfigError(f"the name {name!r} is taken; take another one")
    if usd_per_day is not None and not has_prices(config):
        raise ConfigError(f"a budget in dollars needs prices, an extra: {install_command('prices')}")


class NewKey(NamedTuple):
    secret: str
    digest: str


def new_key() -> NewKey:
    secret = f"tr-{secrets.token_urlsafe(32)}"
    return NewKey(secret, digest_of(secret))


def digest_of(secret: str) -> str:
    """A secret of 256 random bits needs no slow digest."""
    return hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).hexdigest()


class StoredKeys:
    """The keys by name, as every process on this journal knows them. The methods raise `JournalError`."""

    def __init__(self, journal: SmallState) -> None:
        self._journal = journal
        self._values = KeyValues(journal, _NAMESPACE, dict[str, StoredKey])

    async def all(self) -> dict[str, StoredKey]:
        return await self._values.get(_ALL) or {}

    async def add(self, name: str, key: StoredKey) -> None:
        """Raises `ConfigError` for a name that is no name, or that a key has."""
        if _NAME.fullmatch(name) is None:
            raise ConfigError(f"{name!r} is no name for a key: use up to 64 letters, digits, '.', '_' and '-'")

        def added(known: dict[str, StoredKey] | None) -> dict[str, StoredKey]:
            if name in (known or {}):
                raise ConfigError(f"there is a key {name!r}; revoke it first, or take another name")
            return {**(known or {}), name: key}

        await self._values.update(_ALL, added)

    async def revoke(self, name: str) -> None:
        """Raises `ConfigError` where there is no such key."""

        def removed(known: dict[str, StoredKey] | None) -> dict[str, StoredKey]:
            left = dict(known or {})
            if left.pop(name, None) is None:
                raise ConfigError(f"the store has no key {name!r}; tailrace keys ls shows all")
            return left

        await self._values.update(_ALL, removed)

    async def watch(self, take: Callable[[Mapping[str, StoredKey]], object]) -> None:
        """Calls `take` with the keys as they are now, and again at each change. Never returns."""
        while True:
            known = await self._journal.get_value(_NAMESPACE, _ALL)
            take({} if known is None else msgspec.json.decode(known, type=dict[str, StoredKey]))
            await self._journal.next_value(_NAMESPACE, _ALL, known)


@asynccontextmanager
async def followed_keys(
    journal: SmallState, take: Callable[[Mapping[str, StoredKey]], object]
) -> AsyncGenerator[None, None]:
    """Calls `take` with the keys as they are at the start of the block, and at each change within it. Raises
    `JournalError` where they cannot be read at the start."""
    stored = StoredKeys(journal)
    take(await stored.all())
    following = asyncio.create_task(_follow(stored, take))
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])


async def _follow(stored: StoredKeys, take: Callable[[Mapping[str, StoredKey]], object]) -> None:
    while True:
        try:
            await stored.watch(take)
        except JournalError as exc:
            log.log(warning_level(exc), "the keys of the store are not current: %s", exc)
            await asyncio.sleep(RETRY_S)
