"""After a death: unfinished runs are taken over, and the one that keeps killing is put aside.

Owns the decision, for any journal. What a run does next is its runner's: it gets the lease and the facts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias

import msgspec

from tailrace.errors import RunNotFound, RunOwned, RunParked, RunSealed
from tailrace.events import AnyEvent, Entry, MessageStop, RunFailure, RunFinished, Snapshot
from tailrace.journal.fold import SEQUENCE
from tailrace.ports import Journal, Lease, Run, Signal

MAX_KILLS = 3


class Recovered(msgspec.Struct, frozen=True):
    """An unfinished run, claimed: whoever gets it executes it, seals it or gives it back."""

    run: Run
    lease: Lease
    facts: list[Entry]


async def recover(
    journal: Journal,
    owner: str,
    *,
    kind: str | None = None,
    session: str | None = None,
    lease_s: float = 30.0,
    max_kills: int = MAX_KILLS,
) -> AsyncIterator[Recovered]:
    """Claims what no living process owns, of one kind or session where it is named, oldest first, one at a time: a run
    is claimed when it is asked for.

    I102: a run whose last `max_kills` owners died while they had it is parked and not handed out.
    """
    for orphan in await journal.orphans():
        if kind not in (None, orphan.new.kind) or session not in (None, orphan.new.session):
            continue
        try:
            lease = await journal.claim(orphan.id, owner, lease_s=lease_s)
            run = await journal.get(orphan.id)
        except (RunOwned, RunSealed, RunParked, RunNotFound):
            continue  # another process was faster
        if run.kills >= max_kills:
            await journal.park(lease, _crash_loop(run))
        else:
            yield Recovered(run, lease, await journal.facts(run.id))


def _crash_loop(run: Run) -> RunFailure:
    return RunFailure(
        "crash_loop",
        f"the process died {run.kills} times while it executed this run, so it is set aside; "
        f"find out why before you let it go on, or end it: tailrace stop {run.id}",
    )


LastWords: TypeAlias = Callable[[Run, Sequence[Entry]], Sequence[AnyEvent]]


def nothing(_run: Run, _entries: Sequence[Entry]) -> Sequence[AnyEvent]:
    return ()


async def stop(
    journal: Journal, run_id: str, owner: str, *, at: float, by: str = "", last_words: LastWords = nothing
) -> Run:
    """Asks whoever executes the run to stop; a run that nobody executes is ended here and now, after whatever
    `last_words` makes of its log. `at` is the wall clock. Returns it as it is afterwards: `state` says whether it has
    ended. Raises `RunSealed` when it had ended before."""
    run = await journal.get(run_id)
    if run.state == "parked":
        await journal.unpark(run_id)
    await journal.signal(run_id, Signal("stop", by=by))
    try:
        lease = await journal.claim(run_id, f"{owner}, to stop it")  # not `owner`, who may be executing it
    except RunOwned:
        return await journal.get(run_id)
    events = [*last_words(run, await journal.read(run_id))]
    if run.new.kind != SEQUENCE:
        events.append(MessageStop(final=True))
    state = await journal.snapshot(run_id)
    if not isinstance(state.event, Snapshot):
        raise TypeError(state)
    if events:
        journal.append(lease, events, attempt=state.attempt)
    await journal.seal(lease, RunFinished("stopped", state.event.output, state.event.usage, at=at))
    return await journal.get(run_id)
