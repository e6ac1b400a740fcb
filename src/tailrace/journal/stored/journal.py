"""The event loop's side of a journal on a database: which runs this process writes to, which viewers it wakes.

Knows no database. A store gives the reads and writes of `Database`; several processes may have the same one open, and
each follows the runs that others write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from tailrace.errors import JournalError, RunNotFound, RunOwned, RunSealed, StaleEpoch, StorageFailed
from tailrace.events import AnyEvent, Entry, GatewayNotice, MessageChunk, RunFailure, RunFinished, RunStarted
from tailrace.journal.fold import Fold, fold
from tailrace.journal.live_tail import Tail, ViewedJournal
from tailrace.journal.open_log import new_run_id
from tailrace.journal.sessions.session_watch import SessionWatch
from tailrace.journal.stored.database import Database
from tailrace.journal.stored.ended_runs import Recorded
from tailrace.journal.stored.group_commit import BEGIN_S, GroupCommit, StoredLog
from tailrace.journal.stored.page_cache import PageCache
from tailrace.journal.stored.shielded_writes import ShieldedWrites
from tailrace.journal.waiters import ValueWaiters
from tailrace.ports import ENDED, Batch, Lease, LogPage, NewRun, Run, Signal, WriteEvents

logger = logging.getLogger("tailrace.journal")
REMEMBERED = 1024  # lost leases whose reason is kept, for a late writer's error
VALUES_INTERVAL_S = 0.05  # between two reads of awaited values and sessions, while another process writes much
RETRY_FIRST_S = 0.25  # the pause after wake-ups failed; doubled at each failure
RETRY_MAX_S = 5.0
MAX_LATE_RELEASES = 4096  # of more than these the oldest expire instead


class _Released(StaleEpoch):
    """The owner itself has ended its claim."""


class StoredJournal(Database, ViewedJournal):
    """The part of the port that is the same for every database."""

    def __init__(self, commits: GroupCommit[Any]) -> None:
        self._group_commit = commits
        self._pages = PageCache()
        self._logs: dict[str, StoredLog] = {}  # runs that this process may write to
        self._tails: WeakValueDictionary[str, Tail] = WeakValueDictionary()  # kept alive by logs and viewers
        self._refusals: dict[tuple[str, int], JournalError] = {}
        self._value_changed = ValueWaiters(VALUES_INTERVAL_S)
        self._sessions = SessionWatch()
        self._shielded_writes = ShieldedWrites()
        self._late_releases: deque[Lease] = deque(maxlen=MAX_LATE_RELEASES)  # that failed because storage was away
        self._signals_announced = 0  # wake-ups for a signal to any run, or for a possible one
        self._closed = False

    # ── a run's life ──

    async def create(self, new: NewRun) -> Run:
        return await self._shielded_writes.run(self._create(new))

    async def _create(self, new: NewRun) -> Run:
        run, _ = await self._insert_run(new, None, 0.0)
        self._sessions.on_created(new.session)
        return run

    async def start(self, new: NewRun, owner: str, *, lease_s: float = 30.0) -> tuple[Run, Lease | None]:
        """Cancelled, it releases the run as soon as that is claimed, as `claim` does: otherwise the run would wait
        until its lease has expired."""
        starting = self._start(new, owner, lease_s)
        return await self._shielded_writes.run(
            starting, if_left=lambda begun: self.release(begun[1]) if begun[1] is not None else None
        )

    async def _start(self, new: NewRun, owner: str, lease_s: float) -> tuple[Run, Lease | None]:
        announced = self._signals_announced
        run, num = await self._insert_run(new, owner, lease_s)
        if num is None:
            return run, None
        self._sessions.on_created(new.session)
        lease = Lease(run.id, run.claims, owner)
        first = Batch((Entry(1, RunStarted(new.kind, new.model, new.session, run.created_at)),))
        tail = self._tails.setdefault(run.id, Tail(first))
        tail.publish(first)  # viewers have the log from its beginning, and need not ask storage for it
        log = StoredLog(lease, num, fold(first), tail, fsync=new.durability == "fsync")
        log.unsignalled = announced == self._signals_announced
        log.not_before = asyncio.get_running_loop().time() + BEGIN_S
        self._hold(log)
        return run, lease

    def begin(self, new: NewRun, owner: str, *, lease_s: float = 30.0) -> tuple[Run, Lease] | None:
        if new.session or new.idempotency_key or self._group_commit.failing:
            return None
        at = self._group_commit.clock()
        run = Run(new_run_id(at), new, "running", last_seq=1, first_seq=1, created_at=at, claims=1, owner=owner)
        if (create := self._creation(run, lease_s)) is None:
            return None
        lease, tail = Lease(run.id, run.claims, owner), Tail()
        log = StoredLog(lease, 0, Fold(), tail, fsync=new.durability == "fsync")
        log.create, log.unsignalled = create, True
        log.not_before = asyncio.get_running_loop().time() + BEGIN_S
        self._append_to(log, 1, (RunStarted(new.kind, new.model, new.session, at),))
        self._tails[run.id] = tail
        self._hold(log)
        return run, lease

    async def claim(self, run_id: str, owner: str, *, lease_s: float = 30.0) -> Lease:
        return await self._shielded_writes.run(self._claim(run_id, owner, lease_s), if_left=self.release)

    async def _claim(self, run_id: str, owner: str, lease_s: float) -> Lease:
        num, lease = await self._claim_run(run_id, owner, lease_s)
        run, state = await self.get(run_id), await self._fold_log(run_id)
        if (other := self._logs.get(run_id)) is not None:
            if other.epoch > lease.epoch:  # of a caller that has left and was slow to read the log
                raise StaleEpoch(f"run {run_id} was claimed again by {other.owner}")
            self._drop(other, StaleEpoch(f"run {run_id} was claimed again by {owner}"))
        tail = self._tails.setdefault(run_id, Tail(last_seq=state.seq))
        tail.skip_to(state.seq)
        self._hold(StoredLog(lease, num, state, tail, fsync=run.new.durability == "fsync"))
        return lease

    def _hold(self, log: StoredLog) -> None:
        self._logs[log.run_id] = log

    def _drop(self, log: StoredLog, why: JournalError) -> None:
        log.refuse(why)
        if self._logs.get(log.run_id) is log:
            del self._logs[log.run_id]
        if not log.tail.ended:
            self._look_at(log.run_id)  # wake-ups were ignored while the run was held
        self._refuse_later(log.run_id, log.epoch, why)

    def _refuse_later(self, run_id: str, epoch: int, why: JournalError) -> None:
        # Without the traceback, which holds all that the run had.
        self._refusals[run_id, epoch] = RunSealed(*why.args) if why.__class__ is RunSealed else copy(why)
        if len(self._refusals) > REMEMBERED:
            del self._refusals[next(iter(self._refusals))]

    def _held(self, lease: Lease) -> StoredLog:
        log = self._logs.get(lease.run_id)
        if log is not None and log.epoch == lease.epoch:
            if log.refusal is None:
                return log
            self._drop(log, log.refusal)
        if (why := self._refusals.get((lease.run_id, lease.epoch))) is not None:
            raise copy(why)
        raise StaleEpoch(f"run {lease.run_id} is not {lease.owner}'s in this process (claim {lease.epoch})")

    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
        log = self._held(lease)
        try:
            await self._renew_lease(lease, lease_s)
        except (StaleEpoch, RunSealed) as why:
            self._drop(log, why)
            raise

    async def release(self, lease: Lease) -> None:
        log = self._logs.get(lease.run_id)
        released = _Released(f"run {lease.run_id} was released")
        if log is not None and log.epoch == lease.epoch:
            log.refusal = released
            with self._dropped_on_failure(log):
                await self._release_stored(lease, fsync=log.fsync)
            self._drop(log, released)
        elif not isinstance(self._refusals.get((lease.run_id, lease.epoch)), RunSealed | _Released):
            # Storage refused an entry, which voids the lease here; in storage it may still be held. Where another
            # owner has claimed the run, storage learns that this one has not died.
            await self._release_stored(lease, fsync=False)
            self._refuse_later(lease.run_id, lease.epoch, released)

    async def _release_stored(self, lease: Lease, *, fsync: bool) -> None:
        try:
            await self._release_run(lease, fsync=fsync)
        except RunNotFound:  # storage has not taken the run itself, or it was deleted
            pass
        except StorageFailed:
            self._late_releases.append(lease)
            raise

    async def _retry_releases(self) -> None:
        """Releases what could not be released while storage was away; what fails again is kept for the next try. A
        late release still shows that its owner lives."""
        leases = list(self._late_releases)
        self._late_releases.clear()
        for lease in leases:
            with contextlib.suppress(JournalError):
                await self._release_stored(lease, fsync=False)

    async def park(self, lease: Lease, failure: RunFailure, *, kills: int = 0) -> None:
        log = self._held(lease)
        self.append(lease, [GatewayNotice("parked", failure.message)])
        log.refusal = _Released(f"run {lease.run_id} was parked")
        with self._dropped_on_failure(log):
            await self._park_run(lease, failure, kills, fsync=log.fsync)
        self._drop(log, log.refusal)

    @contextlib.contextmanager
    def _dropped_on_failure(self, log: StoredLog) -> Iterator[None]:
        """A log that is released is no longer this process's, even where the release failed in storage: another process
        will claim the run, and its viewers here must follow what that one writes."""
        try:
            yield
        except BaseException:
            self._drop(log, StaleEpoch(f"run {log.run_id} is no longer {log.owner}'s in this process"))
            raise

    # ── writing ──

    def append(self, lease: Lease, events: Sequence[AnyEvent], *, attempt: int = 1) -> int:
        return self._append_to(self._held(lease), attempt, events)

    def writer(self, lease: Lease) -> WriteEvents:
        log = self._logs.get(lease.run_id)
        if log is None or log.epoch != lease.epoch:
            return lambda attempt, events: self.append(lease, events, attempt=attempt)  # which raises the reason
        return partial(self._append_to, log)  # a log that is no longer held refuses what it is given

    def _append_to(self, log: StoredLog, attempt: int, events: Sequence[AnyEvent]) -> int:
        seq = log.append(events, attempt)
        if not log.queued:
            self._group_commit.append(log)
        if not log.has_text and events and events[-1].__class__ is MessageChunk:
            log.has_text = True
            self._group_commit.send_soon()
        return seq

    async def commit(self, lease: Lease) -> None:
        log = self._held(lease)
        await self._written(log, log.seq)

    async def _written(self, log: StoredLog, seq: int) -> None:
        while log.written_seq < seq:
            self._group_commit.send_soon()
            progress = log.progress.next_time()
            if log.failure is not None:
                self._drop(log, log.failure)
                raise log.failure
            await progress.wait()

    async def seal(self, lease: Lease, finished: RunFinished) -> Entry:
        log = self._held(lease)
        entry = log.finish(finished)
        self._group_commit.append(log)
        try:
            await self._end_run(lease, entry, log.fold.output_seqs, fsync=log.fsync)
        except JournalError as why:
            self._drop(log, why)
            raise
        except asyncio.CancelledError:  # whether it is sealed is not known here: `release` asks storage
            self._drop(log, StaleEpoch(f"run {lease.run_id} is no longer {lease.owner}'s in this process"))
            raise
        self._drop(log, RunSealed(f"run {lease.run_id} has ended"))
        return entry

    def seal_soon(self, lease: Lease, finished: RunFinished, then: Recorded) -> None:
        def tell(task: asyncio.Task[Entry]) -> None:
            error = JournalError("the journal is closed") if task.cancelled() else task.exception()
            then(error if error is None or isinstance(error, JournalError) else JournalError(repr(error)))

        self._shielded_writes.begin(self.seal(lease, finished)).add_done_callback(tell)

    # ── signals ──

    async def signal(self, run_id: str, signal: Signal) -> Signal:
        """Cancelled while the commit is in flight, it still wakes the run: storage may have the signal."""
        return await self._shielded_writes.run(self._send_signal(run_id, signal))

    async def _send_signal(self, run_id: str, signal: Signal) -> Signal:
        sent = await self._insert_signal(run_id, signal)
        self._announce_signal(run_id)
        return sent

    def _announce_signal(self, run_id: str) -> None:
        """Storage has a signal for this run, or may have. A `start` in flight notices it by the count."""
        self._signals_announced += 1
        if (log := self._logs.get(run_id)) is not None:
            log.unsignalled = False
            log.signalled.wake()

    async def signals(self, lease: Lease, *, after: int = 0) -> list[Signal]:
        while True:
            log = self._held(lease)
            signalled = log.signalled.next_time()
            if not log.unsignalled and (found := await self._signals_after(lease.run_id, after)):
                self._held(lease)
                return found
            await signalled.wait()

    def when_signalled(self, lease: Lease, begin: Callable[[], None] | None) -> None:
        log = self._logs.get(lease.run_id)
        if log is not None and log.epoch == lease.epoch and log.refusal is None and log.unsignalled:
            log.signalled.begin = begin
        elif begin is not None:
            begin()

    async def kept_signals(self, lease: Lease) -> list[Signal]:
        self._held(lease)
        found = await self._signals_after(lease.run_id, 0)
        self._held(lease)
        return found

    # ── reading ──

    async def read(self, run_id: str, *, after: int = 0) -> Batch:
        return Batch([entry async for page in self._read_pages(run_id, after) for entry in page])

    async def _read_pages(self, run_id: str, after: int = 0) -> AsyncIterator[Batch]:
        while page := await self.page(run_id, after):
            yield page
            after = page[-1].seq

    async def facts(self, run_id: str) -> list[Entry]:
        return (await self.facts_of_runs([run_id]))[0]

    async def _fold_log(self, run_id: str) -> Fold:
        state = Fold()
        async for page in self._read_pages(run_id):
            for entry in page:
                state.apply(entry)
        return state

    async def snapshot(self, run_id: str) -> Entry:
        log = self._logs.get(run_id)
        if log is not None and log.refusal is None:
            entry = log.fold.entry()
            with contextlib.suppress(JournalError):
                await self._written(log, entry.seq)  # the fold is ahead of storage: shown once it is written
                return entry
        return (await self._fold_log(run_id)).entry()

    async def stored_page(self, run_id: str, after: int) -> LogPage:
        return await self._pages.page(run_id, after, lambda: self._load_lines(run_id, after))

    async def attach(self, run_id: str) -> Tail:
        if (tail := self._tails.get(run_id)) is not None:
            return tail
        run = await self.get(run_id)
        if self._closed:  # a tail that begins now would never be woken
            raise JournalError("the journal is closed")
        tail = self._tails.setdefault(run_id, Tail(last_seq=run.last_seq, ended=run.state in ENDED))
        self._look_at(run_id)  # a commit between `get` and here has woken no viewer of this tail
        return tail

    async def last_seq(self, run_id: str) -> int:
        run = await self.get(run_id)
        self._look_at(run_id)  # another process's commits are published by the task that listens
        return run.last_seq

    async def next_run(self, session: str, kind: str, after: str) -> Run:
        watched = self._sessions.watch(session)
        while True:
            begun = watched.next_time()
            if (run := await self._run_after(session, kind, after)) is not None:
                return run
            if self._closed:
                raise JournalError("the journal is closed")
            await begun.wait()

    # ── other processes ──

    def _followed(self, run_ids: Iterable[str]) -> list[tuple[str, Tail]]:
        """The runs among these that viewers watch here and another process executes."""
        tails = ((run_id, self._tails.get(run_id)) for run_id in run_ids if run_id not in self._logs)
        return [(run_id, tail) for run_id, tail in tails if tail is not None and not tail.ended]

    async def _follow(self, run_id: str, tail: Tail) -> JournalError | None:
        """Publishes what another process has written. A failure is raised in the viewers of this run and returned; the
        other runs are still followed."""
        try:
            while batch := await self.page(run_id, after := tail.last_seq):
                if run_id in self._logs or tail.last_seq != after:
                    return None  # claimed here meanwhile: its own commits publish
                tail.publish(batch)
        except RunNotFound as error:
            tail.fail(error)
            self._tails.pop(run_id, None)  # deleted: no entry will follow
            return None
        except JournalError as error:
            failure = error
        except Exception as exc:
            logger.exception("run %s cannot be followed", run_id)
            failure = JournalError(f"run {run_id} cannot be followed: {exc!r}")
        else:
            tail.unreadable = None
            return None
        tail.unreadable = failure
        tail.wake()
        return failure

    # ── keeping ──

    async def compact(self, run_id: str) -> Run:
        run = await self.get(run_id)
        if run.state not in ENDED:
            raise RunOwned(f"run {run_id} has not ended", owner=run.owner)
        if run.first_seq > 1:
            return run
        snapshot, kept = await self._compaction(run_id)
        run = await self._compact_run(run_id, snapshot, kept)
        if (tail := self._tails.get(run_id)) is not None:
            tail.forget()
        self._pages.forget(run_id)
        return run

    async def delete(self, run_id: str) -> None:
        await self._delete_run(run_id)
        self._tails.pop(run_id, None)
        self._pages.forget(run_id)

    # ── small state ──

    async def next_value(self, namespace: str, key: str, known: bytes | None) -> bytes | None:
        while True:
            changed = self._value_changed.next_change(namespace, key)
            if (value := await self.get_value(namespace, key)) != known:
                return value
            await changed.wait()

    async def swap_value(self, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool:
        return await self._shielded_writes.run(self._swap_and_wake(namespace, key, old, new))

    async def _swap_and_wake(self, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Wakes the waiting tasks after each try: where another process came first, the value has changed too."""
        changed = await self._swap_value(namespace, key, old, new)
        self._value_changed.changed(namespace, key)
        return changed

    def _close_views(self) -> None:
        """Ends the waiting viewers and refuses what is still held."""
        for log in list(self._logs.values()):
            self._drop(log, JournalError("the journal is closed"))
        for tail in list(self._tails.values()):
            tail.close()
        self._closed = True
        self._sessions.on_notify(None)
