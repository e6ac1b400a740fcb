"""What the listed runs cost by list prices."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.app import costs
from tailrace.app.timeline.run_overview import RunOverview
from tailrace.config.load import Config


class Costs:
    """Costs of runs, as this config asks its providers."""

    def __init__(self, config: Config) -> None:
        self._costs = costs.Costs(config)
        self.price = self._costs.price

    async def load(self, overviews: Iterable[RunOverview]) -> None:
        """To be awaited before `of`."""
        await self._costs.load(each for overview in overviews for each in overview.spent)

    def of(self, overview: RunOverview) -> float | None:
        """In dollars; None where one of its models has no price."""
        return self._costs.of(overview.spent)
