"""Which provider is asked next, and after what wait: a fold of the time and of each failure. The logger
`tailrace.providers` prints its trace at debug level."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable

import msgspec

from tailrace.config.sections import CallPolicy
from tailrace.errors import Permanent, ProviderError, Retryable
from tailrace.providers.retry.backoff import delay_s

log = logging.getLogger("tailrace.providers")
MOVES_ON = frozenset({429, 503, 529})  # "not now": another provider may answer at once


class _Leg(msgspec.Struct):
    """What is known of one route."""

    policy: CallPolicy
    failures: int = 0
    ready_at: float = float("-inf")
    is_closed: bool = False


class RouteOrder:
    """Each route has the attempts of its policy. A failure that may pass is retried at the same route. One that says
    "not now" moves on at once, and its route is retried after all others are exhausted. A permanent one closes the
    route, and so does one that asks for a longer wait than the policy allows."""

    def __init__(self, policies: Iterable[CallPolicy], rng: random.Random) -> None:
        self._legs = list(map(_Leg, policies))
        self._rng = rng
        self._at = 0
        self._stays = True
        self._outcome = "begin"  # for the trace

    def next(self, now: float) -> tuple[int, float] | None:
        """The index of the route and the seconds to wait before it, or None when all are closed."""
        chosen = self._at if self._stays and not self._legs[self._at].is_closed else self._chosen(now)
        if chosen is None:
            log.debug("%s -> no route left", self._outcome)
            return None
        self._at, self._stays = chosen, True
        ready_at = self._legs[chosen].ready_at
        wait_s = ready_at - now if ready_at > now else 0.0
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s -> route %d in %.3g s", self._outcome, chosen, wait_s)
        return chosen, wait_s

    @property
    def is_last_at_route(self) -> bool:
        """Whether the attempt that `next` named last is the last one its route has."""
        leg = self._legs[self._at]
        return leg.failures + 1 >= leg.policy.max_attempts

    @property
    def has_other_route(self) -> bool:
        """Whether another route than the one that `next` named last is open."""
        return any(not leg.is_closed for index, leg in enumerate(self._legs) if index != self._at)

    def _chosen(self, now: float) -> int | None:
        count = len(self._legs)
        order = [(self._at + step) % count for step in range(count)]
        still_open = [index for index in order if not self._legs[index].is_closed]
        if not still_open:
            return None
        return min(still_open, key=lambda index: max(self._legs[index].ready_at, now))

    def failed(self, error: ProviderError, now: float) -> None:
        """The attempt at the route that `next` named last failed so."""
        leg = self._legs[self._at]
        leg.failures += 1
        asked_s = error.retry_after_s if isinstance(error, Retryable) else None
        too_long = asked_s is not None and asked_s > leg.policy.backoff_max_s  # the caller decides what follows (K139)
        leg.is_closed = isinstance(error, Permanent) or too_long or leg.failures >= leg.policy.max_attempts
        leg.ready_at = now + delay_s(leg.policy, failures=leg.failures, asked_s=asked_s, rng=self._rng)
        if log.isEnabledFor(logging.DEBUG):
            ends = ", closed" if leg.is_closed else ""
            self._outcome = f"route {self._at}: {type(error).__name__} {error.status or ''}".rstrip() + ends
        self._stays = not leg.is_closed and error.status not in MOVES_ON
        if not self._stays:
            self._at = (self._at + 1) % len(self._legs)
