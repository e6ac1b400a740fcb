"""What is shown of each step: one row of cells, in the panel and in the table at the end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from tailrace.cli.screen.fitted_table import Column, FittedTable, no_style
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.cli.screen.words import dollars, duration, tokens
from tailrace.events import RunFailure
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
_STATE_STYLES: Final = {"finished": "green", "completed": "green", "failed": "red", "retrying": "yellow"}
MAX_ROWS: Final = 40  # of the table; where there are more, the iterations of a step share a row
STATE_COLUMN: Final = Column("state", style=lambda state: _STATE_STYLES.get(state, ""))
STEP_TABLE: Final = FittedTable(
    (
        Column("step", style=no_style),
        STATE_COLUMN,
        Column("tries", right=True, need=4),
        Column("time", right=True, need=3),
        Column("tokens", right=True, need=2),
        Column("cost", right=True, need=1),
    ),
    flexible="step",
    narrowest=12,
    header_style="dim",
)


def failure_words(error: RunFailure | None) -> str:
    return sanitized_line(error.message, 400) if error is not None else ""


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
    return STEP_TABLE.lines(rows, width, total=total)


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
