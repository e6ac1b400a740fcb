"""What models cost, as data: list prices in dollars per million tokens, for an estimate and no more.

The figures were written down from memory and not checked against a price list, and prices change without notice.
Whoever needs exact figures hands a table of their own to `LlmCall`; a model that no pattern names has no estimate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tailrace.messages import Dialect, Usage


class Price(msgspec.Struct, frozen=True):
    """`pattern` is searched for in the model's name; the first that is found counts. A cached token costs `cached` of
    one that is not; one written to the cache `written`."""

    pattern: str
    input_usd: float
    output_usd: float
    cached: float = 0.1
    written: float = 1.25


PRICES: tuple[Price, ...] = (
    Price(r"claude-opus-4-[5-9]", 5.0, 25.0),
    Price(r"claude-opus", 15.0, 75.0),
    Price(r"claude-(sonnet|3-[57]-sonnet)", 3.0, 15.0),
    Price(r"claude-haiku-4", 1.0, 5.0),
    Price(r"claude-3-5-haiku", 0.8, 4.0),
    Price(r"gpt-5(\.\d)?-nano", 0.05, 0.4),
    Price(r"gpt-5(\.\d)?-mini", 0.25, 2.0),
    Price(r"gpt-5", 1.25, 10.0),
    Price(r"gpt-4\.1-nano", 0.1, 0.4, cached=0.25),
    Price(r"gpt-4\.1-mini", 0.4, 1.6, cached=0.25),
    Price(r"gpt-4\.1", 2.0, 8.0, cached=0.25),
    Price(r"gpt-4o-mini", 0.15, 0.6, cached=0.5),
    Price(r"gpt-4o", 2.5, 10.0, cached=0.5),
    Price(r"deepseek-(chat|reasoner|v3)", 0.28, 0.42),
    Price(r"^smollm2", 0.0, 0.0),
)


def cost_usd(model: str, usage: Usage, dialect: Dialect, prices: Sequence[Price] = PRICES) -> float | None:
    """The estimate, or None where the model is not in the table."""
    price = next((price for price in prices if re.search(price.pattern, model)), None)
    if price is None:
        return None
    fresh = usage.input_tokens
    if dialect != "anthropic":  # there the cached tokens are among the input's
        fresh = max(0, fresh - usage.cache_read_tokens - usage.cache_write_tokens)
    read = fresh + usage.cache_read_tokens * price.cached + usage.cache_write_tokens * price.written
    return round((read * price.input_usd + usage.output_tokens * price.output_usd) / 1e6, 9)
