"""Runs of durability "memory" while they live: in this process alone, until storage has them whole.

Entries are shown at the end of the loop tick that appended them, so viewers see the same order of events as with a
journal that writes first. A run is recorded in storage before a viewer sees its end. Then it is forgotten here: storage
answers, and viewers keep their tail. A run that is released before its end is lost: no other process can go on with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn, Unpack

import msgspec

from tailrace.errors import JournalError, RunNotFound, RunOwned, StaleEpoch
from tailrace.events import AnyEvent, Entry, RunFinished, RunStarted
from tailrace.journal.fold import fold, is_fact
from tailrace.journal.live_tail import NOTHING, PAGE_LINES, Tail, ViewedJournal, next_page_end
from tailrace.journal.open_log import OpenLog, new_run_id
from tailrace.journal.stored.commit_times import TickTimes
from tailrace.journal.stored.ended_runs import EndedRun, EndedRuns, Recorded
from tailrace.journal.waiters import Waiters
from tailrace.ports import Batch, Lease, LogPage, NewRun, Run, RunFilter, Signal, WriteEvents


class MemoryRun:
    """One run and its whole log. Most runs are not observed before they end: the tail is made for the first viewer, and
    the run's `last_seq` is counted when it is read."""

    __slots__ = ("_run", "_tail", "idempotency_key", "is_observed", "log", "shown", "signalled", "signals", "times")

    def __init__(self, run: Run, first: Entry) -> None:
        self._run = run
        self.idempotency_key = run.new.idempotency_key
        self._tail: Tail | None = None
        self.is_observed = False  # a viewer or a reader has asked for its entries
        self.log = OpenLog(run.id, run.claims, fold((first,)))
        self.shown = [first]  # what viewers may see
        self.times = TickTimes(first.seq, run.created_at)
        self.signals: list[Signal] = []
        self.signalled = Waiters()

    @property
    def run(self) -> Run:
        return msgspec.structs.replace(self._run, last_seq=self.shown[-1].seq)

    def ended(self, end: Entry, finished: RunFinished, at: float) -> EndedRun:
        """The whole run with its end, which viewers do not see yet."""
        run = msgspec.structs.replace(self._run, state=finished.status, owner="", finished=finished, last_seq=end.seq)
        return EndedRun(run, [*self.shown, *self.log.pending], self.times.with_end(end.seq, at))

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

    def fail(self, error: JournalError) -> None:
        """No entry follows: the run is lost."""
        self.log.refusal = error
        self.signalled.wake()
        if self._tail is not None:
            self._tail.fail(error)

    def matches(self, wanted: RunFilter) -> bool:
        new = self._run.new
        return (
            wanted.get("session") in (None, new.session)
            and wanted.get("kind") in (None, new.kind)
            and ((states := wanted.get("states")) is None or "running" in states)
            and wanted.get("ended_before") is None
            and not wanted.get("compacted")
            and ((before := wanted.get("before")) is None or self._run.id < before)
        )


