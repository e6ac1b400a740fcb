"""Shows an instance until it ends: as lines, or the events as JSON.

Outputs of steps go to stdout, each whole and at once when its step ends, so nothing is interleaved; all else goes to
stderr. The table of steps at the end is made from the log, with the log's own times.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from rich.text import Text

from tailrace.app.costs import Costs, dollars
from tailrace.app.timeline.question import question_of
from tailrace.app.timeline.run_overview import overview_of
from tailrace.cli.main import DONE, FAILED, INCOMPLETE, print_error
from tailrace.cli.runs.console import console_for
from tailrace.cli.screen.fitted_table import Column, FittedTable, no_style
from tailrace.cli.screen.sanitize import sanitized, sanitized_line
from tailrace.cli.words import duration, output_text, tokens
from tailrace.events import Entry, RunFailure, StateChanged, StepFinished
from tailrace.flows.definition.definition import Step, parsed, walk
from tailrace.flows.definition.graph import node_id
from tailrace.flows.definition.public_ids import public_id
from tailrace.flows.definition.signals import awaited_signals
from tailrace.flows.engine.instance_events import instance_events
from tailrace.flows.engine.step_progress import InstanceProgress, StepProgress
from tailrace.messages import Usage
from tailrace.ports import Batch, Journal, Run
from tailrace.runs.recovery import follow
from tailrace.runs.signals import run_beside
from tailrace.runs.view import RunView, changes
from tailrace.system.own_program import typed

if TYPE_CHECKING:
    from tailrace.app import App
    from tailrace.config.load import Config

EXIT = {"completed": DONE, "failed": FAILED, "cancelled": INCOMPLETE}
_MISSING_INPUT = re.compile(r"\bthere is no input\.(\w+)$")
QUIET_HANDLERS = frozenset({"sleep", "wait_signal"})  # their outputs say nothing to a reader
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
    state = "orphaned" if orphaned else progress.state
    total = ["total", state, "", duration(progress.duration_s(now)), tokens(progress.usage), dollars(cost)]
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
    counts = Counter(step.state for step in steps)
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


class View(Protocol):
    """Something that shows an instance as it goes on."""

    def show(self, batch: Batch, progress: InstanceProgress) -> None:
        """`progress` has what the batch says already."""


async def watch_instance(app: App, run: Run, *, as_json: bool) -> int:
    """Returns when the instance has ended, with the exit code of its state. Where its process dies meanwhile, this one
    goes on with it."""
    # first of all: who interrupts it at once has read which instance it is
    view: View = JsonLines() if as_json else PlainLines(run)
    progress = InstanceProgress()
    seen = [entry for entry in await app.journal.facts(run.id) if entry.seq <= run.last_seq]
    times = await app.journal.times(run.id)

    async def show_all() -> None:
        async with app.flows.watched(run.id), aclosing(follow(app.journal, run.id)) as watching:
            async for batch in watching:
                _apply(progress, batch, last_seen=seen[-1].seq if seen else 0, times=times)
                view.show(batch, progress)

    await run_beside(show_all(), app.flows.see_to_end(run.id))
    if progress.finished is None:
        print_error(f"instance {public_id(run)} has not ended")
        return FAILED
    if not as_json:
        await print_summary(app.journal, await app.journal.get(run.id), app.config)
    return EXIT[progress.state]


def _apply(progress: InstanceProgress, batch: Batch, *, last_seen: int, times: list[tuple[int, float]]) -> None:
    """What was there before has the log's times, what comes now has the clock's."""
    old = [entry for entry in batch if entry.seq <= last_seen]
    progress.replay(old, times)
    for entry in batch[len(old) :]:
        progress.apply(entry, time.time())


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────


async def print_summary(journal: Journal, run: Run, config: Config, *, orphaned: bool = False) -> None:
    """The table of steps, the error and what can be done next. `orphaned`: no living process executes the instance."""
    facts, times = await journal.facts(run.id), await journal.times(run.id)
    progress = InstanceProgress()
    progress.replay(facts, times)
    if orphaned:
        progress.abandon(times)
    overview = overview_of(run, facts, now=time.time(), orphaned=orphaned)
    costs = Costs(config)
    await costs.load(overview.spent)
    console = console_for(sys.stderr)
    width = console.width if console.is_terminal else None
    sys.stderr.write("\n")
    cost = costs.of(overview.spent)
    for line in summary_table(progress, now=time.time(), cost=cost, width=width, orphaned=orphaned):
        console.print(line, soft_wrap=True)
    if progress.state == "waiting" and (told := Waits(run).now(progress)):
        sys.stderr.write(f"it waits for {told}\n")
    if orphaned:
        sys.stderr.write(f"its process has died: {typed(f'flow resume {public_id(run)}')} goes on with it\n")
    if run.parked is not None:
        print_error(f"it is set aside: {run.parked.message}")
        sys.stderr.write(f"       {typed(f'flow resume {public_id(run)}')} lets it go on\n")
    if progress.error is not None:
        print_error(progress.error.message)
    if missing := _MISSING_INPUT.search(progress.error.message if progress.error is not None else ""):
        sys.stderr.write(f"       {typed(f'flow run FILE --input {missing[1]}=…')} gives it\n")
    elif progress.state == "failed":
        failed = next((step for step in reversed(progress.steps.values()) if step.state == "failed"), None)
        where = f" from step {sanitized_line(failed.block_id)}" if failed is not None else ""
        sys.stderr.write(f"       {typed(f'flow retry {public_id(run)}')} goes on{where}\n")


# ── two views ───────────────────────────────────────────────────────────────────────────────────────────────


class JsonLines:
    def show(self, batch: Batch, _progress: InstanceProgress) -> None:
        for event in instance_events(batch):
            line = msgspec.json.encode({"seq": event.seq, "type": event.type, **event.data}).decode()
            sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Outputs:
    """The outputs of steps as text, each under the step's name where the sequence has several."""

    def __init__(self, run: Run) -> None:
        steps = [block for _, block in walk(parsed(run.new.input["definition"]).blocks) if isinstance(block, Step)]
        self._quiet = {step.id for step in steps if step.handler in QUIET_HANDLERS}
        self._named = len(steps) - len(self._quiet) > 1
        self._first = True

    def text(self, entry: Entry, *, coloured: bool = False) -> str:
        """What a step that ends here has to say; empty for any other entry. `coloured`: for a terminal."""
        if not isinstance(entry.event, StepFinished):
            return ""
        block_id = entry.event.block_id
        if block_id.rpartition(".")[2] in self._quiet:
            return ""
        text = output_text(entry.event.output)
        heading = f"## {sanitized_line(block_id)}"
        if coloured:
            text, heading = drawn_text(text, entry.event.output), f"\x1b[1m{heading}\x1b[0m"
        gap = "" if self._first else "\n"
        self._first = False
        return (f"{gap}{heading}\n\n" if self._named else "") + text + ("" if text.endswith("\n") else "\n")


