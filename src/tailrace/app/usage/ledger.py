"""Counts what model calls use: at once in memory, once a second in the store.

Costs a call nothing but an entry in a dictionary. What a process that is killed has not written yet, at most a second
of it, is not counted; runs themselves have their usage in their logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final

from tailrace.app.costs import Costs
from tailrace.app.usage.counters import DETAILS, UsageRow, amounts_of, day_of, mean_call, priced, rows_of
from tailrace.errors import JournalError
from tailrace.messages import ModelRequest, SpentTokens, Usage
from tailrace.ports import Journal
from tailrace.providers.attempt import Route
from tailrace.providers.call_listener import AttemptOutcome, CallListener, ForwardingListener
from tailrace.runs.charged_to import CHARGED_TO

log = logging.getLogger("tailrace.app")
FLUSH_EVERY_S: Final = 1.0
_NOTHING_USED: Final = Usage()
OnSpent = Callable[[str, SpentTokens], None]


class UsageLedger:
    """`on_spent` is told of each call: the key and the tokens."""

    def __init__(self, journal: Journal, costs: Costs, *, clock: Callable[[], float] = time.time) -> None:
        self._journal, self._costs, self._clock = journal, costs, clock
        self._spent: list[tuple[str, SpentTokens, float]] = []
        self._unwritten: dict[str, float] = {}  # what the store has refused so far
        self._flushing = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._closing = False
        self.limited: Collection[str] = ()  # keys with a budget: theirs is written at once
        self.priced: Collection[str] = ()  # keys whose money is limited: theirs is priced at once
        self.on_spent: OnSpent | None = None

    def middleware(self, _request: ModelRequest, _routes: Sequence[Route], listener: CallListener) -> CallListener:
        """For `Caller(middleware=…)`."""
        return _Meter(self, CHARGED_TO.get(), listener)

    def add(self, key: str, spent: SpentTokens) -> None:
        self._spent.append((key, spent, self._clock()))
        if key in self.limited:
            self._wanted.set()

    async def flush(self) -> None:
        """Writes what was counted. Raises `JournalError`, and loses nothing by it; nor by being cancelled."""
        await asyncio.shield(asyncio.get_running_loop().create_task(self._write()))

    async def _write(self) -> None:
        async with self._flushing:
            spent, self._spent = self._spent, []
            for key, each, at in spent:
                beside, usd = self._costs.counts_cached_beside(each.provider), await self._price(key, each)
                for name, amount in amounts_of(key, each, at, usd, cached_beside=beside).items():
                    self._unwritten[name] = self._unwritten.get(name, 0.0) + amount
                if self.on_spent is not None:
                    self.on_spent(key, each)
            if self._unwritten:
                await self._journal.add_to_counters(self._unwritten)
                self._unwritten = {}

    async def rows(self, since: str = "", key: str | None = None) -> list[UsageRow]:
        """What all processes have counted from this day on, of one key or of all."""
        await self.flush()
        rows = await asyncio.to_thread(rows_of, await self._journal.counters(DETAILS))
        wanted = [row for row in rows if row.day >= since and key in (None, row.key)]
        await self._costs.load(map(mean_call, wanted))
        return priced(wanted, self._costs.price)

    async def _price(self, key: str, spent: SpentTokens) -> float | None:
        if key not in self.priced:
            return None
        await self._costs.load([spent])
        return self._costs.price(spent)

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
            self._wanted.set()
            await task
            await self._try_flush()

    async def _keep_writing(self) -> None:
        while not self._closing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_EVERY_S):
                    await self._wanted.wait()
            self._wanted.clear()
            await self._try_flush()

    async def _try_flush(self) -> None:
        try:
            await self.flush()
        except JournalError as exc:
            log.debug("usage could not be written, and will be tried again: %s", exc)
        except Exception:  # counting must go on
            log.exception("usage could not be counted")


class _Meter(ForwardingListener):
    __slots__ = ("_key", "_ledger", "deltas")

    def __init__(self, ledger: UsageLedger, key: str, inner: CallListener) -> None:
        self._inner, self._ledger, self._key = inner, ledger, key
        self.deltas = inner.deltas  # type: ignore[method-assign]  # costs a token nothing

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        if attempt.usage != _NOTHING_USED:
            self._ledger.add(self._key, SpentTokens(attempt.provider, attempt.model, attempt.usage))
        self._inner.attempt_ended(attempt)
