"""What runs cost by list prices. The prices are loaded only where tokens were spent: that takes a while."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.config.load import Config
from tailrace.messages import Usage
from tailrace.providers.prices import cost_usd, load_prices
from tailrace.providers.provider_dialects import provider_dialects
from tailrace.runs.run_overview import RunOverview, SpentTokens, cost_of

LOCAL = "local"


class Costs:
    """Costs of runs, as this config asks its providers."""

    def __init__(self, config: Config) -> None:
        self._dialects = provider_dialects(config)

    async def load(self, overviews: Iterable[RunOverview]) -> None:
        """To be awaited before `of`."""
        if any(_may_be_priced(each) for overview in overviews for each in overview.spent):
            await load_prices()

    def of(self, overview: RunOverview) -> float | None:
        """In dollars; None where one of its models has no price."""
        return cost_of(overview.spent, self.price)

    def price(self, spent: SpentTokens) -> float | None:
        """Of one model's tokens, in dollars."""
        if not _may_be_priced(spent):
            return None
        return cost_usd(spent.model, spent.usage, self._dialects.get(spent.provider, "chat"))


def _may_be_priced(spent: SpentTokens) -> bool:
    return spent.usage != Usage() and bool(spent.model) and spent.provider != LOCAL
