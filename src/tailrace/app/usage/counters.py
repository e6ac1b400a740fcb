"""How usage is written into the store's counters, and read from them. Pure.

`usage TAB day TAB key TAB model TAB what` holds the details, `spent TAB day TAB key TAB what` a day's sums of a key,
and `rate TAB key TAB minute` the requests of one minute. A day is one of UTC, so that all nodes mean the same. Tokens
are counted, and priced when somebody looks: a process that only counts needs no prices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, Literal

from msgspec.structs import replace

from tailrace.messages import SpentTokens, Usage, Value

By = Literal["day", "key", "model"]
DAY_S: Final = 86_400
MINUTE_S: Final = 60
DETAILS, SPENT, RATE = "usage\t", "spent\t", "rate\t"
_WHAT: Final = ("calls", "input", "output", "cache_read", "cache_write")


class UsageRow(Value):
    """`unpriced`: tokens of models without a price; `usd` is without them. Neither is known before `priced`."""

    day: str
    key: str
    model: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def day_of(at: float) -> str:
    """The day of this time, as 2026-11-30."""
    return _day(int(at // DAY_S))


@lru_cache(maxsize=8)
def _day(number: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(number * DAY_S))


def minute_of(at: float) -> str:
    """Sorts by time."""
    return f"{int(at // MINUTE_S):012d}"


def rate_counter(key: str, at: float) -> str:
    return f"{RATE}{_word(key)}\t{minute_of(at)}"


def spent_counters(key: str, at: float) -> tuple[str, str]:
    """The day's tokens and money."""
    place = f"{SPENT}{day_of(at)}\t{_word(key)}"
    return f"{place}\ttokens", f"{place}\tusd"


def amounts_of(
    key: str, spent: SpentTokens, at: float, usd: float | None = None, *, cached_beside: bool = False, calls: int = 1
) -> dict[str, float]:
    """What one call adds, or `calls` of one day that spent this together; `usd` for a key whose money is limited.
    `cached_beside`: the provider counts cached tokens beside the input's, not among them."""
    usage = spent.usage
    tokens = usage.input_tokens + usage.output_tokens
    if cached_beside:
        tokens += usage.cache_read_tokens + usage.cache_write_tokens
    place = f"{DETAILS}{day_of(at)}\t{_word(key)}\t{_word(f'{spent.provider}/{spent.model}')}"
    values = (calls, usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    amounts = {f"{place}\t{what}": float(value) for what, value in zip(_WHAT, values, strict=True) if value}
    day_tokens, day_usd = spent_counters(key, at)
    return amounts | {day_tokens: float(tokens)} | ({day_usd: usd} if usd else {})


def rows_of(counters: Mapping[str, float]) -> list[UsageRow]:
    """The details among these counters, by day, key and model."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for name, value in counters.items():
        if name.startswith(DETAILS):
            _, day, key, model, what = name.split("\t")
            found.setdefault((day, key, model), {})[what] = value
    return [_row(*place, values) for place, values in sorted(found.items())]


def mean_call(row: UsageRow) -> SpentTokens:
    """What one call of the row spent on average: a price may grow with the tokens of one call, never of several."""
    provider, _, model = row.model.partition("/")
    calls = max(row.calls, 1)
    usage = Usage(
        round(row.input_tokens / calls),
        round(row.output_tokens / calls),
        cache_read_tokens=round(row.cache_read_tokens / calls),
        cache_write_tokens=round(row.cache_write_tokens / calls),
    )
    return SpentTokens(provider, model, usage)


def priced(rows: Iterable[UsageRow], price: Callable[[SpentTokens], float | None]) -> list[UsageRow]:
    """The rows of `rows_of` with what they cost."""
    costs = [(row, price(mean_call(row))) for row in rows]
    return [
        replace(row, unpriced=row.tokens) if usd is None else replace(row, usd=round(usd * max(row.calls, 1), 9))
        for row, usd in costs
    ]


def summed(rows: Iterable[UsageRow], by: By) -> list[UsageRow]:
    """The rows added up by `day`, `key` or `model`, the other two left empty; the most money first, then tokens."""
    sums: dict[str, UsageRow] = {}
    for row in rows:
        name: str = getattr(row, by)
        old = sums.get(name) or replace(UsageRow("", "", ""), **{by: name})
        sums[name] = UsageRow(
            old.day,
            old.key,
            old.model,
            old.calls + row.calls,
            old.input_tokens + row.input_tokens,
            old.output_tokens + row.output_tokens,
            old.cache_read_tokens + row.cache_read_tokens,
            old.cache_write_tokens + row.cache_write_tokens,
            old.usd + row.usd,
            old.unpriced + row.unpriced,
        )
    if by == "day":
        return [sums[day] for day in sorted(sums)]
    return sorted(sums.values(), key=lambda row: (-row.usd, -row.tokens, row.key, row.model))


def _row(day: str, key: str, model: str, values: Mapping[str, float]) -> UsageRow:
    return UsageRow(day, key, model, *(round(values.get(what, 0.0)) for what in _WHAT))


@lru_cache(maxsize=1024)  # keys and models: the same ones at every call
def _word(text: str) -> str:
    """Without the characters that separate words and that no database takes."""
    return "".join(character if character.isprintable() else "?" for character in text) or "?"
