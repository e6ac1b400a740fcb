"""A run in memory: its log and what viewers may see of it, until it is stored whole or the process ends.

Never awaits and knows no storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.events import AnyEvent, Entry
from tailrace.journal.fold import Fold, fold, is_fact, is_progress
from tailrace.journal.live_tail import PAGE_LINES, Tail
from tailrace.journal.open_log import OpenLog
from tailrace.journal.stored.commit_times import TickTimes
from tailrace.journal.waiters import Waiters
from tailrace.ports import ENDED, Batch, NewRun, Run, RunFilter, Signal

NO_CLAIMS: Final[frozenset[int]] = frozenset()  # one for all: an empty frozenset is 216 bytes


class MemoryRun:
    """One run and its whole log. Most runs are not observed before they end: the tail is made for the first viewer, and
    the run's `last_seq` is counted when it is read."""

    __slots__ = (
        *("_run", "_tail", "claimed_seq", "compacted", "ended_at", "lease_until", "log", "is_observed", "shown"),
        *("signalled", "signals", "suspected", "times"),
    )

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tail: Tail | None = None
        self.is_observed = False  # a viewer or a reader has asked for its entries
        self.log = OpenLog(run.id, run.claims, Fold())
        self.shown: list[Entry] = []  # what viewers may see; since the last compaction
        self.times = TickTimes()
        self.lease_until = 0.0
        self.claimed_seq = 1  # the last entry before the newest claim
        self.suspected = NO_CLAIMS  # those whose owners count as dead: `kills` is how many
        self.ended_at = 0.0
        self.signals: list[Signal] = []
        self.signalled = Waiters()
        self.compacted: tuple[Entry, list[Entry]] | None = None  # the snapshot and the facts before `first_seq`

    @property
    def new(self) -> NewRun:
        return self._run.new

    @property
    def run(self) -> Run:
        return self._run if self._run.last_seq == self.shown[-1].seq else self.set()

    @property
    def has_ended(self) -> bool:
        return self._run.state in ENDED

    def set(self, **changes: object) -> Run:
        self._run = self.changed(**changes)
        return self._run

    def changed(self, **changes: object) -> Run:
        return msgspec.structs.replace(self._run, **{"last_seq": self.shown[-1].seq, **changes})

    def append_shown(self, events: Sequence[AnyEvent], attempt: int, at: float) -> int:
        """Shows the entries at once, where the run is not observed: no viewer can see the difference."""
        first_seq = self.log.seq + 1
        seq = self.log.append(events, attempt, self.shown)
        if seq >= first_seq:
            self.times.add(first_seq, at)
        return seq

    def show(self, at: float) -> None:
        """What is pending can be seen from now on."""
        if entries := self.log.take_entries():
            self.times.add(entries[0].seq, at)
            self.shown += entries
            if self._tail is not None:
                self._tail.publish(Batch(entries))

    @property
    def tail(self) -> Tail:
        if self._tail is None:
            self._tail, self.is_observed = Tail(window=None), True
            for start in range(0, len(self.shown), PAGE_LINES):
                self._tail.publish(Batch(self.shown[start : start + PAGE_LINES]))
        return self._tail

    def compact(self) -> None:
        """Keeps the state before the last entry, and the facts."""
        *before, last = self.shown
        self.compacted = (fold(before).entry(), [entry for entry in before if is_fact(entry.event)])
        self.shown = [last]
        if self._tail is not None:
            self._tail.replace_all(Batch(self.shown))
        self.set(first_seq=last.seq)

    def has_progress(self) -> bool:
        """Since the newest claim."""
        return any(entry.seq > self.claimed_seq and is_progress(entry.event) for entry in self.shown)

    def matches(self, wanted: RunFilter) -> bool:
        run = self.run
        return (
            wanted.get("session") in (None, run.new.session)
            and wanted.get("kind") in (None, run.new.kind)
            and ((states := wanted.get("states")) is None or run.state in states)
            and ((ended := wanted.get("ended_before")) is None or (run.state in ENDED and self.ended_at < ended))
            and wanted.get("compacted") in (None, self.compacted is not None)
            and ((before := wanted.get("before")) is None or run.id < before)
        )
