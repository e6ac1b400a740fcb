"""The writing end of one claimed run: numbers, folds and holds entries until they are committed.

Owns the checks that every journal makes before it writes. Never awaits and knows no storage.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tailrace.errors import JournalError, OutputMismatch, RunSealed
from tailrace.events import AnyEvent, Entry, RunFinished, Snapshot
from tailrace.journal.fold import Fold, output_and_spent
from tailrace.system.random_hex import random_hex


def new_run_id(at: float, *, after: str = "") -> str:
    """Sorts by the time of creation: microseconds, then chance. It sorts after the run `after`, whatever the clock
    says: clocks are set back, and those of two machines differ."""
    microseconds = int(at * 1_000_000)
    if after:
        microseconds = max(microseconds, int(after[_TIME_OF_ID], 16) + 1)
    return f"run_{microseconds:014x}{random_hex(10)}"


MAX_UNFOLDED = 64  # entries that are folded together
_NOT_APPENDED = frozenset({RunFinished, Snapshot})  # by class: a miss of `isinstance` costs a struct much more
_TIME_OF_ID = slice(len("run_"), len("run_") + 14)


class OpenLog:
    """The log of one run under one epoch. An event that is refused gets no seq."""

    __slots__ = ("_fold", "_unfolded", "epoch", "pending", "queued", "refusal", "run_id", "seq")

    def __init__(self, run_id: str, epoch: int, fold: Fold | None = None) -> None:
        """`fold` has what was written before; None for a run that begins."""
        self.run_id = run_id
        self.epoch = epoch
        self._fold = fold
        self._unfolded: list[Entry] = []  # those that `_fold` lacks: a token is not folded by itself
        self.seq = fold.seq if fold is not None else 0
        self.queued = False  # the next group commit takes what is pending
        self.refusal: JournalError | None = None  # why nothing more can be appended
        self.pending: list[Entry] = []  # of the next commit

    def append(self, events: Sequence[AnyEvent], attempt: int, into: list[Entry] | None = None) -> int:
        """`into`: where the entries go instead of those that are pending."""
        if self.refusal is not None:
            raise self.refusal
        seq = self.seq
        unfolded, kept = self._unfolded, self.pending if into is None else into
        for event in events:
            if event.__class__ in _NOT_APPENDED:
                raise JournalError(f"run {self.run_id}: {type(event).__name__} is for `seal` and viewers alone")
            seq += 1
            entry = Entry(seq, event, attempt)
            unfolded.append(entry)
            kept.append(entry)
            self.seq = seq
        if len(unfolded) >= MAX_UNFOLDED:
            self._fold_all()
        return seq

    @property
    def fold(self) -> Fold:
        """Includes entries that are pending or in flight, which viewers do not see yet; not the end."""
        return self._fold_all() if self._unfolded or self._fold is None else self._fold

    def _fold_all(self) -> Fold:
        if self._fold is None:
            self._fold = Fold()  # nobody asks for that of most short runs
        self._fold.apply_all(self._unfolded)
        self._unfolded.clear()
        return self._fold

    def finish(self, finished: RunFinished) -> Entry:
        """The last entry, with what was spent. Raises `OutputMismatch` where `finished.output` is not what the entries
        say."""
        if self.refusal is not None:
            raise self.refusal
        plain = output_and_spent(self._unfolded) if self._fold is None and self._unfolded else None
        if plain is not None:
            (output, spent), attempt = plain, self._unfolded[-1].attempt
        else:
            fold = self.fold
            output, spent, attempt = fold.output, fold.spent, fold.attempt
        if output != finished.output:
            at = _first_difference(finished.output, output)
            raise OutputMismatch(
                f"run {self.run_id} cannot be sealed: its output ({len(finished.output)} characters) is not what its "
                f"log shows ({len(output)} characters); they differ from character {at} on"
            )
        if spent:
            finished = msgspec.structs.replace(finished, spent=spent)
        entry = Entry(self.seq + 1, finished, attempt)
        self.seq = entry.seq
        self.pending.append(entry)
        self.refusal = RunSealed(f"run {self.run_id} has ended")
        return entry

    def take_entries(self) -> list[Entry]:
        """The pending entries, which are no longer pending here."""
        entries, self.pending = self.pending, []
        self.queued = False
        return entries


def _first_difference(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
