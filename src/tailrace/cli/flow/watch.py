"""Shows an instance until it ends: the live panel in a terminal, plain lines elsewhere, or the events as JSON.

Outputs of steps go to stdout, each whole and at once when its step ends, so nothing is interleaved; all else goes to
stderr. The table of steps at the end is made from the log, with the log's own times.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Protocol

import msgspec
from rich.text import Text

from tailrace.app.costs import Costs
from tailrace.app.timeline.question import question_of
from tailrace.app.timeline.run_overview import overview_of
from tailrace.cli.flow.panel import FRAMES_PER_S, LivePanel, panel_lines
from tailrace.cli.flow.rows import failure_words, summary_table
from tailrace.cli.main import DONE, FAILED, INCOMPLETE, print_error
from tailrace.cli.runs.console import console_for
from tailrace.cli.screen.sanitize import sanitized, sanitized_line
from tailrace.cli.screen.words import output_text
from tailrace.events import Entry, StateChanged, StepFinished
from tailrace.flows.definition.definition import Step, parsed, walk
from tailrace.flows.definition.public_ids import public_id
from tailrace.flows.definition.signals import awaited_signals
from tailrace.flows.engine.instance_events import InstanceEvent, instance_events
from tailrace.flows.engine.step_progress import InstanceProgress, StepProgress
from tailrace.ports import Batch, Journal, Run
from tailrace.runs.recovery import follow
from tailrace.runs.signals import run_beside
from tailrace.runs.view import RunView, changes
from tailrace.system.own_program import typed

if TYPE_CHECKING:
    from tailrace.app import App
    from tailrace.config.load import Config

EXIT = {"completed": DONE, "failed": FAILED, "cancelled": INCOMPLETE}
MAX_ROWS = 24  # of the panel, however high the terminal is
_MISSING_INPUT = re.compile(r"\bthere is no input\.(\w+)$")
QUIET_HANDLERS = frozenset({"sleep", "wait_signal"})  # their outputs say nothing to a reader


class View(Protocol):
    """Something that shows an instance as it goes on."""

    def show(self, batch: Batch, progress: InstanceProgress) -> None:
        """`progress` has what the batch says already."""

    def tick(self, progress: InstanceProgress) -> None:
        """Time has passed."""

    def close(self, progress: InstanceProgress) -> None: ...


async def watch_instance(app: App, run: Run, *, as_json: bool) -> int:
    """Returns when the instance has ended, with the exit code of its state. Where its process dies meanwhile, this one
    goes on with it."""
    # first of all: who interrupts it at once has read which instance it is
    view: View = JsonLines() if as_json else PanelView(run) if sys.stderr.isatty() else PlainLines(run)
    progress = InstanceProgress()
    seen = [entry for entry in await app.journal.facts(run.id) if entry.seq <= run.last_seq]
    times = await app.journal.times(run.id)

    async def show_all() -> None:
        async with app.flows.watched(run.id), aclosing(follow(app.journal, run.id)) as watching:
            async for batch in watching:
                _apply(progress, batch, last_seen=seen[-1].seq if seen else 0, times=times)
                view.show(batch, progress)

    try:
        with _ticking(view, progress):
            await run_beside(show_all(), app.flows.see_to_end(run.id))
    finally:
        view.close(progress)
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


@contextmanager
def _ticking(view: View, progress: InstanceProgress) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def tick() -> None:
        nonlocal timer
        view.tick(progress)
        timer = loop.call_later(1 / FRAMES_PER_S, tick)

    tick()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


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


# ── three views ──────────────────────────────────────────────────────────────────────────────────────────────


class JsonLines:
    def show(self, batch: Batch, _progress: InstanceProgress) -> None:
        for event in instance_events(batch):
            sys.stdout.write(_json_line(event) + "\n")
        sys.stdout.flush()

    def tick(self, _progress: InstanceProgress) -> None:
        pass

    def close(self, _progress: InstanceProgress) -> None:
        pass


def _json_line(event: InstanceEvent) -> str:
    return msgspec.json.encode({"seq": event.seq, "type": event.type, **event.data}).decode()


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
            text, heading = sanitized(text), f"\x1b[1m{heading}\x1b[0m"
        gap = "" if self._first else "\n"
        self._first = False
        return (f"{gap}{heading}\n\n" if self._named else "") + text + ("" if text.endswith("\n") else "\n")


class Waits:
    """Which signal an instance waits for, and how it is sent."""

    def __init__(self, run: Run) -> None:
        self._id = public_id(run)
        self._signals = awaited_signals(parsed(run.new.input["definition"]))
        self._told: dict[str, str] = {}  # the steps of the line before, as in `_open`

    def words(self, entry: Entry, progress: InstanceProgress) -> str:
        """One line where the instance begins to wait here, and still does; empty for any other entry. Another process
        that goes on with the same wait has no line of its own."""
        if entry.event == StateChanged("paused"):
            self._told = {}
        if entry.event != StateChanged("waiting") or progress.state != "waiting":
            return ""
        before, self._told = self._told, self._open(progress)
        if self._told == before:
            return ""
        return f"… waiting for {told}" if (told := self.now(progress)) else ""  # a sleep has its own line

    def now(self, progress: InstanceProgress) -> str:
        """Empty where no step waits for a signal whose name is known."""
        names = sorted(set(self._open(progress).values()))
        return " or ".join(typed(f"flow signal {self._id} {quote(name)}") for name in names)

    def _open(self, progress: InstanceProgress) -> dict[str, str]:
        """The steps that wait, each with the name of its signal."""
        running = [step.block_id for step in progress.steps.values() if step.state == "running"]
        signals = ((block_id, self._signals.get(block_id.rpartition(".")[2])) for block_id in running)
        return {block_id: signal for block_id, signal in signals if signal is not None}


class PlainLines:
    """A line for what happens to a step on stderr; outputs on stdout."""

    def __init__(self, run: Run) -> None:
        self._outputs = Outputs(run)
        self._waits = Waits(run)
        self._steps = StepLines()
        self._note(f"{public_id(run)} {question_of(run)}")

    def show(self, batch: Batch, progress: InstanceProgress) -> None:
        for entry in batch:
            for line in filter(None, [self._steps.line(entry, progress), self._waits.words(entry, progress)]):
                self._note(line)
            if text := self._outputs.text(entry, coloured=sys.stdout.isatty()):
                sys.stdout.write(text)
                sys.stdout.flush()

    def tick(self, _progress: InstanceProgress) -> None:
        pass

    def close(self, _progress: InstanceProgress) -> None:
        pass

    def _note(self, line: str) -> None:
        sys.stderr.write(f"{sanitized_line(line, 500)}\n")
        sys.stderr.flush()


class StepLines:
    """A line for what happens to a step. A try that goes on in another process, because the one before has died, is the
    same try: its beginning is told once, and its end says how often it was begun."""

    def __init__(self) -> None:
        self._begun: set[tuple[str, int]] = set()  # the tries whose beginning was told, by step and number

    def line(self, entry: Entry, progress: InstanceProgress) -> str:
        """Empty where the entry says nothing that people follow."""
        return next(filter(None, (self._line(change, progress) for change in RunView().apply(entry))), "")

    def _line(self, change: changes.Change, progress: InstanceProgress) -> str:
        match change:
            case changes.StepMoved():
                return self._moved(change, progress)
            case changes.TextWithdrawn(block_id=block_id, reason=reason) if block_id:
                return f"↺ {block_id}: taken back ({sanitized_line(reason)})"
            case changes.InstanceMoved(state="paused"):
                self._begun.clear()  # the beginning after it says that the pause is over
                return "… paused"
            case _:
                return ""

    def _moved(self, change: changes.StepMoved, progress: InstanceProgress) -> str:
        block_id, why = change.block_id, failure_words(change.error) if change.error is not None else ""
        match change.state:
            case "started":
                return self._start(block_id, change.number)
            case "retrying":  # the progress may be that try's already
                return f"✗ {block_id} failed, trying again: {why}"
            case "failed":
                return f"✗ {block_id} failed{_begun(progress.steps[block_id])}: {why}"
            case "finished":
                step = progress.steps[block_id]
                spent = step.duration_s(time.time())
                took = f" {spent:.1f} s" if spent is not None else ""
                return f"✓ {block_id}{took}{_begun(step)}"
            case "cancelled":
                return f"– {block_id} cancelled"

    def _start(self, block_id: str, number: int) -> str:
        if (block_id, number) in self._begun:
            return ""
        self._begun.add((block_id, number))
        return f"· {block_id}" + (f" (try {number})" if number > 1 else "")


def _begun(step: StepProgress) -> str:
    return f" (begun {step.begun} times)" if step.begun > 1 else ""


class PanelView(PlainLines):
    """The panel on stderr. Outputs stay above it, or go to stdout where that is not the same terminal."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._name, self._id = question_of(run), public_id(run)
        self._panel = LivePanel(sys.stderr)
        self._drawn_at = 0.0

    def show(self, batch: Batch, progress: InstanceProgress) -> None:
        above = "".join(self._outputs.text(entry, coloured=sys.stdout.isatty()) for entry in batch)
        if above and not sys.stdout.isatty():
            sys.stdout.write(above)
            sys.stdout.flush()
            above = ""
        for waits in filter(None, [self._waits.words(entry, progress) for entry in batch]):
            above += f"{sanitized_line(waits, 500)}\n"  # last: it is what the reader has to do
        if above or time.monotonic() - self._drawn_at >= 1 / FRAMES_PER_S:
            self._draw(progress, above)

    def tick(self, progress: InstanceProgress) -> None:
        self._draw(progress)

    def _draw(self, progress: InstanceProgress, above: str = "") -> None:
        width, height = self._panel.size
        lines = panel_lines(
            progress, self._name, self._id, now=time.time(), width=width - 1, height=max(3, min(height - 3, MAX_ROWS))
        )
        self._panel.draw([Text(), *lines], above)
        self._drawn_at = time.monotonic()

    def close(self, _progress: InstanceProgress) -> None:
        self._panel.close()
