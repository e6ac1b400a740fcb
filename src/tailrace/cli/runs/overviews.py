"""Reads and prints lists of runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from tailrace.app.costs import Costs
from tailrace.app.timeline.run_overview import RunOverview, overview_of
from tailrace.cli.run_names import short_ids
from tailrace.cli.runs.console import console_for
from tailrace.cli.runs.table import cells_of, table
from tailrace.config.load import Config
from tailrace.flows.definition.public_ids import public_id
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


async def print_runs(journal: Journal, runs: Sequence[Run], config: Config) -> None:
    """A table on stdout, for a terminal or a pipe."""
    now = time.time()
    overviews = await overviews_of(journal, runs, now=now)
    costs = Costs(config)
    await costs.load(spent for each in overviews for spent in each.spent)
    console = console_for(sys.stdout)
    names = short_ids(runs) if console.is_terminal else {run.id: public_id(run) for run in runs}
    rows = [cells_of(each, name=names[each.id], cost=costs.of(each.spent), now=now) for each in overviews]
    for line in table(rows, console.width if console.is_terminal else None):
        console.print(line, soft_wrap=True)
