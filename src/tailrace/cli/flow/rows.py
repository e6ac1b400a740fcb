"""What is shown of each step: one row of cells, in the panel and in the table at the end. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from rich.cells import cell_len
from rich.text import Text

from tailrace.cli.runs.words import dollars, duration, tokens
from tailrace.cli.screen.columns import padded
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.events import RunFailure
from tailrace.flows.definition.definition import Definition, Loop, walk
from tailrace.flows.definition.graph import node_id
from tailrace.flows.engine.step_progress import InstanceProgress, ProgressState, StepProgress
from tailrace.messages import Usage

MARKS: Final[dict[ProgressState, tuple[str, str]]] = {  # the mark of a state and its style
    "running": ("●", "cyan"),
    "retrying": ("↻", "yellow"),
    "finished": ("✓", "green"),
    "failed": ("✗", "red"),
    "cancelled": ("–", "dim"),
}
STATE_STYLES: Final = {"finished": "green", "completed": "green", "failed": "red", "retrying": "yellow"}
TITLES: Final = ("step", "state", "tries", "time", "tokens", "cost")
MAX_ROWS: Final = 40  # of the table; where there are more, the iterations of a step share a row
MIN_STEP: Final = 12  # columns
GAP: Final = "  "
_ITERATION: Final = re.compile(r"([^.\[\]]+)\[(\d+)\]\.")


def text_of(output: Any) -> str:
    """A step's output as a person reads it."""
    match output:
        case {"message": {"content": str(content)}} if content:
            return content
        case {"text": str(text), "run_id": str()}:  # of an agent's turn
            return text
        case {"output": str(text), "ok": bool()}:  # of a tool
            return text
        case str(text):
            return text
        case _:
            return msgspec.json.format(msgspec.json.encode(output)).decode()


def failure_words(error: RunFailure | None) -> str:
    return sanitized_line(error.message, 400) if error is not None else ""


def loop_limits(definition: Definition, progress: InstanceProgress) -> list[str]:
    """A line for each loop of a completed instance that `max_iterations` has ended, not its condition."""
    if progress.state != "completed":
        return []
    limits = {block.id: block.max_iterations for _, block in walk(definition.blocks) if isinstance(block, Loop)}
    ended: dict[str, int] = {}
    for block_id in progress.steps:
        for iteration in _ITERATION.finditer(block_id):
            limit = limits.get(iteration[1])
            if limit is not None and int(iteration[2]) + 1 >= limit:
                ended[block_id[: iteration.end(1)]] = limit
    return [
        f"{sanitized_line(name)} ended after {limit} iterations, its max_iterations; its condition was not asked again"
        for name, limit in ended.items()
    ]


# ── the table of steps ───────────────────────────────────────────────────────────────────────────────────────


def summary_table(
    progress: InstanceProgress, *, now: float, cost: float | None, width: int | None, orphaned: bool = False
) -> list[Text]:
    """A header, a line for each step and one for all of them. None is longer than `width`, where there is one.
    `orphaned`: no living process executes it."""
    rows = _step_rows(progress, now)
    if orphaned:
        rows = [[name, "interrupted" if state == "running" else state, *rest] for name, state, *rest in rows]
    total = [
        "total",
        "orphaned" if orphaned else progress.state,
        "",
        duration(progress.duration_s(now)),
        tokens(progress.usage),
        dollars(cost),
    ]
    return aligned([*rows, total], TITLES, width, flexible=0, state=1, right=(2, 3, 4, 5), total=bool(rows))


def _step_rows(progress: InstanceProgress, now: float) -> list[list[str]]:
    steps = list(progress.steps.values())
    if len(steps) <= MAX_ROWS:
        return [_row(step.block_id, [step], now) for step in steps]
    nodes: dict[str, list[StepProgress]] = {}
    for step in steps:
        nodes.setdefault(node_id(step.block_id), []).append(step)
    return [_row(f"{name} ×{len(some)}" if len(some) > 1 else name, some, now) for name, some in nodes.items()]


def _row(name: str, steps: Sequence[StepProgress], now: float) -> list[str]:
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.state] = counts.get(step.state, 0) + 1
    state = steps[0].state if len(steps) == 1 else ", ".join(f"{number} {name}" for name, number in counts.items())
    if len(steps) == 1 and not steps[0].tries and state == "finished":
        state = "kept"  # from the instance that this one retries
    times = [spent for step in steps if (spent := step.duration_s(now)) is not None]
    costs = [step.cost_usd for step in steps if step.cost_usd is not None]
    usage = sum((step.usage for step in steps), Usage())
    tries = sum(step.tries for step in steps)
    return [
        sanitized_line(name),
        state,
        str(tries) if tries else "",
        duration(sum(times)) if times else "",
        tokens(usage),
        dollars(sum(costs)) if costs else "",
    ]


def aligned(
    rows: Sequence[Sequence[str]],
    titles: Sequence[str],
    width: int | None,
    *,
    flexible: int,
    state: int,
    right: Sequence[int] = (),
    total: bool = False,
) -> list[Text]:
    """A table: the column `flexible` gives way where there is not enough room, then the last columns are left out.
    Columns without any value are left out. `total`: the last row is the sum of the others."""
    used = [place for place, _ in enumerate(titles) if place in (flexible, state) or any(row[place] for row in rows)]
    widths = {place: max(cell_len(text[place]) for text in (titles, *rows)) for place in used}
    if width is not None:
        _fit(widths, width, flexible, state)

    def line(cells: Sequence[str], style: str) -> Text:
        shown = Text(no_wrap=True, end="")
        for number, (place, size) in enumerate(widths.items()):
            own = STATE_STYLES.get(cells[place], "") if place == state else "" if place == flexible else "dim"
            shown.append(GAP if number else "")
            shown.append(padded(cells[place], size, right=place in right), style=style or own)
        shown.rstrip()
        return shown

    lines = [line(titles, "dim"), *(line(row, "") for row in rows)]
    if total:
        lines[-1] = line(rows[-1], "bold")
    return lines


def _fit(widths: dict[int, int], width: int, flexible: int, state: int) -> None:
    def room() -> int:
        others = sum(size for place, size in widths.items() if place != flexible)
        return width - others - len(GAP) * (len(widths) - 1)

    wanted = min(widths[flexible], MIN_STEP)
    for place in sorted(widths, reverse=True):
        if room() >= wanted:
            break
        if place not in (flexible, state):
            del widths[place]
    widths[flexible] = max(1, min(widths[flexible], room()))
