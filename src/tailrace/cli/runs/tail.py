"""Prints a run's log as it is written, until the run has ended."""

from __future__ import annotations

import sys

from tailrace.cli.main import DONE, FAILED, INCOMPLETE
from tailrace.cli.runs.tail_printer import TailPrinter
from tailrace.events import RunFinished, RunStatus, entry_to_json
from tailrace.journal.viewed_lines import in_short
from tailrace.ports import Journal, Run
from tailrace.runs.recovery import follow

EXIT: dict[RunStatus, int] = {"completed": DONE, "incomplete": INCOMPLETE, "failed": FAILED, "stopped": INCOMPLETE}


async def tail_run(journal: Journal, run: Run, *, after: int = 0, as_json: bool = False) -> int:
    """Prints the log to stdout until the run has ended. Returns the exit code of its status."""
    status: RunStatus = "completed"
    printer = TailPrinter(run.last_seq)
    async for batch in follow(journal, run.id, after=after):
        entries = list(in_short(batch))
        if as_json and entries:
            sys.stdout.write("".join(f"{entry_to_json(entry).decode()}\n" for entry in entries))
        elif not as_json:
            sys.stdout.write("".join(map(printer.text_of, entries)))
        sys.stdout.flush()
        if isinstance(batch[-1].event, RunFinished):
            status = batch[-1].event.status
    return EXIT[status]
