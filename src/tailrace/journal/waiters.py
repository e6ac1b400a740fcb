"""Tasks that wait for a change in this process, and how they are woken: all at once, or by value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Waiters:
    """Tasks that wait for the next `wake`. Costs nothing while no task waits."""

    __slots__ = ("__weakref__", "begin", "event")

    def __init__(self) -> None:
        self.event: asyncio.Event | None = None  # set at the next `wake`; None while no task has asked for it
        self.begin: Callable[[], None] | None = None  # called at the next `wake`, once

    def next_time(self) -> asyncio.Event:
        """Set at the next `wake`. Get the event before reading the state: then no change in between is missed."""
        if self.event is None:
            self.event = asyncio.Event()
        return self.event

    def wake(self) -> None:
        if self.begin is not None:
            begin, self.begin = self.begin, None
            begin()
        if self.event is not None:
            self.event.set()
            self.event = None


class ValueWaiters(Waiters):
    """Tasks that wait for a value to change. `changed` wakes those of one value, `wake` and `wake_soon` all of them:
    `wake_soon` at most once in so many seconds, at once after a pause, else when the time has passed."""

    __slots__ = ("_by_value", "_interval_s", "_not_before", "_timer")

    def __init__(self, interval_s: float) -> None:
        super().__init__()
        self._by_value: dict[tuple[str, str], asyncio.Event] = {}
        self._interval_s = interval_s
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def wake_soon(self) -> None:
        if self.event is None or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._not_before:
            self._fire(loop.time())
        else:
            self._timer = loop.call_at(self._not_before, self._fire, self._not_before)

    def _fire(self, at: float) -> None:
        self._timer = None
        self._not_before = at + self._interval_s
        self.wake()

    def next_change(self, namespace: str, key: str) -> asyncio.Event:
        """As `next_time`, of this value."""
        self.next_time()
        return self._by_value.setdefault((namespace, key), asyncio.Event())

    def changed(self, namespace: str, key: str) -> None:
        if (event := self._by_value.pop((namespace, key), None)) is not None:
            event.set()

    def wake(self) -> None:
        super().wake()
        waiting, self._by_value = self._by_value, {}
        for event in waiting.values():
            event.set()
