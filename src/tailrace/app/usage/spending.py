"""What a conversation has cost: tokens by model, dollars where prices are known, and how full the context is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tailrace.agent.session import TURN_KIND
from tailrace.app import App
from tailrace.app.costs import Costs, dollars
from tailrace.config.load import Config
from tailrace.events import AnyEvent, RunForked, UsageRecorded
from tailrace.messages import SpentTokens, Usage
from tailrace.providers.prices import prices_are_loaded

Price = Callable[[SpentTokens], float | None]
_COUNTED_RUNS, _AT_ONCE = 500, 20


class Spent(NamedTuple):
    provider: str
    model: str
    usage: Usage
    cost_usd: float | None


class Spending:
    """Collects it from the events of a session's runs."""

    def __init__(self, price: Price) -> None:
        self._price = price
        self._used: dict[tuple[str, str], Usage] = {}
        self.calls = 0
        self.context_tokens = 0  # read and written by the last call

    def note(self, event: AnyEvent) -> None:
        if isinstance(event, RunForked):  # what stands before it is another run's
            self._used.clear()
            self.calls = 0
        elif isinstance(event, UsageRecorded):
            used, key = event.usage, (event.provider, event.model)
            self._used[key] = self._used.get(key, Usage()) + used
            self.calls += 1
            cached = used.cache_read_tokens + used.cache_write_tokens
            self.context_tokens = max(used.input_tokens, cached) + used.output_tokens

    def note_all(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            self.note(event)

    def by_model(self) -> list[Spent]:
        return [
            Spent(provider, model, usage, self._price(SpentTokens(provider, model, usage)))
            for (provider, model), usage in self._used.items()
        ]

    @property
    def tokens(self) -> int:
        return sum(usage.input_tokens + usage.output_tokens for usage in self._used.values())

    @property
    def cost_usd(self) -> float | None:
        """None where no price is known."""
        known = [spent.cost_usd for spent in self.by_model() if spent.cost_usd is not None]
        return sum(known) if known else None

    def table(self) -> str:
        """What `/cost` shows."""
        if not self._used:
            return "nothing yet: no model has been asked in this session"
        rows = [
            (
                f"{spent.provider}/{spent.model}",
                f"{_about(spent.usage)}{spent.usage.input_tokens:,} in",
                f"{_about(spent.usage)}{spent.usage.output_tokens:,} out",
                f"{spent.usage.cache_read_tokens:,} from the cache" if spent.usage.cache_read_tokens else "",
                dollars(spent.cost_usd) or "no price known",
            )
            for spent in self.by_model()
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        calls = "1 call" if self.calls == 1 else f"{self.calls} calls"
        total = [calls, f"{self.tokens:,} tokens", *filter(None, [dollars(self.cost_usd)])]
        return "\n".join([*lines, " · ".join(total)])


def _about(usage: Usage) -> str:
    """Before what its provider has not counted."""
    return "~" if usage.estimated_tokens else ""


def no_spending(config: Config) -> Spending:
    """Of a session that begins. Costs are known once list prices are loaded."""
    costs = Costs(config)
    return Spending(lambda spent: costs.price(spent) if prices_are_loaded() else None)


async def spent_in(app: App, session: str) -> Spending:
    """What the session has cost so far, from its log."""
    spending = no_spending(app.config)
    runs = await app.journal.runs(session=session, kind=TURN_KIND, limit=_COUNTED_RUNS)
    ids = [run.id for run in reversed(runs)]
    for start in range(0, len(ids), _AT_ONCE):
        for facts in await app.journal.facts_of_runs(ids[start : start + _AT_ONCE]):
            spending.note_all(entry.event for entry in facts)
    return spending
