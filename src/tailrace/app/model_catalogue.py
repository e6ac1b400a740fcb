"""Which models there are: what each configured provider lists, cached. A provider that is down costs a moment, not the
list (K138)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from tailrace.app.models import Models
from tailrace.config.load import Config
from tailrace.errors import ConfigError, ProviderError

log = logging.getLogger("tailrace.app")
LIST_S: Final = 3.0  # for a provider to list its models
FRESH_S: Final = 300.0  # a list is not asked for again
FAILED_S: Final = 30.0  # a provider that gave none is not asked again


class _Listed(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    until: float


class ModelCatalogue:
    """The models by provider. `clock` is in seconds."""

    def __init__(self, config: Config, models: Models, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._models = models
        self._clock = clock
        choice = config.model
        self._configured = [(choice.provider, choice.name), *((ref.provider, ref.name) for ref in choice.fallbacks)]
        self._providers = tuple(dict.fromkeys([*(provider for provider, _ in self._configured), *config.providers]))
        self._listed: dict[str, _Listed] = {}
        self._lock = asyncio.Lock()

    async def models(self) -> tuple[tuple[str, str], ...]:
        """Each provider with each of its models: the configured ones first, then those that are listed."""
        async with self._lock:  # who comes second finds what the first has asked for
            stale = [name for name in self._providers if not self._is_fresh(name)]
            await asyncio.gather(*map(self._ask, stale))
        listed = ((name, model) for name in self._providers for model in self._listed[name].names)
        return tuple(dict.fromkeys([*self._configured, *listed]))

    def _is_fresh(self, provider: str) -> bool:
        listed = self._listed.get(provider)
        return listed is not None and self._clock() < listed.until

    async def _ask(self, provider: str) -> None:
        try:
            async with asyncio.timeout(LIST_S):
                names = await self._models.listed_by(provider)
        except (ConfigError, ProviderError, TimeoutError) as exc:
            log.info("%s lists no models: %s", provider, str(exc) or f"no answer within {LIST_S:.0f} s")
            before = self._listed.get(provider)
            self._listed[provider] = _Listed(before.names if before else (), self._clock() + FAILED_S)
        else:
            self._listed[provider] = _Listed(names, self._clock() + FRESH_S)
