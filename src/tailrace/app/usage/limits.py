"""What a key may use, and what it is told when that is used up. Pure but for one step at the store per request.

Over a minute's requests or a day's budget a request is refused before anything is done for it. An answer that is under
way when a budget runs out is finished, and counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec.structs import replace

from tailrace.app.usage.counters import DAY_S, MINUTE_S, RATE, minute_of, rate_counter, spent_counters
from tailrace.config.sections import ServerKey
from tailrace.messages import Value
from tailrace.ports import SmallState

Limited = Literal["requests_per_minute", "tokens_per_day", "usd_per_day"]


class Refusal(Value):
    """`retry_after_s`: until the minute or the day is over."""

    limit: Limited
    used: float
    allowed: float
    retry_after_s: int

    @property
    def message(self) -> str:
        used = {
            "requests_per_minute": f"{self.allowed:g} requests a minute",
            "tokens_per_day": f"{self.allowed:,.0f} tokens a day, and has used {self.used:,.0f}",
            "usd_per_day": f"${self.allowed:g} a day, and has used ${self.used:.2f}",
        }[self.limit]
        return f"this key may use {used}; it may again in {_words(self.retry_after_s)}"


class Allowance(Value):
    """What a key has left after this request; None where there is no such limit."""

    requests: int | None = None
    requests_left: int | None = None
    requests_reset_s: int = 0
    tokens: int | None = None
    tokens_left: int | None = None
    tokens_reset_s: int = 0
    counter: str = ""  # that has counted this request


class KeyLimits:
    """The limits of the config's keys, counted over all processes."""

    def __init__(
        self, keys: Mapping[str, ServerKey], journal: SmallState, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = {name: key for name, key in keys.items() if key.is_limited}
        self._journal, self._clock = journal, clock
        self._minute = ""  # in which this process has last removed older ones

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._keys)

    async def admit(self, name: str) -> Allowance | Refusal | None:
        """Counts a request of this key; None for one without limits, at no cost. Raises `JournalError`."""
        if (key := self._keys.get(name)) is None:
            return None
        now = self._clock()
        rate, (tokens, usd) = rate_counter(name, now), spent_counters(name, now)
        amounts = {tokens: 0.0, usd: 0.0} | ({rate: 1.0} if key.requests_per_minute is not None else {})
        counted = await self._journal.add_to_counters(amounts)
        if rate in counted and minute_of(now) != self._minute:
            self._minute = minute_of(now)
            # Another node's clock may be behind this one's: the minute before is left to it.
            await self._journal.remove_counters(RATE, RATE + minute_of(now - MINUTE_S))
        judged = _judged(key, int(counted.get(rate, 0)), counted[tokens], counted[usd], now)
        return replace(judged, counter=rate) if isinstance(judged, Allowance) and rate in counted else judged

    async def give_back(self, given: Allowance) -> Allowance:
        """Takes a request out of the count again; returns what is left then. Raises `JournalError`."""
        if not given.counter or given.requests_left is None:
            return given
        await self._journal.add_to_counters({given.counter: -1.0})
        return replace(given, requests_left=given.requests_left + 1, counter="")


def _judged(key: ServerKey, requests: int, tokens: float, usd: float, now: float) -> Allowance | Refusal:
    minute, day = (math.ceil(length - now % length) for length in (MINUTE_S, DAY_S))
    if key.tokens_per_day is not None and tokens >= key.tokens_per_day:
        return Refusal("tokens_per_day", round(tokens), key.tokens_per_day, day)
    if key.usd_per_day is not None and usd >= key.usd_per_day:
        return Refusal("usd_per_day", usd, key.usd_per_day, day)
    if key.requests_per_minute is not None and requests > key.requests_per_minute:
        return Refusal("requests_per_minute", requests, key.requests_per_minute, minute)
    return Allowance(
        requests=key.requests_per_minute,
        requests_left=None if key.requests_per_minute is None else key.requests_per_minute - requests,
        requests_reset_s=minute,
        tokens=key.tokens_per_day,
        tokens_left=None if key.tokens_per_day is None else key.tokens_per_day - int(tokens),
        tokens_reset_s=day,
    )


def _words(seconds: int) -> str:
    """Never less than it is: who comes back then is served."""
    if seconds < 120:
        return f"{seconds} s"
    return f"{-(-seconds // 60)} min" if seconds < 7200 else f"{-(-seconds // 3600)} h"
