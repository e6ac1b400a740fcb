"""The one host of runs: starts them, executes each in a task of its own with the lease held, and sees to its end.

Owns the life of a run in this process, for every kind; what a run does is its execution's business. A run comes in by
`start_run`, or from a process that is gone. It leaves in one of four ways: its execution sealed it; it failed and the
host sealed it; another process took it over; the host released it.

Five words for "not here, not now": `release` lets any process claim a run; `_defer` releases it after a failure and
waits before the next try; `hand_over_run` releases it because this process is about to end; `pin` excepts it from that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from tailrace.errors import JournalError, RunSealed, StaleEpoch, StorageFailed, TailraceError
from tailrace.events import AnyEvent, Entry, RunFailure, RunFinished, UsageRecorded
from tailrace.journal.storage_wait import PATIENCE_S, warning_level
from tailrace.ports import Journal, Lease, NewRun, Run
from tailrace.providers.open_attempt import OpenAttempt, open_attempts
from tailrace.providers.recovery_log import CURRENT_RUN
from tailrace.runs.charged_to import CHARGED_TO, charged_to
from tailrace.runs.failures import unexpected_failure
from tailrace.runs.lease import LEASE_S, RENEWALS_PER_LEASE, HeldLease
from tailrace.runs.processes import Processes, RunShare
from tailrace.runs.recovery import MAX_KILLS, ClaimedRun, LeftCalls, ended, finished, recover, seal_as, take_over
from tailrace.runs.recovery import stop as stop_run
from tailrace.runs.signals import stop_failure, stop_signal

LONGEST_PAUSE_S = 15.0  # between two looks for abandoned runs while looking fails, and two tries of a run that fails
TICKS_TO_REPORT = 3  # of the loop: viewers hear of a run's end before its own task does
MAX_DEFERRED = 1024  # runs
SUSPECTED = MAX_KILLS - 1  # kills of a run that the next one parks
LOOKS_PER_PAUSE = 10  # while a suspected run is executed: others may wait for its end
OnEnd = Callable[[Run, RunFinished], None]
OnRunning = Callable[[int], None]


class Execution(Protocol):
    """One run under way."""

    async def run(self) -> RunFinished | None:
        """Executes the run and seals it; returns how it ended, None where it was left unfinished. Cancelled, it leaves
        the run as it is: another process goes on with it. Raises `StaleEpoch` or `RunSealed` where the lease is lost;
        anything else it raises fails the run."""


E = TypeVar("E", bound=Execution)


class _Hosted(msgspec.Struct, Generic[E]):
    run: Run
    execution: E | None  # None: it could not be made
    task: asyncio.Task[None]
    alone_until: float = 0.0  # the loop's clock: no other suspected run is taken over before
    stopping: RunFailure | None = None  # set once this process has signalled it to stop: the failure of its end
    pinned: bool = False  # it is not handed over to the next process


class _Deferred(msgspec.Struct, frozen=True):
    """A run that was released after a failure, and is not taken up again by this host before `until`."""

    tries: int = 0
    until: float = 0.0  # the loop's clock


class RunHost(ABC, Generic[E]):
    """The runs of one kind in one process; a service for a kind of run is a subclass. Use it as an async context
    manager: leaving cancels the runs and releases them."""

    def __init__(
        self,
        journal: Journal,
        kind: str,
        *,
        owner: str,
        log: logging.Logger,
        lease_s: float = LEASE_S,
        on_end: OnEnd | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`on_end` is called with each run that ended here and must return quickly. `clock` is the wall clock."""
        self._journal = journal
        self._kind = kind
        self._owner = owner
        self._log = log
        self._lease_s = lease_s
        self._on_end = on_end
        self.on_running: OnRunning | None = None  # called with the number of runs here, whenever it changes
        self.left_calls: LeftCalls | None = None
        self._clock = clock
        self._hosted: dict[str, _Hosted[E]] = {}
        self._deferred: dict[str, _Deferred] = {}
        self._closed = False
        self._claiming = asyncio.Lock()  # two claims of one run by the same owner would fence each other off

    # ── what a subclass defines ──────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _execution(self, claimed: ClaimedRun) -> E:
        """The execution of this run. An exception of this method fails the run."""

    def _wants(self, _run: Run) -> bool:
        """Whether a run of the kind is this host's to take over."""
        return True

    def _failure_of(self, error: Exception) -> RunFailure:
        return unexpected_failure(error)

    def _defers(self, error: Exception, _tries: int) -> bool:
        """Whether a run that raised this is released unfinished and tried again, here or by another process, after a
        pause that grows. `_tries` counts such failures of the run in this host, with this one. By default where storage
        failed: a run that cannot be written can neither go on nor be ended now."""
        return isinstance(error, StorageFailed)

    async def _before_park(self, _run: Run) -> None:
        """Called before a run is set aside that killed its owners. May be called again for the same run."""

    def _on_failed(self, _run: Run, _failure: RunFailure) -> None:
        """Called when the host has ended a run as failed. Must return quickly."""

    async def _last_words(self, _run: Run, _entries: Sequence[Entry]) -> Sequence[AnyEvent]:
        """What completes the log of a run that is stopped while no process executes it."""
        return ()

    # ── its life ─────────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in range(TICKS_TO_REPORT):
            await asyncio.sleep(0)
        self._closed = True
        await self.release()
        await self._group.__aexit__(None, None, None)

    # ── runs come in ─────────────────────────────────────────────────────────────────────────────────────────

    async def start_run(
        self, new: NewRun, events: Sequence[AnyEvent] = (), execution: Callable[[ClaimedRun], E] | None = None
    ) -> Run:
        """A run that has begun, with these events after its first; it goes on whether or not a viewer watches it. With
        a known idempotency key, the run that has it, as it is. `execution` saves reading the run's input back."""
        asked_at = asyncio.get_running_loop().time()
        run, lease = await self._journal.start(new, self._owner, lease_s=self._lease_s)
        if lease is not None:
            if events:
                self._journal.append(lease, events)
            if self._closed:  # since it was asked for
                await self._hand_over_lease(run, lease)
                return run
            entries = [Entry(run.last_seq + number, event) for number, event in enumerate(events, 1)]
            self._go_on(ClaimedRun(run, lease, entries, asked_at), execution)
        return run

    def begin_run(self, new: NewRun, execution: Callable[[ClaimedRun], E] | None = None) -> Run | None:
        """As `start_run`, for a caller that waits for what the run logs: the run goes on while it is recorded. None
        where that cannot be, and `start_run` is for it."""
        if self._closed or (begun := self._journal.begin(new, self._owner, lease_s=self._lease_s)) is None:
            return None
        self._go_on(ClaimedRun(*begun), execution)
        return begun[0]

    async def _hand_over_lease(self, run: Run, lease: Lease) -> None:
        """Releases a run that was begun while this process ends: another one goes on with it at once. Raises
        `JournalError` where none can."""
        if run.new.durability == "memory":
            raise JournalError(f"run {run.id} cannot be executed: this process ends")
        await self._journal.release(lease)

    async def recover(
        self,
        *,
        session: str | None = None,
        is_next: Callable[[Run], bool] | None = None,
        orphans: Sequence[Run] | None = None,
    ) -> list[str]:
        """Goes on with the unfinished runs of processes that are gone, of one session where it is named, oldest first;
        returns their ids. A run that is executed here is never among them, even where its lease ran out while the
        machine was suspended (L146). `is_next` says which of them are this process's; `orphans` saves asking the
        journal for them."""

        def abandoned(run: Run) -> bool:
            ours = run.new.kind == self._kind and run.id not in self._hosted and not self._is_deferred(run.id)
            wanted = ours and session in (None, run.new.session) and self._wants(run)
            return wanted and (is_next is None or is_next(run)) and not self.must_wait(run)

        def defer(run: Run, error: JournalError) -> None:
            self._defer(run.id)
            self._log.warning("run %s cannot be taken over: %s", run.id, error)

        found: list[str] = []
        async with self._claiming:
            async for claimed in recover(
                self._journal,
                self._owner,
                wanted=abandoned,
                orphans=orphans,
                lease_s=self._lease_s,
                on_unreadable=defer,
                before_park=self._before_park,
            ):
                if self._closed:
                    await self._hand_over_lease(claimed.run, claimed.lease)
                    break
                self._go_on(claimed)
                found.append(claimed.run.id)
        return found

    async def take_over(self, run_id: str) -> bool:
        """Goes on with this run, unless it has ended, is parked, or is executed here or by another living process."""
        if run_id in self._hosted:
            return False  # without waiting for a claim of another run
        async with self._claiming:
            if run_id in self._hosted:
                return False
            claimed = await take_over(
                self._journal, run_id, self._owner, lease_s=self._lease_s, before_park=self._before_park
            )
            if claimed is not None and self._closed:
                await self._hand_over_lease(claimed.run, claimed.lease)
                return False
            if claimed is not None:
                self._go_on(claimed)
            return claimed is not None

    def must_wait(self, run: Run) -> bool:
        """I102: a death of this process counts against every run that it has, so of those that another death would
        park it takes one at a time. Each has a lease's time alone; then it is no longer likely to kill."""
        if run.kills + 1 < SUSPECTED or run.state != "running":
            return False
        now = asyncio.get_running_loop().time()
        return any(hosted.alone_until > now for hosted in self._hosted.values())

    async def see_to_end(self, run_id: str) -> None:
        """Returns when the run has ended, or was parked, in whichever process. Where its process is gone or hangs, this
        one goes on with it."""
        while True:
            await self.take_over(run_id)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease_s):
                    await ended(self._journal, run_id)
                    return

    async def keep_recovering(
        self, processes: Processes | None = None, *, at_once: bool = False, shared: bool = True
    ) -> None:
        """As the function of this name, for this host alone. Never returns: cancel it."""
        processes = processes or Processes(self._journal, self._owner, lease_s=self._lease_s)
        await keep_recovering([self], processes, at_once=at_once, shared=shared)

    def _go_on(self, claimed: ClaimedRun, make: Callable[[ClaimedRun], E] | None = None) -> None:
        run = claimed.run
        self._count_lost(run, claimed.lost)
        execution: E | Exception
        try:
            execution = (make or self._execution)(claimed)
        except Exception as exc:  # noqa: BLE001 - it fails this run and no other
            execution = exc
        task = self._group.create_task(self._host(run, claimed.lease, execution, claimed.asked_at), name=run.id)
        alone_until = asyncio.get_running_loop().time() + self._lease_s if run.kills >= SUSPECTED else 0.0
        self._hosted[run.id] = _Hosted(run, None if isinstance(execution, Exception) else execution, task, alone_until)
        self._count_running()
        task.add_done_callback(lambda _: self._drop(run.id))

    def _drop(self, run_id: str) -> None:
        del self._hosted[run_id]
        self._count_running()

    def _count_running(self) -> None:
        if self.on_running is not None:
            self.on_running(len(self._hosted))

    # ── runs under way ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(self._hosted)

    @property
    def executions(self) -> list[E]:
        """What is executed here, in the order in which it came in."""
        return [hosted.execution for hosted in self._hosted.values() if hosted.execution is not None]

    def execution_of(self, run_id: str) -> E | None:
        """The run's execution, where it is executed here."""
        return hosted.execution if (hosted := self._hosted.get(run_id)) is not None else None

    def tasks_of(self, session: str) -> dict[str, asyncio.Task[None]]:
        """The tasks of the session's runs that are executed here, by run id; the oldest run first."""
        hosted = [one for one in self._hosted.values() if one.run.new.session == session]
        return {one.run.id: one.task for one in sorted(hosted, key=lambda one: one.run.id)}

    def stopping(self, run_id: str) -> RunFailure | None:
        """The failure that the end of a run will have, where it is executed here and was signalled to stop."""
        return hosted.stopping if (hosted := self._hosted.get(run_id)) is not None else None

    async def stop(self, run_id: str, *, by: str = "", newer: bool = False) -> None:
        """Ends the run as `stopped`, in whichever process it is. A no-op for a run that has ended. `newer`: a newer
        message of its session takes its place."""
        signal = stop_signal(by=by, newer=newer)
        with contextlib.suppress(RunSealed):
            if (hosted := self._hosted.get(run_id)) is not None:
                hosted.stopping = hosted.stopping or stop_failure(signal)
                await self._journal.signal(run_id, signal)
            else:
                await self._stop_elsewhere(run_id, by, newer=newer)

    async def _stop_elsewhere(self, run_id: str, by: str, *, newer: bool = False) -> None:
        left: list[OpenAttempt] = []  # where the run is ended here

        async def last_words(run: Run, entries: Sequence[Entry]) -> Sequence[AnyEvent]:
            left.extend(open_attempts(entries).values())
            for attempt in left:  # before the end is on record: a process that dies here leaves it to the next one
                if attempt.resumable is not None and self.left_calls is not None:
                    try:
                        await self.left_calls.cancel(attempt.resumable)
                    except TailraceError as exc:
                        self._log.info("the answer of run %s was not cancelled at its provider: %s", run_id, exc)
            return await self._last_words(run, entries)

        at = self._clock()
        run = await stop_run(self._journal, run_id, self._owner, at=at, by=by, newer=newer, last_words=last_words)
        self._count_lost(run, [lost for attempt in left if (lost := attempt.lost_usage) is not None])

    def _count_lost(self, run: Run, lost: Sequence[UsageRecorded]) -> None:
        if lost and self.left_calls is not None:
            charged = CHARGED_TO.set(charged_to(run))
            for recorded in lost:
                self.left_calls.count(recorded)
            CHARGED_TO.reset(charged)

    async def finished(self, run_id: str) -> RunFinished:
        """How the run ended, once it has, in whichever process; where it is executed here, once that was reported.
        Raises `RunParked` for a run that is set aside."""
        await self.left(run_id)
        return await finished(self._journal, run_id)

    async def left(self, run_id: str) -> None:
        """Returns when this process no longer executes the run."""
        if (hosted := self._hosted.get(run_id)) is not None:
            await asyncio.wait([hosted.task])

    async def drain(self, timeout_s: float) -> None:
        """Waits so long for the runs to end. Those that have not are released when the host is closed."""
        if self._hosted:
            await asyncio.wait([hosted.task for hosted in self._hosted.values()], timeout=timeout_s)

    def hand_over_run(self, run_id: str, why: str) -> bool:
        """Releases the run to the next process, where it is executed here and another one can go on with it; returns
        whether it does. For a process that is about to end: until then it may take the run up again."""
        if not self._can_hand_over(run_id):
            return False
        self._log.info("run %s %s, and is handed over to the next process", run_id, why)
        self._hosted[run_id].task.cancel()
        return True

    def pin(self, run_id: str) -> None:
        """Keeps the run in this process: a client waits for its end and cannot come back for it."""
        if (hosted := self._hosted.get(run_id)) is not None:
            hosted.pinned = True

    def _can_hand_over(self, run_id: str) -> bool:
        hosted = self._hosted.get(run_id)
        if hosted is None or hosted.pinned:
            return False
        return hosted.run.new.durability != "memory" and hosted.stopping is None

    async def release(self, *, lasting: bool = False) -> bool:
        """Cancels the runs; other processes go on with them. `lasting`: except for runs that are in this process's
        memory alone, which no other can continue. Returns whether there was any."""
        hosted = [one for one in self._hosted.values() if not lasting or one.run.new.durability != "memory"]
        for one in hosted:
            one.task.cancel()
        if hosted:
            await asyncio.wait([one.task for one in hosted])
        return bool(hosted)

    # ── runs leave ───────────────────────────────────────────────────────────────────────────────────────────

    async def _host(self, run: Run, lease: Lease, execution: E | Exception, asked_at: float | None) -> None:
        """The top of a run's task: its failure is its own and ends no other run."""
        CURRENT_RUN.set(run.id)
        CHARGED_TO.set(charged_to(run))
        PATIENCE_S.set(None)  # the request that started the run may have set it
        try:
            held = HeldLease(self._journal, lease, lease_s=self._lease_s, asked_at=asked_at)
            async with held:
                held.finished = finished = await self._execute(run, lease, execution)
                if finished is not None and self._on_end is not None:
                    self._on_end(run, finished)
        except JournalError as exc:
            self._log.log(warning_level(exc), "run %s was not released: %s", run.id, exc)
        except Exception:  # noqa: BLE001 - logged
            self._log.exception("the end of run %s could not be reported", run.id)

    async def _execute(self, run: Run, lease: Lease, execution: E | Exception) -> RunFinished | None:
        if isinstance(execution, Exception):
            return await self._fail(run, lease, execution)
        try:
            finished = await execution.run()
        except (StaleEpoch, RunSealed):
            self._log.warning("run %s was taken over by another process", run.id)
            return None
        except Exception as exc:  # noqa: BLE001 - whatever it is, the run ends and says so
            if self._defers(exc, self._deferred.get(run.id, _Deferred()).tries + 1):
                self._defer(run.id)
                level = warning_level(exc)
                self._log.log(level, "run %s is released and will be taken up again: %s", run.id, exc)
                return None
            return await self._fail(run, lease, exc)
        self._deferred.pop(run.id, None)
        if finished is not None and finished.status in ("failed", "incomplete"):
            reason = finished.error.message if finished.error is not None else "no reason given"
            self._log.info("run %s is %s: %s", run.id, finished.status, reason)
        return finished

    def _is_deferred(self, run_id: str) -> bool:
        return self._deferred.get(run_id, _Deferred()).until > asyncio.get_running_loop().time()

    def _defer(self, run_id: str) -> None:
        tries = self._deferred.pop(run_id, _Deferred()).tries + 1
        pause_s = min(LONGEST_PAUSE_S, self._lease_s / RENEWALS_PER_LEASE * 2 ** min(tries - 1, 16))
        self._deferred[run_id] = _Deferred(tries, asyncio.get_running_loop().time() + pause_s)
        if len(self._deferred) > MAX_DEFERRED:
            del self._deferred[next(iter(self._deferred))]

    async def _fail(self, run: Run, lease: Lease, error: Exception) -> RunFinished | None:
        """Ends the run with what its log shows. One that cannot be ended is left for the next process."""
        level = logging.INFO if isinstance(error, TailraceError) else logging.ERROR
        self._log.log(level, "run %s failed: %s", run.id, error, exc_info=_unless_ours(error))
        failure = self._failure_of(error)
        seal = partial(seal_as, self._journal, run, status="failed", at=self._clock(), error=failure)
        try:
            try:
                finished = await seal(lease=lease)
            except (StaleEpoch, RunSealed):
                raise
            except JournalError:  # a lease is void once storage has refused an entry; a new claim is not
                finished = await seal(lease=await self._journal.claim(run.id, self._owner, lease_s=self._lease_s))
        except JournalError as exc:
            self._log.warning("run %s failed and could not be ended: %s", run.id, exc)
            return None
        self._deferred.pop(run.id, None)
        self._on_failed(run, failure)
        return finished


