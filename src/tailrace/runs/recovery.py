"""Runs that no living process executes: taken over, parked where they keep killing their owners, or ended.

Owns the decision, for any journal and any kind, and the usage of the attempts that ended with the dead process. What a
run does next is its execution's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from tailrace.errors import JournalError, RunNotFound, RunOwned, RunParked, RunSealed, StorageFailed
from tailrace.events import (
    AnyEvent,
    Entry,
    GatewayNotice,
    MessageStop,
    RunFailure,
    RunFinished,
    RunStatus,
    Snapshot,
    UsageRecorded,
)
from tailrace.journal.fold import SEQUENCE
from tailrace.ports import CRASH_LOOP, Batch, Journal, Lease, LogPage, Run
from tailrace.providers.open_attempt import ResumableAnswer, open_attempts
from tailrace.runs.lease import LEASE_S
from tailrace.runs.signals import stop_failure, stop_signal

MAX_KILLS = 3
_ITERATED: frozenset[type[AnyEvent]] = frozenset({RunFinished, GatewayNotice})
_NOTICE = b"gateway_notice"  # the last entry of a run that was just parked


class ClaimedRun(msgspec.Struct, frozen=True):
    """A run that this process may write: the claimant executes it, seals it or gives it back."""

    run: Run
    lease: Lease
    entries: Sequence[Entry] = ()  # its log so far; empty where it begins here
    asked_at: float | None = None  # when the lease was asked for, on the loop's clock; None: just now
    lost: tuple[UsageRecorded, ...] = ()  # what of it an attempt has used that ended with the dead process


class LeftCalls(Protocol):
    """What becomes of the model calls that dead processes left behind."""

    def count(self, lost: UsageRecorded) -> None:
        """Counts what an attempt has used that ended with its process, once it is on record."""

    async def cancel(self, answer: ResumableAnswer) -> None:
        """Tells the provider to stop making an answer of a run that has ended. Raises `TailraceError`."""


async def recover(
    journal: Journal,
    owner: str,
    *,
    wanted: Callable[[Run], bool] = lambda _: True,
    orphans: Sequence[Run] | None = None,
    lease_s: float = LEASE_S,
    max_kills: int = MAX_KILLS,
    on_unreadable: Callable[[Run, JournalError], None] | None = None,
    before_park: Callable[[Run], Awaitable[None]] | None = None,
) -> AsyncIterator[ClaimedRun]:
    """The wanted runs that no living process executes, oldest first. Each is claimed when the iterator reaches it.
    `orphans` are those that the journal has just listed; without it the journal is asked. `on_unreadable` is called
    with a run that cannot be taken over, and the runs after it follow; without it the error is raised. `StorageFailed`
    is always raised: it concerns every run."""
    for orphan in await journal.orphans() if orphans is None else orphans:
        if not wanted(orphan):
            continue
        try:
            claimed = await take_over(
                journal, orphan.id, owner, lease_s=lease_s, max_kills=max_kills, before_park=before_park
            )
        except StorageFailed:
            raise
        except JournalError as exc:
            if on_unreadable is None:
                raise
            on_unreadable(orphan, exc)
            continue
        if claimed is not None:
            yield claimed


async def take_over(
    journal: Journal,
    run_id: str,
    owner: str,
    *,
    lease_s: float = LEASE_S,
    max_kills: int = MAX_KILLS,
    before_park: Callable[[Run], Awaitable[None]] | None = None,
) -> ClaimedRun | None:
    """The run, claimed; None where it has ended, is parked, or another process has it. `before_park` is called with a
    run that is about to be parked.

    I102: a run whose last `max_kills` owners died while they had it is parked, unless it made progress meanwhile: a
    death after which less is left to do than before does not count.
    """
    asked_at = asyncio.get_running_loop().time()
    try:
        lease = await journal.claim(run_id, owner, lease_s=lease_s)
    except (RunOwned, RunSealed, RunParked, RunNotFound):
        return None
    try:
        run = await journal.get(run_id)
        if run.kills >= max_kills:
            if before_park is not None:
                await before_park(run)
            message = (
                f"the process died {run.kills} times while it executed this run, which got no further meanwhile, so it "
                f"is set aside; find out why before you let it go on, or end it: tailrace stop {run.id}"
            )
            await journal.park(lease, RunFailure(CRASH_LOOP, message), kills=max_kills)
            return None
        return await _counted(journal, ClaimedRun(run, lease, await journal.read(run_id), asked_at))
    except BaseException:
        await journal.release(lease)
        raise


async def _counted(journal: Journal, claimed: ClaimedRun) -> ClaimedRun:
    """Puts on record what attempts have used that ended with the dead process. An attempt whose answer is resumable is
    counted by the one that reattaches to it."""
    lost: list[Entry] = []
    for attempt in open_attempts(claimed.entries).values():
        if attempt.resumable is None and (recorded := attempt.lost_usage) is not None:
            journal.append(claimed.lease, [recorded], attempt=attempt.number)
            lost.append(Entry(claimed.entries[-1].seq + len(lost) + 1, recorded, attempt.number))
    if not lost:
        return claimed
    await journal.commit(claimed.lease)
    usages = tuple(entry.event for entry in lost if isinstance(entry.event, UsageRecorded))
    return msgspec.structs.replace(claimed, entries=[*claimed.entries, *lost], lost=usages)


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────

LastWords: TypeAlias = Callable[[Run, Sequence[Entry]], Awaitable[Sequence[AnyEvent]]]


async def stop(
    journal: Journal,
    run_id: str,
    owner: str,
    *,
    at: float,
    by: str = "",
    newer: bool = False,
    last_words: LastWords | None = None,
) -> Run:
    """Signals the process that executes the run to stop. A run that no process executes is ended here, after what its
    open attempts have used and the events that `last_words` makes of its log. `at` is the wall clock; `by` and `newer`
    as in `stop_signal`. Returns the run as it is afterwards: `state` says whether it has ended. Raises `RunSealed` when
    it had ended before."""
    run = await journal.get(run_id)
    signal = stop_signal(by=by, newer=newer)
    if run.state == "parked":
        await journal.unpark(run_id)
    await journal.signal(run_id, signal)
    try:
        lease = await journal.claim(run_id, f"{owner}, to stop it")  # not `owner`, who may be executing it
    except (RunOwned, RunSealed):  # sealed: its process has taken the signal meanwhile
        return await journal.get(run_id)
    entries = await journal.read(run_id)
    used = [recorded for each in open_attempts(entries).values() if (recorded := each.lost_usage) is not None]
    words = [*used, *(await last_words(run, entries) if last_words is not None else ())]
    error = stop_failure(signal) if run.new.kind != SEQUENCE else None
    await seal_as(journal, run, lease, "stopped", at=at, error=error, events=words)
    return await journal.get(run_id)


async def seal_as(
    journal: Journal,
    run: Run,
    lease: Lease,
    status: RunStatus,
    *,
    at: float,
    error: RunFailure | None = None,
    events: Sequence[AnyEvent] = (),
) -> RunFinished:
    """Ends the run from outside its execution, with what its log shows and these events."""
    state = await journal.snapshot(run.id)
    if not isinstance(state.event, Snapshot):
        raise TypeError(state)
    if run.new.kind != SEQUENCE and not any(text.final for text in state.event.messages):
        events = (*events, MessageStop(final=True))
    if events:
        journal.append(lease, events, attempt=state.attempt)
    used = (event.usage for event in events if isinstance(event, UsageRecorded))
    finished = RunFinished(status, state.event.output, sum(used, state.event.usage), error, at)
    await journal.seal(lease, finished)
    return finished


async def ended(journal: Journal, run_id: str) -> RunFinished | RunFailure:
    """How the run ended, once it has, or why it was parked; in whichever process. Raises `JournalError` where the
    journal is closed before."""
    run = await journal.get(run_id)
    if outcome := run.finished or run.parked:
        return outcome
    begun = False
    async for batch in journal.tail(run_id, snapshot=True):
        if isinstance(last := batch[-1].event, RunFinished):
            return last
        if not begun or any(isinstance(entry.event, GatewayNotice) and entry.event.kind == "parked" for entry in batch):
            begun = True  # what happened before the first batch is in the run's state alone
            run = await journal.get(run_id)
            if outcome := run.finished or run.parked:
                return outcome
    raise JournalError(f"run {run_id} has not ended")


async def finished(journal: Journal, run_id: str) -> RunFinished:
    """How the run ended, once it has. Raises `RunParked` for one that is set aside."""
    outcome = await ended(journal, run_id)
    if isinstance(outcome, RunFailure):
        raise _parked(run_id, outcome)
    return outcome


async def follow(
    journal: Journal,
    run_id: str,
    *,
    after: int = 0,
    snapshot: bool = False,
    take: Callable[[Batch], bool] | None = None,
    run: Run | None = None,
) -> AsyncGenerator[Batch, None]:
    """The entries after the cursor and those to come, for a viewer that waits for the end: where the run is set aside
    there is none, so that `RunParked` is raised after its last entry. Otherwise as `Journal.tail`. `take` may have what
    is committed while the run goes on, as `LogViewer.follow` says; what it refuses, notices and the end are among
    the batches. `run`: as it has just been begun or read, where the caller has it."""
    if run is None:
        run = await journal.get(run_id)
    if run.parked is not None and after >= run.last_seq:
        raise _parked(run_id, run.parked)
    viewer = journal.tail(run_id, after=after, snapshot=snapshot)
    async for batch in viewer:
        yield batch
        last = batch[-1]  # nothing follows the notice unless the run goes on
        if last.event.__class__ is GatewayNotice and last.event.kind == "parked":
            run = await journal.get(run_id)
        if run.parked is not None and last.seq >= run.last_seq:
            raise _parked(run_id, run.parked)
        if take is not None:
            await viewer.follow(take, except_for=_ITERATED)


async def follow_pages(journal: Journal, run_id: str, *, after: int = 0) -> AsyncGenerator[LogPage, None]:
    """The same as they are stored, in pages that viewers share: as `Journal.tail_pages`."""
    run = await journal.get(run_id)
    if run.parked is not None and after >= run.last_seq:
        raise _parked(run_id, run.parked)
    async for page in journal.tail_pages(run_id, after=after):
        last = page[-1]
        yield page
        del page
        if last.type == _NOTICE:
            run = await journal.get(run_id)
        if run.parked is not None and last.seq >= run.last_seq:
            raise _parked(run_id, run.parked)


def _parked(run_id: str, failure: RunFailure) -> RunParked:
    return RunParked(f"run {run_id} is parked: {failure.message}")
