"""The limits of a key, and the error when one is reached. One step at the store per request, two per model call.

Over a minute's requests or a day's budget a request is refused before anything is done for it. A day's budget is looked
at again before every model call, in whichever run or step (O174). Calls in flight reserve an estimate: calls that begin
at once exceed a budget by one call, and by what answers longer than `RESERVED_OUTPUT` tokens have.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Literal

from msgspec.structs import replace

from tailrace.app.usage.counters import (
    DAY_S,
    MINUTE_S,
    RATE,
    RESERVED_S,
    minute_of,
    rate_counter,
    reserved_counters,
    spent_counters,
)
from tailrace.app.usage.ledger import UsageLedger
from tailrace.config.sections import ServerKey
from tailrace.errors import JournalError, Permanent
from tailrace.journal.storage_wait import warning_level
from tailrace.messages import ModelRequest, SpentTokens, Usage, Value
from tailrace.ports import SmallState
from tailrace.providers.attempt import Route
from tailrace.runs.charged_to import CHARGED_TO
from tailrace.system.own_task import until_done
from tailrace.wire.token_estimate import input_tokens

log = logging.getLogger("tailrace.app")
RESERVED_OUTPUT: Final = 4096  # tokens of an answer that a call reserves, unless the request asks for less
_ALL_RESERVED: Final = "other calls of this key, which are in flight, have reserved what is left"
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
            "requests_per_minute": f"{self.allowed:g} requests a minute of the clock",
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

    def __init__(self, journal: SmallState, ledger: UsageLedger, *, clock: Callable[[], float] = time.time) -> None:
        self._keys: dict[str, ServerKey] = {}
        self.names: frozenset[str] = frozenset()
        self._journal, self._ledger, self._clock = journal, ledger, clock
        self._minute = ""  # in which this process has last removed older ones

    def take_keys(self, keys: Iterable[ServerKey]) -> None:
        """From now on these keys' limits; what was counted by name stays."""
        self._keys = {key.name: key for key in keys if key.is_limited}
        self.names = frozenset(self._keys)

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

    def gate(self, request: ModelRequest, routes: Sequence[Route]) -> AbstractAsyncContextManager[None] | None:
        """For `Caller`: one call of the key that the task is charged to."""
        key = self._keys.get(CHARGED_TO.get()) if self._keys else None
        if key is None or (key.tokens_per_day is None and key.usd_per_day is None):
            return None
        output = min(request.max_tokens or RESERVED_OUTPUT, RESERVED_OUTPUT)
        usage = Usage(input_tokens(request), output)
        return self._reserved(key, SpentTokens(routes[0].provider.name, routes[0].model, usage))

    @asynccontextmanager
    async def _reserved(self, key: ServerKey, estimate: SpentTokens) -> AsyncGenerator[None, None]:
        now = self._clock()
        tokens, usd = spent_counters(key.name, now)
        own, before = reserved_counters(key.name, now), reserved_counters(key.name, now - RESERVED_S)
        usage = estimate.usage
        amounts = (float(usage.input_tokens + usage.output_tokens), await self._ledger.price(key.name, estimate) or 0.0)
        looked_at = dict.fromkeys((tokens, usd, *before), 0.0) | dict(zip(own, amounts, strict=True))
        reserving = asyncio.get_running_loop().create_task(self._journal.add_to_counters(looked_at))
        try:
            found = (await until_done(reserving)).result()
            others = [found[mine] - amount + found[old] for mine, amount, old in zip(own, amounts, before, strict=True)]
            judged = _judged(key, 0, found[tokens] + others[0], found[usd] + others[1], now)
            if isinstance(judged, Refusal):
                is_spent = isinstance(_judged(key, 0, found[tokens], found[usd], now), Refusal)
                message = judged.message if is_spent else f"{_ALL_RESERVED} of {judged.allowed:,g} {judged.limit}"
                raise Permanent(message, code="insufficient_quota", status=429)
            yield
        finally:
            await self._finished(reserving, dict(zip(own, (-amount for amount in amounts), strict=True)))

    async def _finished(self, reserving: asyncio.Task[Any], given_back: Mapping[str, float]) -> None:
        """What was used is counted before what was reserved is free again. Goes on where its caller is cancelled, also
        one that was cancelled while the store reserved."""

        async def settle() -> None:
            if (await until_done(reserving)).exception() is not None:
                return  # nothing is reserved
            try:
                await self._ledger.flush()
                await self._journal.add_to_counters(given_back)
            except JournalError as exc:
                log.log(warning_level(exc), "what a call had reserved counts until it expires: %s", exc)

        await asyncio.shield(asyncio.get_running_loop().create_task(settle()))

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
    """Rounded up: a client that comes back then is served."""
    if seconds < 120:
        return f"{seconds} s"
    return f"{-(-seconds // 60)} min" if seconds < 7200 else f"{-(-seconds // 3600)} h"
