"""How each provider has answered this process lately: a sliding window of attempts."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tailrace.errors import Retryable
from tailrace.messages import Value
from tailrace.providers.call_listener import AttemptOutcome

WINDOW_S: Final = 900.0
MAX_ATTEMPTS: Final = 200  # of one provider that are remembered
MAX_PROBLEM: Final = 300  # characters


class RecentCalls(Value):
    """Attempts at one provider within the last `WINDOW_S`. `problem` is the newest failure; the provider `is_failing`
    until an answer follows. `wait_until` is when it said that it may be asked again. Times are the wall clock, in
    seconds."""

    calls: int = 0
    failed: int = 0
    first_tokens_s: tuple[float, ...] = ()
    is_failing: bool = False
    problem: str = ""
    problem_at: float = 0.0
    wait_until: float = 0.0

    @property
    def first_token_s(self) -> float | None:
        """The median; None where nothing was streamed."""
        return round(statistics.median(self.first_tokens_s), 3) if self.first_tokens_s else None


class _Attempt(Value, gc=False):
    at: float
    first_token_s: float | None
    problem: str  # empty for an answer
    wait_until: float


class RecentCallsLog:
    """`note` is an observer of `Caller`."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._attempts: dict[str, deque[_Attempt]] = {}

    def note(self, ended: AttemptOutcome) -> None:
        """An attempt that was interrupted says nothing of its provider."""
        if ended.interrupted:
            return
        now, problem, wait_until = self._clock(), "", 0.0
        if (error := ended.error) is not None:
            status = f"{error.status}: " if error.status else ""
            problem = f"{status}{error}"[:MAX_PROBLEM] or error.kind
            asked_s = error.retry_after_s if isinstance(error, Retryable) else None
            wait_until = now + asked_s if asked_s else 0.0
        attempts = self._attempts.setdefault(ended.provider, deque(maxlen=MAX_ATTEMPTS))
        attempts.append(_Attempt(now, ended.first_token_s, problem, wait_until))

    def summaries(self) -> dict[str, RecentCalls]:
        """By the provider's name."""
        since = self._clock() - WINDOW_S
        return {name: _summary([one for one in found if one.at >= since]) for name, found in self._attempts.items()}


def _summary(attempts: Sequence[_Attempt]) -> RecentCalls:
    failures = [one for one in attempts if one.problem]
    newest = failures[-1] if failures else None
    is_failing = newest is not None and newest is attempts[-1]
    return RecentCalls(
        calls=len(attempts),
        failed=len(failures),
        first_tokens_s=tuple(round(one.first_token_s, 3) for one in attempts if one.first_token_s is not None),
        is_failing=is_failing,
        problem=newest.problem if newest else "",
        problem_at=newest.at if newest else 0.0,
        wait_until=max(one.wait_until for one in failures) if is_failing else 0.0,
    )


def together(parts: Iterable[RecentCalls]) -> RecentCalls:
    """What several processes have seen of one provider, as one."""
    all_parts = tuple(parts)
    newest = max(all_parts, key=lambda part: part.problem_at, default=RecentCalls())
    return RecentCalls(
        calls=sum(part.calls for part in all_parts),
        failed=sum(part.failed for part in all_parts),
        first_tokens_s=tuple(seconds for part in all_parts for seconds in part.first_tokens_s),
        is_failing=any(part.is_failing for part in all_parts),
        problem=newest.problem,
        problem_at=newest.problem_at,
        wait_until=max((part.wait_until for part in all_parts), default=0.0),
    )
