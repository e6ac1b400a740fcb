"""What runs cost by the prices of the config and by list prices. The one place for every surface.

The prices are loaded only where tokens were spent at a model that may have one: that takes a good part of a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Final

from tailrace.app.models import LOCAL
from tailrace.config.load import Config
from tailrace.config.presets import dialect_of
from tailrace.config.sections import ModelPrice
from tailrace.messages import Dialect, SpentTokens, Usage
from tailrace.providers.prices import cost_usd, load_prices
from tailrace.wire.dialects import DIALECTS

UNKNOWN: Final = "–"  # of a cost, in every list


class Costs:
    """Estimates in dollars. Implements `Prices`."""

    def __init__(self, config: Config) -> None:
        self.config = config

    async def load(self, spent: Iterable[SpentTokens]) -> None:
        """To be awaited before `of`."""
        if any(_may_be_priced(each) and self._own_price(each) is None for each in spent):
            await load_prices()

    def of(self, spent: Iterable[SpentTokens] | None) -> float | None:
        """Each model by its own price. None where nothing was used, or one of the models has no price."""
        costs = [self.price(each) for each in spent or () if each.usage != Usage()]
        known = [cost for cost in costs if cost is not None]
        return round(sum(known), 9) if known and len(known) == len(costs) else None

    def has_any(self) -> bool:
        return has_prices(self.config)

    async def find(self, spent: SpentTokens, dialect: Dialect | None) -> float | None:
        await self.load((spent,))
        return self.price(spent, dialect)

    def counts_cached_beside(self, provider: str) -> bool:
        """Whether this provider's input tokens are without those that it read from its cache."""
        dialect = dialect_of(self.config, provider) if provider != LOCAL else None
        return dialect is not None and DIALECTS[dialect].counts_cache_apart

    def price(self, spent: SpentTokens, dialect: Dialect | None = None) -> float | None:
        """Of one model's tokens. A price of the config stands before the list's. `dialect`: the one it was asked in;
        by default the provider's."""
        if (own := self._own_price(spent)) is not None and spent.usage != Usage():
            return self._by_own_price(own, spent, dialect)
        dialect = dialect or dialect_of(self.config, spent.provider)
        return cost_usd(spent.model, spent.usage, dialect) if dialect is not None and _may_be_priced(spent) else None

    def _own_price(self, spent: SpentTokens) -> ModelPrice | None:
        settings = self.config.providers.get(spent.provider)
        prices = settings.prices if settings is not None else {}
        return next((price for pattern, price in prices.items() if fnmatchcase(spent.model, pattern)), None)

    def _by_own_price(self, price: ModelPrice, spent: SpentTokens, dialect: Dialect | None) -> float:
        usage, cached_beside = spent.usage, self.counts_cached_beside(spent.provider)
        if dialect is not None:
            cached_beside = DIALECTS[dialect].counts_cache_apart
        uncached = usage.input_tokens if cached_beside else max(0, usage.input_tokens - usage.cached_tokens)
        read = price.input if price.cache_read is None else price.cache_read
        write = price.input if price.cache_write is None else price.cache_write
        cached = usage.cache_read_tokens * read + usage.cache_write_tokens * write
        return round((uncached * price.input + cached + usage.output_tokens * price.output) / 1_000_000, 9)


def _may_be_priced(spent: SpentTokens) -> bool:
    return spent.usage != Usage() and bool(spent.model) and spent.provider != LOCAL


def has_prices(config: Config) -> bool:
    """Whether money can be counted at all: by list prices, or by those of the config."""
    return find_spec("genai_prices") is not None or any(provider.prices for provider in config.providers.values())


def dollars(cost: float | None) -> str:
    """`$0.0021`, `$0.14`, `$12.30`; empty where the cost is not known."""
    if cost is None:
        return ""
    if cost and cost < 0.0001:
        return "<$0.0001"
    return f"${cost:.4f}" if 0 < cost < 0.01 else f"${cost:.2f}"
