"""Counts what model calls use: at once in memory, within a second in the store.

Costs a call nothing but an entry in a dictionary. What a process that is killed has not written yet, at most a second
of it, is not counted; runs themselves have their usage in their logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from tailrace.app.costs import Costs
from tailrace.app.usage.counters import (
    DAY_S,
    UsageRow,
    amounts_of,
    day_of,
    details_after,
    details_of_key,
    details_since,
    mean_call,
    mean_of,
    priced,
    rows_of,
    tokens_in,
)
from tailrace.errors import JournalError
from tailrace.messages import SpentTokens, Usage
from tailrace.ports import SmallState
from tailrace.providers.call_listener import AttemptOutcome
from tailrace.runs.charged_to import CHARGED_TO

log = logging.getLogger("tailrace.app")
FLUSH_EVERY_S: Final = 1.0
_NOTHING_USED: Final = Usage()
OnSpent = Callable[[str, SpentTokens], None]
OnPriced = Callable[[str, float], None]
_Spent: TypeAlias = tuple[str, SpentTokens, float]  # the key, the tokens, and when


class UsageLedger:
    """`on_spent` is told of the tokens that a key's calls of a model have spent since it was told last; `on_priced` of
    what a key's calls have cost, a little later: prices are loaded with the first of them."""

    def __init__(self, journal: SmallState, costs: Costs, *, clock: Callable[[], float] = time.time) -> None:
        self._journal, self._costs, self._clock = journal, costs, clock
        self._spent: list[_Spent] = []
        self._unwritten: dict[str, float] = {}  # what the store has refused so far
        self._unpriceable: set[tuple[str, str]] = set()  # models of which the log says so
        self._flushing = asyncio.Lock()
        self._added = asyncio.Event()  # there is something to write
        self._urgent = asyncio.Event()  # before the second is over
        self._closing = False
        self.limited: Collection[str] = ()  # keys with a budget: theirs is written at once
        self.priced: Collection[str] = ()  # keys whose money is limited: theirs is priced at once
        self._unpriced: list[tuple[_Spent, int]] = []  # what `on_priced` was not told yet, and of how many calls it is
        self.on_spent: OnSpent | None = None
        self.on_priced: OnPriced | None = None

    def observe(self, ended: AttemptOutcome) -> None:
        """For `Caller(observers=…)`: charges the key that the task is charged to."""
        if ended.usage != _NOTHING_USED:
            self.add(CHARGED_TO.get(), SpentTokens(ended.provider, ended.model, ended.usage))

    def add(self, key: str, spent: SpentTokens) -> None:
        self._spent.append((key, spent, self._clock()))
        self._added.set()
        if key in self.limited:
            self._urgent.set()

    async def flush(self) -> None:
        """Writes what was counted. Raises `JournalError`, and loses nothing by it; nor by being cancelled."""
        await asyncio.shield(asyncio.get_running_loop().create_task(self._write()))

    async def _write(self) -> None:
        async with self._flushing:
            spent, self._spent = self._spent, []
            for one, calls in _together(spent, self.priced):
                try:
                    await self._count(one, calls)
                except Exception:  # the others are counted all the same
                    key, each, _ = one
                    log.exception("%s has used %s/%s, which could not be counted", key, each.provider, each.model)
                else:
                    self._tell(one)
                    if self.on_priced is not None:
                        self._unpriced.append((one, calls))
            if self._unwritten:
                await self._journal.add_to_counters(self._unwritten)
                self._unwritten = {}

    async def _count(self, spent: _Spent, calls: int) -> None:
        key, each, at = spent
        beside, usd = self._costs.counts_cached_beside(each.provider), await self.price(key, each)
        for name, amount in amounts_of(key, each, at, usd, cached_beside=beside, calls=calls).items():
            self._unwritten[name] = self._unwritten.get(name, 0.0) + amount

    def _tell(self, spent: _Spent) -> None:
        key, each, _ = spent
        try:
            if self.on_spent is not None:
                self.on_spent(key, each)
        except Exception:  # what it is told is counted
            log.exception("%s has used %s/%s: counted, but not in the metrics", key, each.provider, each.model)

    async def rows(self, since: str = "", key: str | None = None) -> list[UsageRow]:
        """What all processes have counted from this day on, of one key or of all."""
        await self.flush()
        rows = await asyncio.to_thread(rows_of, await self._counters(since, key))
        wanted = [row for row in rows if key in (None, row.key)]
        try:
            await self._costs.load(map(mean_call, wanted))
        except Exception:  # what was used is shown all the same
            log.exception("the prices cannot be read: usage is shown without them")
            return priced(wanted, lambda _: None)
        return priced(wanted, self._price_of_row)

    async def _counters(self, since: str, key: str | None) -> dict[str, float]:
        """Of one key hardly more than it has: there may be thousands of keys."""
        today = self.today()
        prefixes = details_of_key(key, since, today) if key is not None else None
        if prefixes is None:
            return await self._journal.counters(*details_since(since))
        found = await self._journal.counters(*max(details_since(since), details_after(today)))
        for prefix in prefixes:
            found |= await self._journal.counters(prefix)
        return found

    async def price(self, key: str, spent: SpentTokens) -> float | None:
        """None without a price, and for a key whose money is not limited."""
        if key not in self.priced:
            return None
        try:
            await self._costs.load([spent])
            return self._costs.price(spent)
        except Exception:  # its tokens are counted without a price
            if self._is_news(model := (spent.provider, spent.model)):
                log.exception("calls of %s/%s cannot be priced: usd_per_day does not count them", *model)
            return None

    def _price_of_row(self, spent: SpentTokens) -> float | None:
        try:
            return self._costs.price(spent)
        except Exception:  # the others are shown all the same
            if self._is_news(model := (spent.provider, spent.model)):
                log.exception("calls of %s/%s cannot be priced: usage shows them without a price", *model)
            return None

    def _is_news(self, model: tuple[str, str]) -> bool:
        """Whether the log has not said yet that this model cannot be priced."""
        is_news = model not in self._unpriceable
        self._unpriceable.add(model)
        return is_news

    def today(self) -> str:
        return day_of(self._clock())

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Within the block what is counted is written, the rest when it is left."""
        task = asyncio.get_running_loop().create_task(self._keep_writing())
        try:
            yield
        finally:
            self._closing = True
            self._added.set()
            self._urgent.set()
            await task
            await self._try_flush()
            await self._tell_money()
            if tokens := tokens_in(self._unwritten):
                log.warning("%d tokens were used that could not be written, and are not among the sums", tokens)

    async def _keep_writing(self) -> None:
        while not self._closing:
            await self._added.wait()  # a process that does nothing is not woken
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_EVERY_S):
                    await self._urgent.wait()
            self._added.clear()
            self._urgent.clear()
            await self._try_flush()
            await self._tell_money()
            if self._unwritten:
                self._added.set()

    async def _tell_money(self) -> None:
        unpriced, self._unpriced = self._unpriced, []
        try:
            await self._costs.load(each for (_, each, _), _ in unpriced)
            for (key, each, _), calls in unpriced:
                usd = self._costs.price(mean_of(each, calls))
                if usd and self.on_priced is not None:
                    self.on_priced(key, usd * calls)
        except Exception:  # counting must go on
            log.exception("what calls have cost is not in the metrics")

    async def _try_flush(self) -> None:
        try:
            await self.flush()
        except JournalError as exc:
            log.debug("usage could not be written, and will be tried again: %s", exc)
        except Exception:  # counting must go on
            log.exception("usage could not be counted")


def _together(spent: Iterable[_Spent], apart: Collection[str]) -> list[tuple[_Spent, int]]:
    """What the same key has spent at the same model on the same day as one, and of how many calls that is. The calls of
    the keys in `apart` stay single: a price may grow with the tokens of one call."""
    sums: dict[object, tuple[_Spent, int]] = {}
    for one in spent:
        key, each, at = one
        place = len(sums) if key in apart else (key, each.provider, each.model, at // DAY_S)
        if (before := sums.get(place)) is not None:
            (_, other, first_at), calls = before
            total = SpentTokens(each.provider, each.model, other.usage + each.usage)
            sums[place] = (key, total, first_at), calls + 1
        else:
            sums[place] = one, 1
    return list(sums.values())