def drawn_text(text: str, output: Any) -> str:
    """For a terminal: an answer of a model as the chat draws it, anything else as it is."""
    is_answer = isinstance(output, dict) and ("message" in output or "run_id" in output)
    if not is_answer or text.lstrip().startswith(("{", "[")):
        return sanitized(text)
    from tailrace.cli.screen.markdown_blocks import BlockSplitter
    from tailrace.cli.screen.painter import BlockPiece, Painter

    console, splitter = console_for(sys.stdout), BlockSplitter()
    painter = Painter(console)
    blocks = [*splitter.feed(sanitized(text)), *splitter.close()]
    return painter.ansi(painter.lines(map(BlockPiece, blocks), console.width)[1:]).replace("\r\n", "\n")


class Waits:
    """Which signal an instance waits for, and how it is sent."""

    def __init__(self, run: Run) -> None:
        self._id = public_id(run)
        self._signals = awaited_signals(parsed(run.new.input["definition"]))

    def words(self, entry: Entry, progress: InstanceProgress) -> str:
        """One line where the instance begins to wait here, and still does; empty for any other entry."""
        if entry.event != StateChanged("waiting") or progress.state != "waiting":
            return ""
        return f"… waiting for {told}" if (told := self.now(progress)) else ""  # a sleep has its own line

    def now(self, progress: InstanceProgress) -> str:
        """Empty where no step waits for a signal whose name is known."""
        running = [step.block_id for step in progress.steps.values() if step.state == "running"]
        names = sorted({self._signals[name] for each in running if (name := each.rpartition(".")[2]) in self._signals})
        return " or ".join(typed(f"flow signal {self._id} {quote(name)}") for name in names)


class PlainLines:
    """A line for what happens to a step on stderr; outputs on stdout."""

    def __init__(self, run: Run) -> None:
        self._outputs = Outputs(run)
        self._waits = Waits(run)
        self._note(f"{public_id(run)} {question_of(run)}")

    def show(self, batch: Batch, progress: InstanceProgress) -> None:
        for entry in batch:
            for line in filter(None, [step_line(entry, progress), self._waits.words(entry, progress)]):
                self._note(line)
            if text := self._outputs.text(entry, coloured=sys.stdout.isatty()):
                sys.stdout.write(text)
                sys.stdout.flush()

    def _note(self, line: str) -> None:
        sys.stderr.write(f"{sanitized_line(line, 500)}\n")
        sys.stderr.flush()


def step_line(entry: Entry, progress: InstanceProgress) -> str:
    """What happens to a step, in one line; empty where the entry says nothing that people follow."""
    return next(filter(None, (_change_line(change, progress) for change in RunView().apply(entry))), "")


def _change_line(change: changes.Change, progress: InstanceProgress) -> str:
    match change:
        case changes.StepMoved(block_id=block_id, state="started", number=number):
            return f"· {block_id}" + (f" (try {number})" if number > 1 else "")
        case changes.StepMoved(block_id=block_id, state="retrying", error=error):
            return f"✗ {block_id} failed, trying again: {failure_words(error)}"
        case changes.StepMoved(block_id=block_id, state="failed", error=error):
            return f"✗ {block_id} failed: {failure_words(error)}"
        case changes.StepMoved(block_id=block_id, state="finished"):
            spent = progress.steps[block_id].duration_s(time.time())
            return f"✓ {block_id}" + (f" {spent:.1f} s" if spent is not None else "")
        case changes.StepMoved(block_id=block_id, state="cancelled"):
            return f"– {block_id} cancelled"
        case changes.TextWithdrawn(block_id=block_id, reason=reason) if block_id:
            return f"↺ {block_id}: taken back ({sanitized_line(reason)})"
        case changes.InstanceMoved(state="paused"):
            return "… paused"
        case _:
            return ""
