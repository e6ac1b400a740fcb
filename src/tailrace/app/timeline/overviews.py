"""Reads lists of runs from the journal, each run in one line for people."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.app.timeline.run_overview import RunOverview, overview_of
from tailrace.ports import Journal, Run

PAGE = 50  # runs whose facts are read at a time


async def overviews_of(journal: Journal, runs: Sequence[Run], *, now: float) -> list[RunOverview]:
    """In the same order. `now` is the wall clock."""
    orphans = {run.id for run in await journal.orphans()} if any(run.state == "running" for run in runs) else set()
    overviews: list[RunOverview] = []
    for start in range(0, len(runs), PAGE):
        some = runs[start : start + PAGE]
        logs = await journal.facts_of_runs([run.id for run in some])
        overviews += [
            overview_of(run, facts, now=now, orphaned=run.id in orphans) for run, facts in zip(some, logs, strict=True)
        ]
    return overviews
