"""Deadlines of many things with one timer of the loop.

A timer of the loop's own is half a kilobyte and some microseconds for every stream and every connection, and hardly any
of them is ever due. Here each thing is a member of the set of its tick; the wheel looks at a set when its tick comes.
A deadline is never early, and late by a tick at most. One thing's failure is reported and delays no other.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

NOT_TIMED: Final = -1


class Timed(Protocol):
    """Something with a deadline. `tick` is the wheel's: in which set it is."""

    tick: int

    def on_deadline(self, now: float) -> float | None:
        """The deadline has come: what was to be done then, and the next deadline or None."""


class TimerWheel:
    """The deadlines of one kind of thing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, tick_s: float) -> None:
        self._loop = loop
        self._tick_s = tick_s
        self._ticks: dict[int, set[Timed]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0

    def add(self, timed: Timed, due: float) -> None:
        """For what is not in the wheel."""
        tick = timed.tick = int(due / self._tick_s) + 1
        members = self._ticks.get(tick)
        if members is not None:
            members.add(timed)
            return
        self._ticks[tick] = {timed}
        if self._timer is None or tick < self._timer_tick:
            self._set_timer(tick)

    def discard(self, timed: Timed) -> None:
        """A no-op for what is not in the wheel."""
        if (members := self._ticks.get(timed.tick)) is not None:
            members.discard(timed)
        timed.tick = NOT_TIMED

    def close(self) -> None:
        """Nothing is called any more."""
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_tick = tick
        self._timer = self._loop.call_at(tick * self._tick_s, self._on_tick)

    def _on_tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        for tick in sorted(tick for tick in self._ticks if tick * self._tick_s <= now):
            for timed in self._ticks.pop(tick):
                if timed.tick != tick:
                    continue  # another member's callback has ended it
                timed.tick = NOT_TIMED
                try:
                    due = timed.on_deadline(now)
                except Exception as exc:  # noqa: BLE001 - as the loop does with a timer of its own
                    self._loop.call_exception_handler({"message": "a deadline's callback has failed", "exception": exc})
                    continue
                if due is not None:
                    self.add(timed, due)
        if self._ticks and ((first := min(self._ticks)) < self._timer_tick or self._timer is None):
            self._set_timer(first)
