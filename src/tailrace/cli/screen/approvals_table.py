"""What was approved with "always", as a table: what it is stands last and takes the room that is left. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from tailrace.app.approvals import AlwaysApproval
from tailrace.cli.screen.fitted_table import Column, FittedTable
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.runs.approval_words import SHORT_ID

MAX_NAME: Final = 40  # columns of a tool, a person or a directory in a terminal
TABLE: Final = FittedTable(
    (
        Column("id"),
        Column("when", need=2, widest=MAX_NAME),
        Column("tool", need=5, widest=MAX_NAME),
        Column("by", need=3, widest=MAX_NAME),
        Column("run", need=1, widest=MAX_NAME),
        Column("directory", need=4, widest=MAX_NAME),
        Column("approved"),
    ),
    flexible="approved",
    narrowest=24,
)


def approvals_table(approvals: Sequence[AlwaysApproval], *, width: int | None = None) -> list[str]:
    """A header, and a line for each. `width` is that of the terminal; None: nothing is cut."""
    return [line.plain for line in TABLE.lines([_cells(approval) for approval in approvals], width)]


def approval_line(approval: AlwaysApproval, limit: int = 200) -> str:
    """What one of them allows, in one line."""
    where = f" in {approval.directory}" if approval.directory else ""
    return sanitized_line(f"{approval.tool_name}: {approval.command}{where}", limit)


def _cells(approval: AlwaysApproval) -> list[str]:
    name = approval.id[:SHORT_ID]
    texts = (approval.tool_name, approval.by, approval.run_id, approval.directory, approval.command)
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(approval.at))
    return [name, at, *(sanitized_line(text, len(text) + 1) for text in texts)]
