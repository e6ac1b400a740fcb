"""How often a chat may be written to: the platform's rate limits, its floods, and the interval that adapts to them.

Pure: every method takes the time as a parameter. One per chat, shared by all its deliveries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tailrace.delivery.port import Window

SLOWEST = 16.0  # times the platform's own interval
RECOVERY = 0.1  # of the platform's own interval, subtracted after each successful update


def final_reserve(window: Window) -> int:
    """Requests of a window that are reserved for final texts: they never wait for partial updates (G81)."""
    return max(1, window.count // 5) if window.count > 1 else 0


class Pace:
    """A request counts from its start until its reply, so that at most `count` lie within any window, whenever the
    platform counted them."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self._windows = tuple(windows)
        self._made: deque[float] = deque(maxlen=max((window.count for window in windows), default=1))
        self._blocked_until = float("-inf")
        self._factor = 1.0

    def free_at(self, now: float, *, final: bool) -> float:
        """The earliest time for the next request; `now` if it is allowed at once."""
        at = max(now, self._blocked_until)
        for window in self._windows:
            count = window.count if final else window.count - final_reserve(window)
            if len(self._made) >= count:
                at = max(at, self._made[-count] + window.seconds)
        return at

    def begin(self, now: float) -> None:
        """A request starts."""
        self._made.append(now)

    def end(self, now: float, *, pause_s: float = 0.0) -> None:
        """The request has its reply. `pause_s`: how long the platform wants the next one to wait."""
        if self._made:
            self._made[-1] = max(now, self._made[-1])
        self._blocked_until = max(self._blocked_until, now + pause_s)

    def flooded(self, now: float, retry_after_s: float) -> None:
        """The platform refused a request for its rate (G78): none before `retry_after_s`, then at a longer interval."""
        self._blocked_until = max(self._blocked_until, now + max(0.0, retry_after_s))
        self._factor = min(SLOWEST, self._factor * 2)

    def eased(self) -> None:
        """A partial update succeeded: the interval shrinks."""
        self._factor = max(1.0, self._factor - RECOVERY)

    def interval(self, own_s: float) -> float:
        """The time between two updates of a growing text; `own_s` is the configured one."""
        return own_s * self._factor
