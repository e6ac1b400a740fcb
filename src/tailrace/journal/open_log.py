"""The writing end of one claimed run: numbers, folds and holds entries until they are committed.

Owns the checks that every journal makes before it writes. Never awaits and knows no storage.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tailrace.errors import JournalError, OutputMismatch, RunSealed
from tailrace.events import AnyEvent, Entry, RunFinished, Snapshot, SteerReturned
from tailrace.journal.fold import Fold
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

    __slots__ = ("epoch", "fold", "pending", "queued", "refusal", "run_id", "seq")

    def __init__(self, run_id: str, epoch: int, fold: Fold) -> None:
        """`fold` has what was written before."""
        self.run_id = run_id
        self.epoch = epoch
        self.fold = fold  # with the entries that are pending or in flight, which viewers do not see yet; not the end
        self.seq = fold.seq
        self.queued = False  # the next group commit takes what is pending
        self.refusal: JournalError | None = None  # why nothing more can be appended
        self.pending: list[Entry] = []  # of the next commit

    def append(self, events: Sequence[AnyEvent], attempt: int, into: list[Entry] | None = None) -> int:
        """`into`: where the entries go instead of those that are pending."""
        if self.refusal is not None:
            raise self.refusal
        seq, apply, kept = self.seq, self.fold.apply, self.pending if into is None else into
        for event in events:
            if event.__class__ in _NOT_APPENDED:
                raise JournalError(f"run {self.run_id}: {type(event).__name__} is for `seal` and viewers alone")
            seq += 1
            entry = Entry(seq, event, attempt)
            apply(entry)
            kept.append(entry)
            self.seq = seq
        return seq

    def finish(self, finished: RunFinished) -> Entry:
        """The last entry, with what was spent, after the return of each message that no model call has taken (N165).
        Raises `OutputMismatch` where `finished.output` is not what the entries say."""
        if self.refusal is not None:
            raise self.refusal
        output, spent = self.fold.output, self.fold.spent
        if output != finished.output:
            pairs = enumerate(zip(finished.output, output, strict=False))
            at = next((at for at, (a, b) in pairs if a != b), min(len(finished.output), len(output)))
            raise OutputMismatch(
                f"run {self.run_id} cannot be sealed: its output ({len(finished.output)} characters) is not what its "
                f"log shows ({len(output)} characters); they differ from character {at} on"
            )
        if spent:
            finished = msgspec.structs.replace(finished, spent=spent)
        for left in self.fold.steers.pending:
            returned = SteerReturned(left.steer_id, "run_stopped" if finished.status == "stopped" else "run_ended")
            self.append([returned], self.fold.attempt)
        entry = Entry(self.seq + 1, finished, self.fold.attempt)
        self.seq = entry.seq
        self.pending.append(entry)
        self.refusal = RunSealed(f"run {self.run_id} has ended")
        return entry

    def take_entries(self) -> list[Entry]:
        """The pending entries, which are no longer pending here."""
        entries, self.pending = self.pending, []
        self.queued = False
        return entries
