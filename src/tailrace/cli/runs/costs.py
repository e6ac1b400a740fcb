"""What the listed runs cost by list prices."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.app import costs
from tailrace.config.load import Config
from tailrace.config.sections import ProviderSettings
from tailrace.messages import Dialect
from tailrace.providers.presets import PRESETS, Preset
from tailrace.runs.run_overview import RunOverview


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


def dialects_of(config: Config) -> dict[str, Dialect]:
    """By the providers' names: how they count tokens."""
    names = {*PRESETS, *config.providers}
    settings = {name: config.providers.get(name, ProviderSettings()) for name in names}
    return {name: settings[name].dialect or PRESETS.get(name, Preset("")).dialect for name in names}