async def keep_recovering(
    hosts: Sequence[RunHost[Any]], processes: Processes, *, at_once: bool = False, shared: bool = True
) -> None:
    """Goes on with the runs of other processes when those die, or hang for longer than their leases (L145), within two
    leases, and at once with those that a process hands over. `at_once`: also with the runs of processes that are dead
    already. `shared`: the living `processes` share such runs; otherwise this one takes all. One query serves all hosts,
    which are of one process. Never returns: cancel it."""
    first = hosts[0]
    interval_s = first._lease_s / RENEWALS_PER_LEASE
    pause_s = 0.0 if at_once else interval_s
    share = RunShare(processes, patience_s=interval_s / 2) if shared and processes.entered else None
    received = processes.hand_overs
    while True:
        await processes.wait_for_hand_over(pause_s, received=received)
        received = processes.hand_overs
        if share is not None:
            share.begin_look()
        try:
            orphans = await first._journal.orphans()
            for host in hosts if orphans else ():
                found = await host.recover(is_next=share.has if share is not None else None, orphans=orphans)
                for run_id in found:
                    host._log.info("going on with run %s, whose process is gone or silent", run_id)
        except Exception as exc:  # noqa: BLE001 - logged; the loop must go on
            pause_s = min(LONGEST_PAUSE_S, max(interval_s, pause_s * 2))
            level = warning_level(exc)
            first._log.log(level, "abandoned runs cannot be looked for: %s", exc, exc_info=_unless_ours(exc))
        else:
            suspected = any(hosted.alone_until for host in hosts for hosted in host._hosted.values())
            pause_s = interval_s / (LOOKS_PER_PAUSE if suspected else 1)


def _unless_ours(error: Exception) -> Exception | None:
    """What a log line shows a traceback of: an error of our own says enough in its message."""
    return None if isinstance(error, TailraceError) else error
