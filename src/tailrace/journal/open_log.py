"""The writing end of one claimed run: numbers, folds and holds entries until they are committed. Beside it a whole run
in memory, which is such a log and what viewers may see of it.

Owns the checks that every journal makes before it writes. Never awaits and knows no storage.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tailrace.errors import JournalError, OutputMismatch, RunSealed
from tailrace.events import AnyEvent, Entry, RunFinished, Snapshot
from tailrace.journal.fold import Fold, fold, is_fact, is_progress
from tailrace.journal.live_tail import PAGE_LINES, Tail, Waiters
from tailrace.journal.stored.commit_times import TickTimes
from tailrace.ports import ENDED, Batch, Run, RunFilter, Signal
from tailrace.system.random_hex import random_hex


def new_run_id(at: float, *, after: str = "") -> str:
    """Sorts by the time of creation: microseconds, then chance. It sorts after the run `after`, whatever the clock
    says: clocks are set back, and those of two machines differ."""
    microseconds = int(at * 1_000_000)
    if after:
        microseconds = max(microseconds, int(after[_TIME_OF_ID], 16) + 1)
    return f"run_{microseconds:014x}{random_hex(10)}"


_NOT_APPENDED = frozenset({RunFinished, Snapshot})  # by class: a miss of `isinstance` costs a struct much more
_TIME_OF_ID = slice(len("run_"), len("run_") + 14)


class OpenLog:
    """The log of one run under one epoch. An event that is refused gets no seq."""

    __slots__ = ("_pending", "epoch", "fold", "queued", "refusal", "run_id", "seq")

    def __init__(self, run_id: str, epoch: int, fold: Fold) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self.fold = fold  # includes entries that are pending or in flight, which viewers do not see yet; not the end
        self.seq = fold.seq
        self.queued = False  # the next group commit takes what is pending
        self.refusal: JournalError | None = None  # why nothing more can be appended
        self._pending: list[Entry] = []

    def append(self, events: Sequence[AnyEvent], attempt: int) -> int:
        if self.refusal is not None:
            raise self.refusal
        seq = self.seq
        apply, keep = self.fold.apply, self._pending.append
        for event in events:
            if event.__class__ in _NOT_APPENDED:
                raise JournalError(f"run {self.run_id}: {type(event).__name__} is for `seal` and viewers alone")
            seq += 1
            entry = Entry(seq, event, attempt)
            apply(entry)
            keep(entry)
            self.seq = seq
        return seq

    def finish(self, finished: RunFinished) -> Entry:
        """The last entry, with what was spent. Raises `OutputMismatch` where `finished.output` is not what the entries
        say."""
        if self.refusal is not None:
            raise self.refusal
        output = self.fold.output
        if output != finished.output:
            at = _first_difference(finished.output, output)
            raise OutputMismatch(
                f"run {self.run_id} cannot be sealed: its output ({len(finished.output)} characters) is not what its "
                f"log shows ({len(output)} characters); they differ from character {at} on"
            )
        if spent := self.fold.spent:
            finished = msgspec.structs.replace(finished, spent=spent)
        entry = Entry(self.seq + 1, finished, self.fold.attempt)
        self.seq = entry.seq
        self._pending.append(entry)
        self.refusal = RunSealed(f"run {self.run_id} has ended")
        return entry

    def take_pending(self) -> Batch:
        """Hands the pending entries to a commit: they are no longer pending here."""
        batch = Batch(self._pending)
        self._pending.clear()
        self.queued = False
        return batch

    def take_entries(self) -> list[Entry]:
        """The same as a plain list."""
        entries, self._pending = self._pending, []
        self.queued = False
        return entries


class MemoryRun:
    """One run and its whole log. Nobody looks at most runs before they end: the tail is made for the first who does,
    and the run's `last_seq` is counted when it is asked for."""

    __slots__ = (
        *("_run", "_tail", "claimed_seq", "compacted", "ended_at", "lease_until", "log", "shown", "signalled"),
        *("signals", "suspected", "times"),
    )

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tail: Tail | None = None
        self.log = OpenLog(run.id, run.claims, Fold())
        self.shown: list[Entry] = []  # what viewers may see; since the last compaction
        self.times = TickTimes()
        self.lease_until = 0.0
        self.claimed_seq = 1  # the last entry before the newest claim
        self.suspected: set[int] = set()  # the claims whose owners count as dead: `kills` is how many
        self.ended_at = 0.0
        self.signals: list[Signal] = []
        self.signalled = Waiters()
        self.compacted: tuple[Entry, list[Entry]] | None = None  # the snapshot and the facts before `first_seq`

    @property
    def run(self) -> Run:
        return self._run if self._run.last_seq == self.shown[-1].seq else self.set()

    def set(self, **changes: object) -> Run:
        self._run = self.changed(**changes)
        return self._run

    def changed(self, **changes: object) -> Run:
        return msgspec.structs.replace(self._run, last_seq=self.shown[-1].seq, **changes)

    def show(self, at: float) -> None:
        """What is pending can be seen from now on."""
        if entries := self.log.take_entries():
            self.times.add(entries[0].seq, at)
            self.shown += entries
            if self._tail is not None:
                self._tail.publish(Batch(entries))

    @property
    def looked_at(self) -> bool:
        """Somebody has asked for its entries."""
        return self._tail is not None

    @property
    def awaited(self) -> bool:
        """Somebody waits for its next entries."""
        return self._tail is not None and self._tail.awaited

    @property
    def tail(self) -> Tail:
        if self._tail is None:
            self._tail = Tail(window=None)
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


def _first_difference(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
