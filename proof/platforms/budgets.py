"""The request budgets of a platform, as its fake holds them."""

from __future__ import annotations

from collections import defaultdict

import msgspec


class Budget(msgspec.Struct, frozen=True):
    """At most `count` requests in any `seconds`. A twentieth less is forgiven: no clock is exact."""

    count: int
    seconds: float


class Meter:
    """Counts requests against budgets."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = defaultdict(list)

    def wait_s(self, who: str, budget: Budget, now: float) -> float:
        """0 where there is room, which is then taken; else how long until there is."""
        window_s = budget.seconds * 0.95
        times = self._times[who] = [at for at in self._times[who] if now - at < window_s]
        if len(times) < budget.count:
            times.append(now)
            return 0.0
        return times[0] + window_s - now
