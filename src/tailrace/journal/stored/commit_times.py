"""When entries were committed: pairs of the first entry and the wall clock's time, in the order of the log.

The time of an entry is that of the last pair whose first entry is not after it. Pure: no clock is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from tailrace.events import Entry

Times: TypeAlias = Sequence[tuple[int, float]]
PAUSE_S = 0.1  # entries after a pause this long have a time of their own
STEP_S = 0.5  # and entries of a steady stream once in so long


class TickTimes:
    """The times of a run whose commits are not stored one by one. A steady stream has few of them, and what comes after
    a pause has its own: the first token, the end of a tool, what follows a stall."""

    __slots__ = ("_last_at", "pairs")

    def __init__(self, first_seq: int, at: float) -> None:
        self.pairs = [(first_seq, at)]
        self._last_at = at

    def add(self, first_seq: int, at: float) -> None:
        """`at` is the time of the entries from `first_seq` on."""
        since, self._last_at = at - self._last_at, at
        # Backwards is a pause too: clocks are set.
        if not -PAUSE_S < since < PAUSE_S or at - self.pairs[-1][1] >= STEP_S:
            self.pairs.append((first_seq, at))

    def with_end(self, seq: int, at: float) -> list[tuple[int, float]]:
        """The pairs of the whole run, whose last entry is this one. The pairs of this object stay as they are: viewers
        see the end later."""
        whole = TickTimes(0, self._last_at)
        whole.pairs = [*self.pairs]
        whole.add(seq, at)
        return whole.pairs


def timed_stretches(entries: Iterable[Entry], times: Times) -> Iterator[tuple[float | None, list[Entry]]]:
    """Groups of consecutive entries of the same time, and that time; None for entries before the first pair."""
    stretch: list[Entry] = []
    at: float | None = None
    place, count = 0, len(times)
    for entry in entries:
        now = at
        while place < count and times[place][0] <= entry.seq:
            now = times[place][1]
            place += 1
        if stretch and (now != at or entry.seq != stretch[-1].seq + 1):
            yield at, stretch
            stretch = []
        at = now
        stretch.append(entry)
    if stretch:
        yield at, stretch
