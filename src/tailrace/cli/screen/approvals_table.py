"""What was approved with "always", as a table: what it is stands last and takes the room that is left. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from tailrace.app.approvals import AlwaysApproval
from tailrace.cli.screen.columns import padded
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.runs.approval_words import SHORT_ID

GAP: Final = "  "
MAX_NAME: Final = 40  # columns of a tool, a person or a directory in a terminal
MIN_COMMAND: Final = 24
TITLES: Final = ("id", "when", "tool", "by", "run", "directory", "approved")
_LEFT_OUT: Final = ("run", "when")  # where the window is narrow, in this order


def approvals_table(approvals: Sequence[AlwaysApproval], *, width: int | None = None) -> list[str]:
    """A header, and a line for each. `width` is that of the terminal; None: nothing is cut."""
    rows = [dict(zip(TITLES, _cells(approval), strict=True)) for approval in approvals]
    header = {title: title for title in TITLES}
    widths = {title: max(cell_len(row[title]) for row in (header, *rows)) for title in TITLES[:-1]}
    if width is None:
        return [_line(row, widths, None) for row in (header, *rows)]
    widths = {title: min(size, MAX_NAME) for title, size in widths.items()}
    for title in _LEFT_OUT:
        if _room(widths, width) < MIN_COMMAND:
            del widths[title]
    room = max(_room(widths, width), MIN_COMMAND)
    return [_line(row, widths, room) for row in (header, *rows)]


def approval_line(approval: AlwaysApproval, limit: int = 200) -> str:
    """What one of them allows, in one line."""
    where = f" in {approval.directory}" if approval.directory else ""
    return sanitized_line(f"{approval.tool_name}: {approval.command}{where}", limit)


def _cells(approval: AlwaysApproval) -> list[str]:
    name = approval.id[:SHORT_ID]
    texts = (approval.tool_name, approval.by, approval.run_id, approval.directory, approval.command)
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(approval.at))
    return [name, at, *(sanitized_line(text, len(text) + 1) for text in texts)]


def _room(widths: dict[str, int], width: int) -> int:
    return width - sum(widths.values()) - len(GAP) * len(widths)


def _line(row: dict[str, str], widths: dict[str, int], room: int | None) -> str:
    command = row[TITLES[-1]]
    last = command if room is None else padded(command, room)
    return GAP.join([*(padded(row[title], size) for title, size in widths.items()), last]).rstrip()
