"""What the parts of a timeline's fold share: the items so far, and the time of the entry that is being read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tailrace.app.timeline.items import AnyItem


class Board:
    """The items in the order in which they began. An item is named by its place."""

    def __init__(self, started_at: float, times: Sequence[tuple[int, float]]) -> None:
        self.items: list[AnyItem] = []
        self.times = tuple((seq, round(max(0.0, at - started_at), 3)) for seq, at in times)
        self.started_at = started_at
        self.seq = 0
        self.now: float | None = None
        self._next = 0  # the first of `times` that is later than the entry

    def read(self, seq: int) -> None:
        """The entries are read in order, so that finding their times takes linear time in all."""
        self.seq = seq
        while self._next < len(self.times) and self.times[self._next][0] <= seq:
            at = self.times[self._next][1]
            self.now = at if self.now is None else max(self.now, at)  # a clock that was set back stands still
            self._next += 1

    def since_start(self, at: float) -> float | None:
        """A wall clock's time that an event has itself; None where it has none."""
        return round(max(0.0, at - self.started_at), 3) if at and self.started_at else None

    def add(self, item: AnyItem) -> int:
        self.items.append(item)
        return len(self.items) - 1

    def add_now(self, kind: type[AnyItem], *, ends: bool = True, **fields: Any) -> int:
        """An item that begins with the entry that is being read, and ends with it where `ends`."""
        return self.add(
            kind(seq=self.seq, end_seq=self.seq, **{"start": self.now, "end": self.now if ends else None, **fields})
        )

    def change(self, place: int, **fields: object) -> None:
        self.items[place] = msgspec.structs.replace(self.items[place], **fields)

    def end(self, place: int, **fields: object) -> None:
        """The item ends with the entry that is being read."""
        self.change(place, end=self.now, end_seq=self.seq, **fields)
