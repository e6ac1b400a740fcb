"""Prints lists of runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from tailrace.app.costs import Costs
from tailrace.app.timeline.overviews import overviews_of
from tailrace.cli.run_names import short_ids
from tailrace.cli.runs.console import console_for
from tailrace.cli.runs.table import cells_of, table
from tailrace.config.load import Config
from tailrace.flows.definition.public_ids import public_id
from tailrace.ports import Journal, Run


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
