"""The newest ids of updates, for finding repetitions (G88)."""

from __future__ import annotations

from collections import OrderedDict


class RecentIds:
    """Bounded: the oldest are dropped first."""

    def __init__(self, limit: int = 4096) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._limit = limit

    def add(self, key: str) -> bool:
        """Whether the id is new."""
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)
        return True

    def forget(self, key: str) -> None:
        self._seen.pop(key, None)
