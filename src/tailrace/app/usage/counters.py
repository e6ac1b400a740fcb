"""How usage is written into the store's counters, and read from them. Pure.

`usage TAB day TAB key TAB model TAB what` holds the details, `spent TAB day TAB key TAB what` a day's sums of a key,
`rate TAB minute TAB key` the requests of one minute, and `reserved TAB time TAB key TAB what` the estimates of calls in
flight. The time comes first, so that old ones are a range; a day is one of UTC, so that all nodes mean the same. Tokens
are priced when they are shown: a process that only counts needs no prices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from functools import lru_cache, reduce
from typing import Final, Literal

from msgspec.structs import replace

from tailrace.messages import SpentTokens, Usage, Value

By = Literal["day", "key", "model"]
DAY_S: Final = 86_400
MINUTE_S: Final = 60
MAX_DAYS_BY_KEY: Final = 31  # a key's rows are read day by day, up to so many
RESERVED_S: Final = 600  # a reservation of a process that was killed counts for so long, or twice that
DETAILS, SPENT, RATE, RESERVED = "usage\t", "spent\t", "rate\t", "reserved\t"
_WHAT: Final = ("calls", "input", "output", "cache_read", "cache_write", "estimated")


class UsageRow(Value):
    """`estimated_tokens`: those of the others that no provider has counted. `unpriced`: tokens of models without a
    price; `usd` is without them. Neither of the last two is known before `priced`."""

    day: str
    key: str
    model: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated_tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def is_unpriced(self) -> bool:
        """Whether tokens were used and none of them has a price: what that costs is not known."""
        return 0 < self.unpriced >= self.tokens


_ADDED: Final = UsageRow.__struct_fields__[3:]  # all but the names


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
    return f"{RATE}{minute_of(at)}\t{_word(key)}"


def spent_counters(key: str, at: float) -> tuple[str, str]:
    """The day's tokens and money."""
    place = f"{SPENT}{day_of(at)}\t{_word(key)}"
    return f"{place}\ttokens", f"{place}\tusd"


def reserved_counters(key: str, at: float) -> tuple[str, str]:
    """The tokens and money that calls in flight have reserved, of those that began at about this time."""
    place = f"{reserved_before(at)}\t{_word(key)}"
    return f"{place}\ttokens", f"{place}\tusd"


def reserved_before(at: float) -> str:
    """Sorts before what calls reserve that begin now, and after what earlier ones did."""
    return f"{RESERVED}{int(at // RESERVED_S):012d}"


def details_since(day: str) -> tuple[str, str]:
    """The prefix and the first name of what `rows_of` reads."""
    return DETAILS, DETAILS + day


def details_after(day: str) -> tuple[str, str]:
    """The same of the days after this one: there are some where a clock was ahead."""
    return details_since(str(date.fromisoformat(day) + timedelta(1)))


def details_of_key(key: str, since: str, today: str) -> list[str] | None:
    """The prefixes of what `rows_of` reads of one key, one for each day up to `today`; None where they are too many."""
    try:
        first, last = date.fromisoformat(since), date.fromisoformat(today)
    except ValueError:
        return None
    days = (last - first).days + 1
    if days > MAX_DAYS_BY_KEY:
        return None
    return [f"{DETAILS}{first + timedelta(number)}\t{_word(key)}\t" for number in range(days)]


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
    cached = (usage.cache_read_tokens, usage.cache_write_tokens)
    values = (calls, usage.input_tokens, usage.output_tokens, *cached, usage.estimated_tokens)
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


def tokens_in(amounts: Mapping[str, float]) -> int:
    """The tokens of all keys that are among the days' sums."""
    sums = (amount for name, amount in amounts.items() if name.startswith(SPENT) and name.endswith("\ttokens"))
    return round(sum(sums))


def mean_call(row: UsageRow) -> SpentTokens:
    """What one call of the row spent on average: a price may grow with the tokens of one call, never of several."""
    provider, _, model = row.model.partition("/")
    cached = {"cache_read_tokens": row.cache_read_tokens, "cache_write_tokens": row.cache_write_tokens}
    return mean_of(SpentTokens(provider, model, Usage(row.input_tokens, row.output_tokens, **cached)), row.calls)


def mean_of(spent: SpentTokens, calls: int) -> SpentTokens:
    """What one of so many calls spent on average."""
    calls, usage = max(calls, 1), spent.usage
    mean = Usage(
        round(usage.input_tokens / calls),
        round(usage.output_tokens / calls),
        cache_read_tokens=round(usage.cache_read_tokens / calls),
        cache_write_tokens=round(usage.cache_write_tokens / calls),
    )
    return SpentTokens(spent.provider, spent.model, mean)


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
        sums[name] = _plus(sums.get(name) or replace(UsageRow("", "", ""), **{by: name}), row)
    if by == "day":
        return [sums[day] for day in sorted(sums)]
    return sorted(sums.values(), key=lambda row: (-row.usd, -row.tokens, row.key, row.model))


def total_of(rows: Iterable[UsageRow]) -> UsageRow:
    """All rows added up, without names."""
    return reduce(_plus, rows, UsageRow("", "", ""))


def _plus(sum_so_far: UsageRow, row: UsageRow) -> UsageRow:
    return replace(sum_so_far, **{name: getattr(sum_so_far, name) + getattr(row, name) for name in _ADDED})


def _row(day: str, key: str, model: str, values: Mapping[str, float]) -> UsageRow:
    return UsageRow(day, key, model, *(round(values.get(what, 0.0)) for what in _WHAT))


@lru_cache(maxsize=1024)  # keys and models: the same ones at every call
def _word(text: str) -> str:
    """Without the characters that separate words and that no database takes."""
    return "".join(character if character.isprintable() else "?" for character in text) or "?"
