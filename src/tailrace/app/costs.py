"""What runs cost by list prices, as this config asks its providers. The one place for every surface.

The prices are loaded only where tokens were spent at a model that may have one: that takes a good part of a second.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.app.models import LOCAL
from tailrace.app.timeline.run_overview import cost_of
from tailrace.config.load import Config
from tailrace.config.presets import dialect_of
from tailrace.messages import SpentTokens, Usage
from tailrace.providers.prices import cost_usd, load_prices
from tailrace.wire.dialects import DIALECTS


class Costs:
    """Estimates in dollars."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def load(self, spent: Iterable[SpentTokens]) -> None:
        """To be awaited before `of`."""
        if any(_may_be_priced(each) for each in spent):
            await load_prices()

    def of(self, spent: Iterable[SpentTokens] | None) -> float | None:
        """Each model by its own price. None where nothing was used, or one of the models has no price."""
        return cost_of([each for each in spent or () if each.usage != Usage()], self.price)

    def counts_cached_beside(self, provider: str) -> bool:
        """Whether this provider's input tokens are without those that it read from its cache."""
        dialect = dialect_of(self._config, provider) if provider != LOCAL else None
        return dialect is not None and DIALECTS[dialect].counts_cache_apart

    def price(self, spent: SpentTokens) -> float | None:
        """Of one model's tokens."""
        dialect = dialect_of(self._config, spent.provider) if _may_be_priced(spent) else None
        return cost_usd(spent.model, spent.usage, dialect) if dialect is not None else None


def _may_be_priced(spent: SpentTokens) -> bool:
    return spent.usage != Usage() and bool(spent.model) and spent.provider != LOCAL
