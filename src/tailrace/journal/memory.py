"""The journal without storage: for tests, for trying things out, and as the simplest form of the contract.

Everything is lost with the process. Entries are shown at the end of the loop tick that appended them, so callers see
the same order of events as with a journal that writes first.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, KeysView, Sequence
from functools import partial
from operator import attrgetter
from typing import Unpack

import msgspec

from tailrace import ports
from tailrace.errors import JournalError, RunNotFound, RunOwned, RunParked, RunSealed, StaleEpoch
from tailrace.events import AnyEvent, Entry, GatewayNotice, RunFailure, RunFinished, RunStarted
from tailrace.journal.fold import fold, is_fact
from tailrace.journal.live_tail import NOTHING, Tail, ViewedJournal, next_page_end
from tailrace.journal.memory_state import MemoryState
from tailrace.journal.open_log import new_run_id
from tailrace.journal.sessions.session_runs import session_of
from tailrace.journal.sessions.session_search import TextSearch, question_text
from tailrace.journal.sessions.session_watch import SessionWatch
from tailrace.journal.stored.commit_times import timed_stretches
from tailrace.journal.stored.ended_runs import EndedRun, EndedRuns, Recorded
from tailrace.journal.stored.memory_run import NO_CLAIMS, MemoryRun
from tailrace.journal.waiters import Waiters
from tailrace.ports import ENDED, RUNS_LIMIT, Batch, Lease, NewRun, Run, SessionPage, SessionRuns, Signal, WriteEvents


class MemoryJournal(MemoryState, ViewedJournal):
    """`clock` is the wall clock, in seconds since the epoch. `ended_runs` records a run in storage before a viewer sees
    its end. Then it is forgotten here: storage answers, and viewers keep their tail."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        ended_runs: EndedRuns | None = None,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._ended_runs = ended_runs
        self._runs: dict[str, MemoryRun] = {}
        self._by_key: dict[str, str] = {}
        self._newest: dict[str, str] = {}  # the newest run of each session
        self._unpublished: list[MemoryRun] = []
        self._published = Waiters()
        self._signal_id = 0
        self._sessions = SessionWatch()

    # ── a run's life ──

    async def create(self, new: NewRun) -> Run:
        return self.run_with_key(new.idempotency_key) or self._create(new).run

    def _create(self, new: NewRun, *, owner: str = "", lease_s: float | None = None) -> MemoryRun:
        """With `lease_s` it is claimed from the start."""
        at = self._clock()
        run_id = new_run_id(at, after=self._newest.get(new.session, "") if new.session else "")
        state: ports.RunState = "pending" if lease_s is None else "running"
        run = Run(run_id, new, state, 1, 1, created_at=at, claims=0 if lease_s is None else 1, owner=owner)
        self._runs[run_id] = known = MemoryRun(run)
        known.lease_until = at + (lease_s or 0.0)
        known.append_shown((RunStarted(new.kind, new.model, new.session, at),), 1, at)
        if new.idempotency_key:
            self._by_key[new.idempotency_key] = run_id
        if new.session:
            self._newest[new.session] = run_id
            self._sessions.on_created(new.session)
        return known

    async def start(self, new: NewRun, owner: str, *, lease_s: float = 30.0) -> tuple[Run, Lease | None]:
        if (run := self.run_with_key(new.idempotency_key)) is not None:
            return run, None
        run = self._create(new, owner=owner, lease_s=lease_s).run
        return run, Lease(run.id, run.claims, owner)

    async def claim(self, run_id: str, owner: str, *, lease_s: float = 30.0) -> Lease:
        known = self._run(run_id)
        if known.run.state in ENDED:
            raise RunSealed(f"run {run_id} has ended")
        if known.run.state == "parked":
            raise RunParked(f"run {run_id} is parked")
        if known.run.state == "running" and known.run.owner != owner and known.lease_until > self._clock():
            raise RunOwned(f"run {run_id} is executed by {known.run.owner}", owner=known.run.owner)
        return self._claim(known, owner, lease_s)

    def _claim(self, known: MemoryRun, owner: str, lease_s: float) -> Lease:
        self._publish()
        run = known.run
        if run.state == "running" and run.owner != owner:
            known.suspected = NO_CLAIMS if known.has_progress() else known.suspected | {run.claims}
        known.claimed_seq = known.shown[-1].seq
        known.set(state="running", owner=owner, claims=run.claims + 1, kills=len(known.suspected))
        known.lease_until = self._clock() + lease_s
        known.log.epoch = known.run.claims
        known.signalled.wake()
        return Lease(run.id, known.run.claims, owner)

    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
        self._held(lease).lease_until = self._clock() + lease_s

    async def release(self, lease: Lease) -> None:
        known = self._run(lease.run_id)
        if known.log.epoch == lease.epoch and known.run.state == "running":
            self._publish()
            known.log.epoch = -1
            known.suspected = NO_CLAIMS
            known.set(state="pending", owner="", kills=0)
            known.signalled.wake()
        elif lease.epoch in known.suspected and known.run.state not in ENDED:
            known.suspected -= {lease.epoch}
            known.set(kills=len(known.suspected))
            if known.run.parked is not None and known.run.parked.kind == ports.CRASH_LOOP:
                known.set(state="pending", parked=None)

    async def park(self, lease: Lease, failure: RunFailure, *, kills: int = 0) -> None:
        known = self._held(lease)
        self.append(lease, [GatewayNotice("parked", failure.message)])
        self._publish()
        known.log.epoch = -1
        if known.run.kills < kills:
            known.set(state="pending", owner="")
        else:
            known.set(state="parked", owner="", parked=failure)
        known.signalled.wake()

    async def unpark(self, run_id: str) -> Run:
        known = self._run(run_id)
        if known.run.state == "parked":
            known.suspected = NO_CLAIMS
            known.set(state="pending", parked=None, kills=0)
        return known.run

    # ── writing ──

    def append(self, lease: Lease, events: Sequence[AnyEvent], *, attempt: int = 1) -> int:
        return self._append_under(lease, attempt, events)

    def writer(self, lease: Lease) -> WriteEvents:
        return partial(self._append_under, lease)

    def _append_under(self, lease: Lease, attempt: int, events: Sequence[AnyEvent]) -> int:
        known = self._runs.get(lease.run_id)
        if known is None or known.log.epoch != lease.epoch:
            known = self._held(lease)
        if not known.is_observed:
            return known.append_shown(events, attempt, self._clock())
        seq = known.log.append(events, attempt)
        if not known.log.queued:
            self._queue(known)
        return seq

    async def commit(self, lease: Lease) -> None:
        if self._held(lease).log.queued:
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

        known = self._held(lease)
        entry = self._seal(lease, known, finished, tell, waited_for=True)
        await recorded
        if known.log.queued:
            await self._published.next_time().wait()
        return entry

    def seal_soon(self, lease: Lease, finished: RunFinished, then: Recorded) -> None:
        self._seal(lease, self._held(lease), finished, then, waited_for=False)

    def _seal(
        self, lease: Lease, known: MemoryRun, finished: RunFinished, then: Recorded, *, waited_for: bool
    ) -> Entry:
        if self._unpublished:
            self._publish()
        entry = known.log.finish(finished)
        if isinstance(entry.event, RunFinished):
            finished = entry.event  # with what was spent
        if self._ended_runs is None:
            self._end(known, finished)
            asyncio.get_running_loop().call_soon(then, None)  # after the tick's `_publish`
            return entry

        def recorded(error: JournalError | None) -> None:
            if known.is_observed:
                if error is not None:  # no viewer may see the end of a run that is lost
                    known.tail.fail(error)
                else:
                    self._end(known, finished)
            known.signalled.wake()
            self._forget(lease.run_id)
            then(error)

        run = known.changed(state=finished.status, owner="", finished=finished, last_seq=entry.seq)
        ended = EndedRun(run, [*known.shown, entry], known.times.with_end(entry.seq, self._clock()))
        self._ended_runs.add(ended, recorded, at_once=waited_for or known.is_observed)
        return entry

    def _end(self, known: MemoryRun, finished: RunFinished) -> None:
        known.set(state=finished.status, owner="", finished=finished)
        known.ended_at = self._clock()
        known.signals.clear()
        known.signalled.wake()
        self._queue(known)

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

    # ── signals ──

    async def signal(self, run_id: str, signal: Signal) -> Signal:
        known = self._run(run_id)
        if known.run.state in ENDED:
            raise RunSealed(f"run {run_id} has ended")
        self._signal_id += 1
        numbered = msgspec.structs.replace(signal, id=self._signal_id)
        known.signals.append(numbered)
        known.signalled.wake()
        return numbered

    async def signals(self, lease: Lease, *, after: int = 0) -> list[Signal]:
        while True:
            known = self._held(lease)
            signalled = known.signalled.next_time()
            if found := [signal for signal in known.signals if signal.id > after]:
                return found
            await signalled.wait()

    async def kept_signals(self, lease: Lease) -> list[Signal]:
        return list(self._held(lease).signals)

    # ── reading ──

    async def get(self, run_id: str) -> Run:
        return self._run(run_id).run

    async def runs(self, **wanted: Unpack[ports.RunFilter]) -> list[Run]:
        found = [known.run for known in self._runs.values() if known.matches(wanted)]
        return sorted(found, key=attrgetter("id"), reverse=True)[: wanted.get("limit", RUNS_LIMIT)]

    async def sessions(
        self, kind: str, *, search: str = "", before: str | None = None, limit: int = RUNS_LIMIT
    ) -> SessionPage:
        wanted, found, by_name = TextSearch(search), list[SessionRuns](), defaultdict[str, list[Run]](list)
        for run in await self.runs(kind=kind, limit=len(self._runs)):  # one pass, whatever number of sessions
            by_name[run.new.session].append(run)
        by_name.pop("", None)
        for name, runs in by_name.items():
            if (before is None or runs[0].id < before) and any(
                wanted.is_in(question_text(run.new.input)) or (run.finished and wanted.is_in(run.finished.output))
                for run in runs
            ):
                found.append(session_of(name, reversed(runs)))
        found.sort(key=lambda session: session.newest.id, reverse=True)
        more = len(found) > limit
        return SessionPage(found[:limit], found[limit - 1].newest.id if more else None)

    async def session(self, session: str, kind: str) -> SessionRuns | None:
        runs = await self.runs(session=session, kind=kind, limit=len(self._runs))
        return session_of(session, reversed(runs)) if session and runs else None

    async def next_run(self, session: str, kind: str, after: str) -> Run:
        watched = self._sessions.watch(session)
        while True:
            begun = watched.next_time()
            runs = await self.runs(session=session, kind=kind, limit=len(self._runs))
            if later := [run for run in runs if run.id > after]:
                return later[-1]
            await begun.wait()

    async def orphans(self) -> list[Run]:
        now = self._clock()
        return [
            known.run
            for known in self._runs.values()
            if known.run.state == "pending" or (known.run.state == "running" and known.lease_until <= now)
        ]

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> Batch:
        known = self._run(run_id)
        entries: list[Entry] = []
        while batch := await self.page(run_id, after):
            entries += batch
            after = batch[-1].seq
            if after >= known.shown[-1].seq or (limit is not None and len(entries) >= limit):
                break
        return Batch(entries[:limit])

    async def page(self, run_id: str, after: int) -> Batch:
        known = self._run(run_id)
        if known.compacted is not None and after < known.compacted[0].seq:
            return Batch((known.compacted[0],))
        return known.tail.entries_after(after) or NOTHING

    async def facts(self, run_id: str) -> list[Entry]:
        known = self._run(run_id)
        kept = known.compacted[1] if known.compacted else []
        return kept + [
            entry for entry in await self.read(run_id, after=known.run.first_seq - 1) if is_fact(entry.event)
        ]

    async def facts_of_runs(self, run_ids: Sequence[str]) -> list[list[Entry]]:
        return [await self.facts(run_id) for run_id in run_ids]

    async def times(self, run_id: str) -> list[tuple[int, float]]:
        known = self._run(run_id)
        if known.compacted is None:
            return list(known.times.pairs)
        kept = timed_stretches(await self.facts(run_id), known.times.pairs)
        return [(entries[0].seq, at) for at, entries in kept if at is not None]

    async def snapshot(self, run_id: str) -> Entry:
        return fold(await self.read(run_id)).entry()

    async def stored_page(self, run_id: str, after: int) -> ports.LogPage:
        batch = await self.page(run_id, after)
        return Batch(batch[: next_page_end(after) - after]).page

    async def attach(self, run_id: str) -> Tail:
        return self._run(run_id).tail

    async def last_seq(self, run_id: str) -> int:
        return self._run(run_id).shown[-1].seq

    # ── keeping ──

    async def compact(self, run_id: str) -> Run:
        known = self._ended(run_id)
        if known.compacted is None:
            known.compact()
        return known.run

    async def delete(self, run_id: str) -> None:
        self._ended(run_id)
        self._forget(run_id)

    def _forget(self, run_id: str) -> None:
        new = self._runs.pop(run_id).new
        if new.idempotency_key:
            self._by_key.pop(new.idempotency_key, None)
        if new.session and self._newest.get(new.session) == run_id:
            del self._newest[new.session]

    # ── the journal itself ──

    @property
    def process(self) -> str:
        return ""

    def is_dead(self, process: str) -> bool:  # noqa: ARG002 - there is no other process
        return False

    async def check(self) -> None:
        """Memory cannot fail."""

    async def close(self) -> None:
        if self._ended_runs is not None:
            await self._ended_runs.close()
        self._publish()
        for known in self._runs.values():
            known.tail.close()

    @property
    def run_ids(self) -> KeysView[str]:
        """Of the runs that are here, now and later."""
        return self._runs.keys()

    def run_with_key(self, idempotency_key: str) -> Run | None:
        run_id = self._by_key.get(idempotency_key)
        return self._runs[run_id].run if run_id else None

    def _run(self, run_id: str) -> MemoryRun:
        if known := self._runs.get(run_id):
            return known
        raise RunNotFound(f"there is no run {run_id}")

    def _held(self, lease: Lease) -> MemoryRun:
        known = self._run(lease.run_id)
        if known.log.epoch != lease.epoch:
            raise StaleEpoch(f"run {lease.run_id} is no longer {lease.owner}'s (claim {lease.epoch})")
        if known.log.refusal is not None:
            raise known.log.refusal
        return known

    def _ended(self, run_id: str) -> MemoryRun:
        known = self._run(run_id)
        if known.run.state not in ENDED:
            raise RunOwned(f"run {run_id} has not ended", owner=known.run.owner)
        return known
