"""Runs that have ended and that storage could not take yet: kept in memory up to a number and a size, the oldest first.

Never awaits and knows no storage. The log says when runs begin to be kept, when the first of them is lost, and what
became of them in the end; not for each run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from tailrace.errors import JournalError, StorageFailed
from tailrace.events import Entry
from tailrace.journal.stored.commit_times import Times
from tailrace.journal.stored.rows import encode
from tailrace.ports import Run

log = logging.getLogger("tailrace.journal")
MAX_RUNS: Final = 10_000
MAX_BYTES: Final = 64 << 20
ENTRY_BYTES: Final = 300  # of memory, beside the entry's JSON
RUN_BYTES: Final = 4096  # the same for a run


class EndedRun(msgspec.Struct, frozen=True, gc=False):
    """All of a run that has ended."""

    run: Run
    entries: Sequence[Entry]
    times: Times


Recorded: TypeAlias = Callable[[JournalError | None], None]


class UnrecordedRun:
    """A run on its way to storage. `then` is called when it is there, or why it will not be. `when_kept` is called
    where storage cannot take it now; without it, that is told to `then`."""

    __slots__ = ("bytes", "ended", "in_flight", "number", "then", "when_kept")

    def __init__(self, number: int, ended: EndedRun, then: Recorded, when_kept: Callable[[], None] | None) -> None:
        self.number = number  # in the order in which they ended
        self.ended, self.then, self.when_kept = ended, then, when_kept
        self.in_flight = False
        self.bytes = 0  # known once it is kept


class UnrecordedRuns:
    """Those that are kept."""

    def __init__(self, *, max_runs: int = MAX_RUNS, max_bytes: int = MAX_BYTES) -> None:
        self._max_runs, self._max_bytes = max_runs, max_bytes
        self._runs: dict[str, UnrecordedRun] = {}
        self._bytes = 0
        self._failure = ""  # why storage did not take the last ones: the error itself would hold on to them
        self._recorded = 0  # since storage failed
        self._lost = 0

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, runs: Iterable[UnrecordedRun]) -> None:
        """They ended after all that are kept."""
        self._put(runs)
        self._lose_excess()

    def _put(self, runs: Iterable[UnrecordedRun]) -> None:
        for each in runs:
            self._runs[each.ended.run.id] = each
            each.bytes = _bytes_of(each.ended)
            self._bytes += each.bytes
            if each.when_kept is not None:
                each.when_kept()

    def _lose_excess(self) -> None:
        while len(self._runs) > self._max_runs or self._bytes > self._max_bytes:
            oldest = next((each for each in self._runs.values() if not each.in_flight), None)
            if oldest is None:
                return
            if not self._lost:
                log.warning("more ended calls wait to be recorded than are kept in memory: the oldest are lost")
            self._lose(oldest)

    def add_refused(self, runs: Iterable[UnrecordedRun], why: StorageFailed) -> None:
        """Storage did not take them."""
        self._note_failure(why)
        self._put(runs)
        self._runs = dict(sorted(self._runs.items(), key=lambda item: item[1].number))
        self._lose_excess()

    def give_back(self, runs: Iterable[UnrecordedRun], why: StorageFailed) -> None:
        """Those of them that are not settled are no longer in flight: storage takes none of them now."""
        self._note_failure(why)
        for each in runs:
            each.in_flight = False

    def _note_failure(self, why: StorageFailed) -> None:
        begins, self._failure = not self._failure, str(why)
        if begins:
            log.warning("calls that end are kept in memory until they can be recorded: %s", self._failure)

    def take(self, count: int) -> list[UnrecordedRun]:
        """The oldest. They are in flight until they are settled, or given back."""
        taken = list(islice(self._runs.values(), count))
        for each in taken:
            each.in_flight = True
        return taken

    def settle(self, each: UnrecordedRun, why: JournalError | None) -> None:
        """A run is stored, or will never be."""
        self._forget(each)
        self._recorded += why is None
        each.then(why)

    def is_in_flight(self, run_id: str) -> bool:
        return (each := self._runs.get(run_id)) is not None and each.in_flight

    def withdraw(self, run_id: str) -> None:
        """The run is not to be stored; it is not in flight."""
        if (each := self._runs.get(run_id)) is not None:
            self._forget(each)
            each.then(None)

    def note_recovery(self) -> None:
        """All of them were stored."""
        if self._failure:
            lost = f", {self._lost} are lost" if self._lost else ""
            log.warning("calls that were kept in memory: %d are on record now%s", self._recorded, lost)
        self._failure, self._recorded, self._lost = "", 0, 0

    def lose_all(self) -> None:
        """The process ends."""
        for each in list(self._runs.values()):
            self._lose(each)
        if self._lost:
            log.warning("%d calls that had ended are not on record and are lost: %s", self._lost, self._failure)
        self._failure, self._recorded, self._lost = "", 0, 0

    def _lose(self, each: UnrecordedRun) -> None:
        self._lost += 1
        self._forget(each)
        each.then(StorageFailed(f"it could not be kept any longer: {self._failure}", announced=True))

    def _forget(self, each: UnrecordedRun) -> None:
        del self._runs[each.ended.run.id]
        self._bytes -= each.bytes


def _bytes_of(ended: EndedRun) -> int:
    """About what it takes in memory."""
    try:
        json_bytes = len(encode(ended.run.new)) + sum(len(encode(entry)) for entry in ended.entries)
    except (TypeError, ValueError, OverflowError, RecursionError):  # storage will refuse it for that
        json_bytes = 0
    return RUN_BYTES + ENTRY_BYTES * len(ended.entries) + 3 * json_bytes // 2  # the text stands in the run's fold too