class MemoryRuns(ViewedJournal):
    """The methods of the port that concern one run, and the list of runs. `clock` is the wall clock."""

    def __init__(self, ended_runs: EndedRuns, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._ended_runs = ended_runs
        self.live: dict[str, MemoryRun] = {}
        self._by_key: dict[str, str] = {}
        self._newest = ""  # the newest run of any session: ids grow whatever the clock says
        self._unpublished: list[MemoryRun] = []
        self._published = Waiters()
        self._signal_id = 0

    # ── a run's life ──

    async def start(self, new: NewRun, owner: str, *, lease_s: float = 30.0) -> tuple[Run, Lease | None]:  # noqa: ARG002
        """Its lease never ends: it lives as long as its process."""
        if new.idempotency_key and (known := self.run_with_key(new.idempotency_key)) is not None:
            return known, None
        at = self._clock()
        run_id = new_run_id(at, after=self._newest if new.session else "")
        run = Run(run_id, new, "running", 1, 1, created_at=at, claims=1, owner=owner)
        self.live[run_id] = MemoryRun(run, Entry(1, RunStarted(new.kind, new.model, new.session, at)))
        if new.idempotency_key:
            self._by_key[new.idempotency_key] = run_id
        if new.session:
            self._newest = run_id
        return run, Lease(run_id, 1, owner)

    async def claim(self, run_id: str, owner: str, *, lease_s: float = 30.0) -> NoReturn:  # noqa: ARG002
        self._refuse_unended(run_id)

    async def compact(self, run_id: str) -> NoReturn:
        self._refuse_unended(run_id)

    async def delete(self, run_id: str) -> NoReturn:
        self._refuse_unended(run_id)

    def _refuse_unended(self, run_id: str) -> NoReturn:
        owner = self._open(run_id).run.owner
        raise RunOwned(f"run {run_id} is executed by {owner}, in memory alone", owner=owner)

    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:  # noqa: ARG002
        self._open(lease.run_id)

    async def release(self, lease: Lease) -> None:
        known = self.live[lease.run_id]
        if known.log.refusal is None:
            self._publish()
            self._forget(known)
            known.fail(StaleEpoch(f"run {lease.run_id} was not ended by {lease.owner}, and was in memory alone"))

    # ── writing ──

    def append(self, lease: Lease, events: Sequence[AnyEvent], *, attempt: int = 1) -> int:
        return self._append_to(self._open(lease.run_id), attempt, events)

    def writer(self, lease: Lease) -> WriteEvents:
        return partial(self._append_to, self._open(lease.run_id))

    def _append_to(self, known: MemoryRun, attempt: int, events: Sequence[AnyEvent]) -> int:
        log = known.log
        if not known.is_observed and events:  # shown at once: no viewer can see the difference
            known.times.add(log.seq + 1, self._clock())
            return log.append(events, attempt, known.shown)
        seq = log.append(events, attempt)
        self._queue(known)
        return seq

    async def commit(self, lease: Lease) -> None:
        if self._open(lease.run_id).log.queued:
            await self._published.next_time().wait()

    async def seal(self, lease: Lease, finished: RunFinished) -> Entry:
        recorded = asyncio.get_running_loop().create_future()

        def tell(error: JournalError | None) -> None:
            if recorded.done():
                return  # the caller was cancelled
            if error is not None:
                recorded.set_exception(error)
            else:
                recorded.set_result(None)

        known = self._open(lease.run_id)
        entry = self._seal(known, finished, tell, waited_for=True)
        await recorded
        if known.log.queued:
            await self._published.next_time().wait()
        return entry

    def seal_soon(self, lease: Lease, finished: RunFinished, then: Recorded) -> None:
        self._seal(self._open(lease.run_id), finished, then, waited_for=False)

    def _seal(self, known: MemoryRun, finished: RunFinished, then: Recorded, *, waited_for: bool) -> Entry:
        if self._unpublished:
            self._publish()
        entry = known.log.finish(finished)
        if entry.event.__class__ is RunFinished:
            finished = entry.event  # with what was spent

        def recorded(error: JournalError | None) -> None:
            self._forget(known)
            if error is not None:  # no viewer may see the end of a run that is lost
                known.fail(error)
            else:
                known.signalled.wake()
                if known.is_observed:
                    self._queue(known)
            then(error)

        ended = known.ended(entry, finished, self._clock())
        self._ended_runs.add(ended, recorded, at_once=waited_for or known.is_observed)
        return entry

    def _queue(self, known: MemoryRun) -> None:
        if known.log.queued:
            return
        known.log.queued = True
        if not self._unpublished:
            asyncio.get_running_loop().call_soon(self._publish)
        self._unpublished.append(known)

    def _publish(self) -> None:
        at = self._clock() if self._unpublished else 0.0
        for known in self._unpublished:
            known.show(at)
        self._unpublished.clear()
        self._published.wake()

    def _forget(self, known: MemoryRun) -> None:
        del self.live[known.log.run_id]
        if key := known.idempotency_key:
            self._by_key.pop(key, None)

    # ── signals ──

    async def signal(self, run_id: str, signal: Signal) -> Signal:
        known = self._open(run_id)
        self._signal_id += 1
        numbered = msgspec.structs.replace(signal, id=self._signal_id)
        known.signals.append(numbered)
        known.signalled.wake()
        return numbered

    async def signals(self, lease: Lease, *, after: int = 0) -> list[Signal]:
        known = self._run(lease.run_id)
        while known.log.refusal is None:
            signalled = known.signalled.next_time()
            if found := [signal for signal in known.signals if signal.id > after]:
                return found
            await signalled.wait()
        raise known.log.refusal

    def when_signalled(self, lease: Lease, begin: Callable[[], None] | None) -> None:
        known = self.live.get(lease.run_id)
        if known is not None and known.log.refusal is None and not known.signals:
            known.signalled.begin = begin
        elif begin is not None:
            begin()

    async def kept_signals(self, lease: Lease) -> list[Signal]:
        return list(self._open(lease.run_id).signals)

    # ── reading ──

    async def get(self, run_id: str) -> Run:
        return self._run(run_id).run

    async def runs(self, **wanted: Unpack[RunFilter]) -> list[Run]:
        return [known.run for known in self.live.values() if known.matches(wanted)]

    async def read(self, run_id: str, *, after: int = 0) -> Batch:
        return Batch(self._run(run_id).shown[after:])

    async def page(self, run_id: str, after: int) -> Batch:
        return self._run(run_id).tail.entries_after(after) or NOTHING

    async def facts(self, run_id: str) -> list[Entry]:
        return [entry for entry in self._run(run_id).shown if is_fact(entry.event)]

    async def times(self, run_id: str) -> list[tuple[int, float]]:
        return list(self._run(run_id).times.pairs)

    async def snapshot(self, run_id: str) -> Entry:
        return fold(self._run(run_id).shown).entry()

    async def stored_page(self, run_id: str, after: int) -> LogPage:
        batch = await self.page(run_id, after)
        return Batch(batch[: next_page_end(after) - after]).page

    async def attach(self, run_id: str) -> Tail:
        return self._run(run_id).tail

    async def last_seq(self, run_id: str) -> int:
        return self._run(run_id).shown[-1].seq

    def run_with_key(self, idempotency_key: str) -> Run | None:
        run_id = self._by_key.get(idempotency_key)
        return self.live[run_id].run if run_id else None

    async def close(self) -> None:
        await self._ended_runs.close()
        self._publish()
        for known in self.live.values():
            known.tail.close()

    def _run(self, run_id: str) -> MemoryRun:
        if run_id in self.live:
            return self.live[run_id]
        raise RunNotFound(f"there is no run {run_id}")

    def _open(self, run_id: str) -> MemoryRun:
        """Raises `RunSealed` for a run that is about to be recorded."""
        known = self._run(run_id)
        if known.log.refusal is not None:
            raise known.log.refusal
        return known
