"""The wall clock of the conformance suites."""

from __future__ import annotations


class WallClock:
    """A wall clock that stands still until it is moved."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
