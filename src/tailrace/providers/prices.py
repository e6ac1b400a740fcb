"""What a call costs by the list prices that come with genai-prices (the extra `prices`): an estimate in dollars."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tailrace.messages import Dialect, SpentTokens, Usage
from tailrace.wire.dialects import DIALECTS

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

PRICES = "genai_prices.data"  # what its first use imports
MAX_UNPRICED: Final = 1024
_UNPRICED: Final = set[str]()  # models without a price: looking for one in vain takes as long as a price


class Prices(Protocol):
    """What tokens cost."""

    def has_any(self) -> bool:
        """Whether money can be counted at all."""

    async def find(self, spent: SpentTokens, dialect: Dialect | None) -> float | None:
        """The estimate in dollars; None where the model has no price. `dialect` is the one it was asked in, where that
        is known."""


class ListPrices:
    """`Prices` of the extra alone."""

    def has_any(self) -> bool:
        return find_spec("genai_prices") is not None

    async def find(self, spent: SpentTokens, dialect: Dialect | None) -> float | None:
        await load_prices()
        return cost_usd(spent.model, spent.usage, dialect or "chat")


async def load_prices() -> None:
    """Imports the prices in a thread: that takes a good part of a second. A no-op once they are there."""
    if PRICES not in sys.modules and find_spec("genai_prices") is not None:
        await asyncio.to_thread(import_module, PRICES)


def prices_are_loaded() -> bool:
    """Whether `cost_usd` and `context_window` answer at once."""
    return PRICES in sys.modules


def context_window(model: str) -> int | None:
    """How many tokens the model takes; None where that is not known or the extra is not installed."""
    price = _price(model, Usage())
    return None if price is None else price.model.context_window


def cost_usd(model: str, usage: Usage, dialect: Dialect) -> float | None:
    """The estimate; None where the model has no price or the extra is not installed."""
    sent = DIALECTS[dialect].usage_with_cached(usage).input_tokens
    price = _price(model, msgspec.structs.replace(usage, input_tokens=max(sent, usage.cached_tokens)))
    return None if price is None else round(float(price.total_price), 9)


def _price(model: str, usage: Usage) -> PriceCalculation | None:
    if model in _UNPRICED:
        return None
    try:
        from genai_prices import Usage as PricedUsage
        from genai_prices import calc_price
    except ModuleNotFoundError:
        return None
    priced = PricedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    for name in dict.fromkeys((model, model.rpartition("/")[2])):  # `openai/gpt-5`, as routers name it
        with suppress(LookupError):
            return calc_price(priced, name)
    if len(_UNPRICED) < MAX_UNPRICED:
        _UNPRICED.add(model)
    return None
