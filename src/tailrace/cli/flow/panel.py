"""The live picture of an instance: a row for each step, redrawn in place.

`panel_lines` is pure: progress in, lines out, none wider and not more than fit. `LivePanel` draws them at the bottom of
the terminal; what is printed for good goes above them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tailrace.cli.flow.rows import MARKS, failure_words
from tailrace.cli.runs.console import console_for
from tailrace.cli.screen.fitted_table import folded, padded
from tailrace.cli.screen.sanitize import sanitized, sanitized_line
from tailrace.cli.screen.words import STYLES, count, duration, tokens
from tailrace.flows.engine.step_progress import InstanceProgress, StepProgress

SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_S: Final = 10
CHARS_PER_TOKEN: Final = 4  # of a text whose tokens are not counted yet
MAX_STEP: Final = 32  # columns of a step's name
LIVE_ROWS: Final = 6  # of a text that is being written, where one step runs alone
TAIL_CHARS: Final = 4000


def panel_lines(
    progress: InstanceProgress, name: str, instance_id: str, *, now: float, width: int, height: int
) -> list[Text]:
    """At most `height` lines of at most `width` columns."""
    steps = list(progress.steps.values())
    live = [step for step in steps if step.state in ("running", "retrying")]
    body = _folded(steps, live, max(1, height - 1))
    size = min(MAX_STEP, max([cell_len(step.block_id) for step in body if not isinstance(step, str)], default=0))
    size = max(4, min(size, width // 3))
    lines = [_head(progress, name, instance_id, now, width)]
    alone = live[0] if len(live) == 1 and len(body) + 1 < height and live[0].state == "running" else None
    lines += [
        _note(step, width)
        if isinstance(step, str)
        else _row(step, size, now, width, brief=step is alone, paused=progress.state == "paused")
        for step in body
    ]
    if alone is not None:
        lines += _words(alone, width, min(LIVE_ROWS, height - len(lines)))
    return lines[:height]


def _head(progress: InstanceProgress, name: str, instance_id: str, now: float, width: int) -> Text:
    """The name on the left, the state on the right. Where there is little room the id goes first, then the counts."""
    states = [step.state for step in progress.steps.values()]
    done, running = states.count("finished"), states.count("running")
    told = [duration(progress.duration_s(now)), f"{done} done"]
    told += [f"{running} running"] if running > 1 else []
    told += [f"{used} tokens"] if (used := tokens(progress.usage)) else []
    name = sanitized_line(name, 80)
    left = f"{name}  {instance_id}"
    if cell_len(left) + _length(progress, told) > width:
        left = name
    while len(told) > 1 and cell_len(left) + _length(progress, told) > width:
        told.pop()
    head = Text(padded(left, max(1, width - _length(progress, told))), style="bold", no_wrap=True)
    head.append("  ").append(progress.state, style=STYLES.get(progress.state, ""))
    head.append(f" · {' · '.join(told)}", style="dim")
    head.truncate(width, overflow="ellipsis")
    return head


def _length(progress: InstanceProgress, told: Sequence[str]) -> int:
    return 2 + cell_len(f"{progress.state} · {' · '.join(told)}")


def _folded(steps: Sequence[StepProgress], live: Sequence[StepProgress], room: int) -> list[StepProgress | str]:
    """As many rows as there is room for: what runs and what failed, then the newest of the others, in order."""
    if len(steps) <= room:
        return list(steps)
    urgent = [*live, *(step for step in steps if step.state == "failed")]
    others = [step for step in reversed(steps) if step.state in ("finished", "cancelled")]
    kept = {id(step) for step in [*urgent, *others][: max(0, room - 1)]}
    hidden = [step for step in steps if id(step) not in kept]
    counts: dict[str, int] = {}
    for step in hidden:
        counts[step.state] = counts.get(step.state, 0) + 1
    note = f"{len(hidden)} more: " + ", ".join(f"{number} {state}" for state, number in counts.items())
    return [note, *(step for step in steps if id(step) in kept)]


def _note(text: str, width: int) -> Text:
    return Text(padded(f"… {text}", width).rstrip(), style="dim", no_wrap=True)


def _row(step: StepProgress, size: int, now: float, width: int, *, brief: bool, paused: bool) -> Text:
    """`brief`: the step's words stand below."""
    mark, style = MARKS[step.state]
    if step.state == "running" and paused:
        mark, style = "‖", "yellow"
    elif step.state == "running":
        mark = SPINNER[int(now * FRAMES_PER_S) % len(SPINNER)]
    line = Text(no_wrap=True)
    line.append(f"{mark} ", style=style).append(padded(sanitized_line(step.block_id), size))
    line.append(f"  {duration(step.duration_s(now)):>7}  {_tokens(step):>7}  ", style="dim")
    words = "" if brief else _last_words(step, now, max(0, width - line.cell_len))
    line.append(words, style="red" if step.error else "dim")
    line.truncate(width, overflow="ellipsis")
    line.rstrip()
    return line


