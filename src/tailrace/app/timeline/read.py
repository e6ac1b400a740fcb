"""A run's timeline out of a journal: the log, its times and, of a compacted log, the facts that are left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tailrace.app.costs import Costs
from tailrace.app.timeline.fold import timeline_of
from tailrace.app.timeline.items import Timeline
from tailrace.events import Entry, Snapshot
from tailrace.ports import Journal, Run
from tailrace.providers.prices import load_prices


async def read_log(journal: Journal, run: Run) -> Sequence[Entry]:
    """The whole log. Of a compacted one the facts, after the snapshot that has the tools' durations."""
    entries: Sequence[Entry] = await journal.read(run.id)
    if entries and isinstance(entries[0].event, Snapshot):
        return [entries[0], *await journal.facts(run.id)]
    return entries


async def read_timeline(
    journal: Journal, run_id: str, *, reasoning: bool = False, costs: Costs | None = None
) -> Timeline:
    """Raises `RunNotFound`. `reasoning` and `costs` as of `timeline_of`."""
    run = await journal.get(run_id)
    return await timeline_in(journal, run, await read_log(journal, run), reasoning=reasoning, costs=costs)


async def timeline_in(
    journal: Journal, run: Run, entries: Sequence[Entry], *, reasoning: bool = False, costs: Costs | None = None
) -> Timeline:
    """The timeline of a log that `read_log` has read."""
    times = await journal.times(run.id)
    await load_prices()
    # A long log takes a while: meanwhile the loop serves others.
    return await asyncio.to_thread(timeline_of, run, entries, times, reasoning=reasoning, costs=costs)
