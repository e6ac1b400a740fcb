"""Group commit: all pending writes of all runs are written together. The loop's side of it, for every database.

Owns when and in which order things are written. At most one commit is in flight; writes that come meanwhile are part of
the next group, so slow storage makes larger groups and not a longer queue. Entries that no caller waits for are
committed once in `MIN_INTERVAL_S`. No entry is shown before its group is committed.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from tailrace.errors import JournalError, StaleEpoch, StorageFailed, TailraceError
from tailrace.events import Entry, RunFinished
from tailrace.journal.fold import Fold
from tailrace.journal.live_tail import NOTHING, Tail
from tailrace.journal.open_log import OpenLog
from tailrace.journal.stored.rows import EVENTS, MOST_BYTES, BoundRow, bound_rows, without_outputs
from tailrace.journal.waiters import Waiters
from tailrace.ports import Batch, Lease

MIN_INTERVAL_S = 0.002  # between two groups that no caller waits for; the first after a pause goes at once
BEGIN_S = 0.01  # so long what a new run records before its first text waits for that, or for any other group
OnLag: TypeAlias = Callable[[float], None]


class StoredLog(OpenLog):
    """The writing end of a stored run. `written_seq` is the last entry in storage, `seq` the last appended. `create` is
    the write that creates the run, which goes before its first entries and gives its `num`."""

    __slots__ = (
        *("create", "failure", "fsync", "gap", "num", "owner"),
        *("has_text", "not_before", "progress", "signalled", "tail", "unsignalled", "written_seq"),
    )

    def __init__(self, lease: Lease, num: int, fold: Fold, tail: Tail, *, fsync: bool) -> None:
        super().__init__(lease.run_id, lease.epoch, fold)
        self.num = num
        self.create: Callable[[Any], int] | None = None
        self.owner = lease.owner
        self.tail = tail
        self.fsync = fsync
        self.has_text = False  # of its model: viewers wait for the first piece of it
        self.not_before = 0.0  # on the loop's clock: when a group may be handed over for its entries alone
        self.written_seq = fold.seq
        self.failure: JournalError | None = None  # raised in callers that wait for its entries
        self.gap: JournalError | None = None  # why storage has refused an entry: what follows it is not written either
        self.progress = Waiters()
        self.signalled = Waiters()
        self.unsignalled = False  # storage has no signal for it: no read is needed

    def refuse(self, error: JournalError) -> None:
        self.refusal = error
        if self.written_seq < self.seq:
            self.failure = self.failure or error
        self.progress.wake()
        self.signalled.wake()


class PendingAppend(msgspec.Struct, eq=False):
    """The pending entries of one log, as one part of a group. `fsync` and `create`: as the log has them."""

    log: StoredLog
    fsync: bool
    create: Callable[[Any], int] | None = None
    batch: Batch = NOTHING
    rows: Sequence[BoundRow] = ()
    error: TailraceError | None = None
    long: bool = False  # writing it takes long

    def freeze(self, at: float) -> None:
        """Encodes the entries; `at` is the time of their commit. On the loop: two threads that run much Python code
        only slow each other down."""
        log = self.log
        self.create, log.create = log.create, None
        self.batch = Batch(log.pending)
        log.pending.clear()
        log.queued = False
        if log.gap is not None:
            self.error = log.gap
            return
        entries: Sequence[Entry] = self.batch
        repeats = entries and entries[-1].event.__class__ is RunFinished and log.fold.output_seqs is not None
        if repeats:  # a sequence's output: it stands in the entries of its steps
            entries = [*entries[:-1], without_outputs(entries[-1])]
        try:
            self.rows = rows = bound_rows(entries, log.num, log.epoch, at)
        except (TypeError, ValueError, OverflowError, RecursionError) as exc:  # a lone surrogate, a strange object
            self.error = JournalError(f"run {self.log.run_id}: an event cannot be written as JSON: {exc}")
            return
        if repeats:
            return
        if len(rows) > 1 and (stored_bytes := sum([len(row[EVENTS]) for row in rows])) > MOST_BYTES:
            self.long, self.batch.unjoined_bytes = True, stored_bytes  # viewers read it from storage
            return
        self.batch.stored = rows[0][EVENTS] if len(rows) == 1 else b"".join([row[EVENTS] for row in rows])
        self.long = len(self.batch.stored) > MOST_BYTES

    def settle(self) -> None:
        if self.error is not None:
            error = self.error if isinstance(self.error, JournalError) else JournalError(str(self.error))
            self.log.gap = self.log.gap or error
            self.log.refuse(error)
            if isinstance(self.error, StorageFailed) or self.create is not None:
                self.log.tail.fail(error)  # the run waits, or there is none, and its viewers get the reason
        elif self.batch:
            log = self.log
            log.written_seq = self.batch[-1].seq
            log.tail.publish(self.batch)
            if log.progress.event is not None:
                log.progress.wake()

    def stale(self, epoch: int | None, owner: str) -> StaleEpoch | None:
        """Why storage refused the entries, where its newest claim is this one; None stands for no such run."""
        if epoch == self.log.epoch:
            return None
        whose = f"; {owner} claimed it" if owner else ""
        return StaleEpoch(f"run {self.log.run_id} is no longer this writer's (claim {self.log.epoch}){whose}")


Work = TypeVar("Work")


@dataclass(slots=True, eq=False)
class PendingCall(Generic[Work]):
    """Any other write. `work` raises a `TailraceError` only before it has written anything."""

    work: Work
    future: asyncio.Future[Any]
    fsync: bool
    result: Any = None
    error: TailraceError | None = None
    withdrawn: bool = False  # its caller got an error: it must not be written
    long: bool = False  # what it does grows with the log of a run
    log: StoredLog | None = None  # whose entries it needs: it is not done where one of them was refused

    def withdraw(self, error: TailraceError) -> None:
        self.withdrawn, self.error = True, error
        self.settle()

    def settle(self) -> None:
        if self.future.done():
            return  # the caller was cancelled
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class GroupCommit(ABC, Generic[Work]):
    """Queues writes, hands over one group at a time, settles it when it is committed."""

    def __init__(self, clock: Callable[[], float], on_lag: OnLag | None) -> None:
        """`clock` is the wall clock. `on_lag` is called once the entries of a group are shown, with the seconds since
        the oldest of them was appended."""
        self._loop = asyncio.get_running_loop()
        self.clock = clock
        self._on_lag = on_lag
        self._waiting_since: float | None = None  # when the oldest entry of the next group was appended
        self._in_flight_since: float | None = None  # the same of the group in flight
        self._waiting: list[PendingAppend | PendingCall[Work]] = []
        self._in_flight = False
        self._due: asyncio.Handle | None = None  # hands the waiting group over
        self._due_at = 0.0  # when it is handed over; 0 in this tick of the loop
        self._next_at = 0.0  # on the loop's clock: when a group that no caller waits for may be handed over
        self._idle = Waiters()
        self._closed = False

    @property
    @abstractmethod
    def failing(self) -> bool:
        """Whether a group could not be written, and nothing has shown since that the next one can."""

    @abstractmethod
    def _write(self, group: list[PendingAppend | PendingCall[Work]]) -> None:
        """Begins to write the group. `_settle` must be called when that is done, in the loop's thread."""

    def append(self, log: StoredLog) -> None:
        """Adds the log to the next group. The group takes what is pending when it is handed over."""
        if log.queued:
            return
        if self._waiting_since is None:
            self._waiting_since = self._loop.time()
        at = max(self._next_at, log.not_before)
        if self._closed or self._due is None or at < self._due_at:
            self._make_due(at)
        self._waiting.append(PendingAppend(log, log.fsync))
        log.queued = True

    def send_soon(self) -> None:
        """A caller waits for what is queued: it is handed over in this tick of the loop, or after the group in flight,
        without waiting for the interval."""
        self._next_at = 0.0
        if self._due_at:
            self._make_due()

    def _call(self, work: Work, *, fsync: bool, long: bool = False, log: StoredLog | None = None) -> PendingCall[Work]:
        self._next_at = 0.0
        self._make_due()
        call = PendingCall(work, self._loop.create_future(), fsync, long=long, log=log)
        self._waiting.append(call)
        return call

    async def _finish(self) -> None:
        """Returns when everything queued is settled; nothing more is taken."""
        self.send_soon()
        while self._in_flight or self._due is not None:
            await self._idle.next_time().wait()
            self.send_soon()
        self._closed = True

    def _make_due(self, at: float = 0.0) -> None:
        """Something is about to wait: its group is handed over by then, or when the one in flight is settled."""
        if self._closed:
            raise JournalError("the journal is closed")
        if self._in_flight:
            return
        if self._due_at and self._due is not None:
            self._due.cancel()
        elif self._due is not None:
            return
        self._schedule(at)

    def _schedule(self, at: float) -> None:
        if self._loop.time() < at:
            self._due, self._due_at = self._loop.call_at(at, self._send_group), at
        else:
            self._due, self._due_at = self._loop.call_soon(self._send_group), 0.0

    def _send_group(self) -> None:
        self._due, self._due_at, self._in_flight = None, 0.0, True
        group, self._waiting = self._waiting, []
        self._in_flight_since, self._waiting_since = self._waiting_since, None
        try:
            self._next_at = self._loop.time() + MIN_INTERVAL_S
            at = self.clock()
            refused = False
            for part in group:
                if isinstance(part, PendingAppend):
                    part.freeze(at)
                    refused = refused or part.error is not None
                elif part.log is not None:
                    refused = True  # where its entries are
        except BaseException:  # Ctrl-C while the process ends: the next group must still be written
            fail_interrupted(group)
            self._loop.call_soon(self._settle, group)
            raise
        if refused:
            group = [part for part in group if not self._is_refused(part)]
        if group:
            self._write(group)
        else:
            self._loop.call_soon(self._settle, group)

    def _is_refused(self, part: PendingAppend | PendingCall[Work]) -> bool:
        """Whether nothing of this part may be written, because an entry of its log was not. Settles it."""
        if isinstance(part, PendingAppend):
            if part.error is None:
                return False
            part.settle()
            return True
        if part.log is None or part.log.gap is None:
            return False
        part.withdraw(part.log.gap)
        return True

    def _settle(self, group: Sequence[PendingAppend | PendingCall[Work]]) -> None:
        appended_at = self._in_flight_since
        try:
            for part in group:
                part.settle()
            if appended_at is not None and self._on_lag is not None:
                self._on_lag(self._loop.time() - appended_at)
        finally:
            self._in_flight = False  # only now: the next group may be settled as soon as it is handed over
            if self._waiting:
                self._schedule(self._next_at)
            else:
                self._idle.wake()


def fail_interrupted(group: Sequence[PendingAppend | PendingCall[Any]]) -> None:
    """The loop's thread was interrupted while the group was written. A later reader of the log sees what is stored."""
    error = JournalError("interrupted while it was written: whether it is stored is not known here")
    for part in group:
        part.error = part.error or error
