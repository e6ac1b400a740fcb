"""One lock per place, for as long as a task holds it or waits for it."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from tailrace.delivery.port import Place


class PlaceLocks:
    """Tasks get the lock of a place in the order in which they asked for it. A lock that is released while others wait
    stays the place's lock: the tasks that wait keep it alive, and nothing else does."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._locks)

    def of(self, place: Place) -> asyncio.Lock:
        if (lock := self._locks.get(place.key)) is None:
            lock = self._locks[place.key] = asyncio.Lock()
        return lock
