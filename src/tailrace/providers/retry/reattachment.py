"""When a broken stream is read on from the provider that keeps its answer, and when that is given up.

A fold: it is told each failure and decides. What came between two failures is told as progress.
"""

from __future__ import annotations

import random

from tailrace.config.sections import CallPolicy
from tailrace.errors import Permanent, ProviderError, Retryable, TimedOut
from tailrace.providers.retry.backoff import delay_s

MAX_REATTACHMENTS = 100  # of one answer, however much each of them brings
_RNG = random.Random()  # noqa: S311 - spreads retries, guards nothing


class Reattachment:
    """The connections of one attempt. At most `max_attempts` in a row bring nothing; the first one after progress is
    made at once. While the provider has the answer in its queue, only the total deadline ends the waiting."""

    def __init__(self, policy: CallPolicy, rng: random.Random = _RNG) -> None:
        self._policy = policy
        self._rng = rng
        self._made = 0
        self._in_vain = 0

    def progressed(self) -> None:
        """The connection brought a piece of the answer."""
        self._in_vain = 0

    def wait_s(self, error: ProviderError, *, queued: bool = False) -> float | None:
        """The seconds to wait before the next connection; None where the answer is given up."""
        is_over = isinstance(error, Permanent) or (isinstance(error, TimedOut) and error.deadline == "total")
        too_many = self._made >= MAX_REATTACHMENTS or self._in_vain >= self._policy.max_attempts
        if is_over or (too_many and not queued):
            return None
        asked_s = error.retry_after_s if isinstance(error, Retryable) else None
        wait_s = 0.0
        if self._in_vain or asked_s is not None:
            wait_s = delay_s(self._policy, failures=max(1, self._in_vain), asked_s=asked_s, rng=self._rng)
        self._made += 1
        self._in_vain += 1
        return wait_s
