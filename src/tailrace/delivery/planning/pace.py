"""How often a chat may be written to: the platform's budget, its floods, and the interval that adapts to them.

Pure: every method takes the time. One per chat, shared by everything that is said there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tailrace.delivery.port import Window

SLOWEST = 16.0  # times the platform's own interval
RECOVERY = 0.1  # of the platform's own interval, less to wait after each update that went through


def final_reserve(window: Window) -> int:
    """Requests of a window that only a final text may use: it never waits for the updates before it (G81)."""
    return max(1, window.count // 5) if window.count > 1 else 0


class Pace:
    """A request counts from when it was made until it was answered: whenever the platform took it in, at most `count`
    of them lie within any window."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self._windows = tuple(windows)
        self._made: deque[float] = deque(maxlen=max((window.count for window in windows), default=1))
        self._blocked_until = float("-inf")
        self._factor = 1.0

    def free_at(self, now: float, *, final: bool) -> float:
        """The earliest time for the next request, `now` where that is at once."""
        at = max(now, self._blocked_until)
        for window in self._windows:
            count = window.count if final else window.count - final_reserve(window)
            if len(self._made) >= count:
                at = max(at, self._made[-count] + window.seconds)
        return at

    def begin(self, now: float) -> None:
        """A request is being made."""
        self._made.append(now)

    def end(self, now: float, *, pause_s: float = 0.0) -> None:
        """It was answered. `pause_s` is what the platform says of the next one."""
        if self._made:
            self._made[-1] = max(now, self._made[-1])
        self._blocked_until = max(self._blocked_until, now + pause_s)

    def flooded(self, now: float, retry_after_s: float) -> None:
        """The platform has had enough (G78): nothing before it says so, and from then on less often."""
        self._blocked_until = max(self._blocked_until, now + max(0.0, retry_after_s))
        self._factor = min(SLOWEST, self._factor * 2)

    def eased(self) -> None:
        """An update went through."""
        self._factor = max(1.0, self._factor - RECOVERY)

    def interval(self, own_s: float) -> float:
        """The time between two updates of a growing text, where `own_s` is what it should be."""
        return own_s * self._factor