def _tokens(step: StepProgress) -> str:
    if step.state == "finished":
        return tokens(step.usage)
    characters = sum(length for _, length in step.text.lengths())
    return f"~{count(max(1, characters // CHARS_PER_TOKEN))}" if characters else ""


def _last_words(step: StepProgress, now: float, room: int) -> str:
    if step.state == "retrying":
        left = max(0.0, (step.retry_at or now) - now)
        return padded(f"try {step.tries + 1} in {duration(left)}: {failure_words(step.error)}", room).rstrip()
    if step.state == "failed":
        return padded(failure_words(step.error), room).rstrip()
    again = f"try {step.tries} · " if step.tries > 1 and step.state == "running" else ""
    words = sanitized_line(step.text.text[-TAIL_CHARS:], TAIL_CHARS)
    return again + _end_of(words, room - cell_len(again))


def _end_of(text: str, room: int) -> str:
    """The last part of a line, in so many columns."""
    if cell_len(text) <= room:
        return text
    kept = text[-max(0, room - 1) :] if room > 1 else ""
    while kept and cell_len(kept) > room - 1:
        kept = kept[1:]
    return f"…{kept}" if room > 0 else ""


def _words(step: StepProgress, width: int, rows: int) -> list[Text]:
    """The last lines of what a step's model says, wrapped."""
    room = max(8, width - 4)
    wrapped: list[str] = []
    for line in sanitized(step.text.text[-TAIL_CHARS:]).expandtabs(4).splitlines()[-rows:]:
        wrapped += folded(line, room)
    return [Text(f"  │ {line}", style="dim", no_wrap=True) for line in wrapped[-rows:]]


class LivePanel:
    """Draws at the bottom of the terminal. Call `close` at the end: the cursor comes back."""

    def __init__(self, file: TextIO, console: Console | None = None) -> None:
        self._file = file
        self._console = console or console_for(file)
        self._drawn: list[int] = []  # the width of each line that stands there
        self._open = False

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        size = self._console.size
        return max(20, size.width), max(4, size.height)

    def draw(self, lines: Sequence[Text], above: str = "") -> None:
        """Replaces what was drawn; `above` stays for good."""
        begin = "" if self._open else "\x1b[?25l"
        self._open = True
        self._file.write(begin + self._erased() + above + self._ansi(lines))
        self._file.flush()
        self._drawn = [line.cell_len for line in lines]

    def close(self, last: str = "") -> None:
        """Removes the panel and writes `last` in its place."""
        self._file.write(self._erased() + last + ("\x1b[?25h" if self._open else ""))
        self._file.flush()
        self._drawn, self._open = [], False

    def _erased(self) -> str:
        """A terminal that was made narrower shows a line on several rows."""
        width = max(1, self._console.size.width)
        rows = sum(max(1, math.ceil(size / width)) for size in self._drawn)
        return f"\x1b[{rows}F\x1b[J" if rows else ""

    def _ansi(self, lines: Sequence[Text]) -> str:
        with self._console.capture() as captured:
            for line in lines:
                self._console.print(line, soft_wrap=True)
        return captured.get()
