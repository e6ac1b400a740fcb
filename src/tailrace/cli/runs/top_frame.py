"""One frame of `tailrace top`: what was found, as lines that fill the window. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from rich.cells import chop_cells
from rich.text import Text

from tailrace.cli.runs.live_runs import LiveRun, Look
from tailrace.cli.screen.fitted_table import Column, FittedTable, no_style, padded
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.cli.screen.words import STYLES, duration, tokens

KEYS = "↑↓ choose  Enter tail  s stop  a approve  q quit"
TABLE: Final = FittedTable(
    (
        Column("state", style=lambda state: STYLES.get(state, "")),
        Column("question", style=no_style),
        Column("model", need=1, widest=22),
        Column("tok/s", right=True),
        Column("tokens", right=True, need=2),
        Column("time", right=True),
    ),
    flexible="question",
    narrowest=16,
)
MIN_ROWS = 6  # that a frame needs beside a prompt
MAX_PROVIDERS = 4


class TopState(msgspec.Struct, frozen=True):
    """What a frame is made of. `prompt` is a question to the user, or what became of the last key."""

    look: Look = Look()
    place: str = ""
    selected: str = ""  # the id of a run
    prompt: str = ""
    failure: str = ""  # why the journal could not be read


def frame_lines(state: TopState, *, width: int, height: int | None, keys: bool = True) -> list[Text]:
    """Exactly `height` lines; as many as there are to show where it is None."""
    top = [*_summary(state, width), Text()]
    providers = _provider_lines(state, width)
    bottom = [Text(), *providers] if providers else []
    if keys and state.prompt:
        bottom = [Text(), *prompt_lines(state.prompt, width)]  # above all else: the user is asked
    elif keys:
        bottom += [Text(), Text(padded(KEYS, width).rstrip(), "dim")]
    room = None if height is None else max(1, height - len(top) - len(bottom) - 1)
    rows = _window(state.look.runs, state.selected, room)
    lines = [*top, *_run_lines(rows, state.selected, width)]
    if not state.look.runs:
        lines.append(Text("no runs yet", "dim"))
    if height is not None:
        lines += [Text()] * (height - len(lines) - len(bottom))
        return [*lines, *bottom][:height]
    return [*lines, *bottom]


def prompt_lines(prompt: str, width: int) -> list[Text]:
    """Whole, in as many lines as it needs."""
    rows = [row for line in prompt.expandtabs(4).split("\n") for row in chop_cells(line, width) or [""]]
    return [Text(row, "bold yellow") for row in rows]


def _summary(state: TopState, width: int) -> list[Text]:
    look = state.look
    rate = sum(each.tokens_per_s or 0.0 for each in look.runs)
    parts = [
        (f"{look.counted('running', 'stopping')} running", "cyan"),
        (f"{look.counted('asking')} asking", "bold yellow" if look.counted("asking") else "dim"),
        (f"{look.counted('orphaned')} orphaned", "bold red" if look.counted("orphaned") else "dim"),
        (f"{look.counted('parked')} parked", "bold red" if look.counted("parked") else "dim"),
        (f"{rate:.0f} tokens/s", "dim"),
    ]
    line = Text().append("tailrace", "bold")
    for text, style in parts:
        line.append("  ").append(text, style=style)
    line.truncate(width, overflow="ellipsis")
    where = Text(padded(sanitized_line(state.place, 300), width).rstrip(), "dim")
    return [line, Text(padded(sanitized_line(state.failure, 300), width).rstrip(), "red") if state.failure else where]


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _run_lines(runs: Sequence[LiveRun], selected: str, width: int) -> list[Text]:
    """A header, and a line for each run with a mark before the selected one."""
    header, *lines = TABLE.lines([_cells(each) for each in runs], width - 2)
    marked = [Text("  ").append_text(header)]
    for each, line in zip(runs, lines, strict=True):
        is_selected = each.run.id == selected
        line.stylize("bold" if is_selected else "dim" if each.run.finished is not None else "")
        marked.append(Text().append("❯ " if is_selected else "  ", "bold cyan").append_text(line))
    return marked


def _cells(each: LiveRun) -> list[str]:
    overview = each.overview
    question = overview.question or overview.problem or overview.public_id
    if overview.approvals:
        question = f"{overview.approvals[0].command} · {question}"
    return [
        overview.state,
        sanitized_line(question, 500),
        sanitized_line(overview.models[-1], 100) if overview.models else "",
        f"{each.tokens_per_s:.0f}" if each.tokens_per_s is not None else "",
        tokens(overview.usage),
        duration(overview.duration_s),
    ]


def _window(runs: Sequence[LiveRun], selected: str, room: int | None) -> Sequence[LiveRun]:
    """Those around the selected one, as many as there is room for."""
    if room is None or len(runs) <= room:
        return runs
    place = next((number for number, each in enumerate(runs) if each.run.id == selected), 0)
    start = min(max(0, place - room // 2), len(runs) - room)
    return runs[start : start + room]


# ── providers ────────────────────────────────────────────────────────────────────────────────────────────────


def _provider_lines(state: TopState, width: int) -> list[Text]:
    lines = []
    for each in state.look.providers[:MAX_PROVIDERS]:
        good = each.attempts - each.failures
        share = good / each.attempts if each.attempts else 1.0
        mark, style = ("●", "green") if share >= 0.9 else ("●", "yellow") if share >= 0.5 else ("●", "red")
        line = Text().append(mark, style).append(f" {sanitized_line(each.name, 60)}", "bold")
        line.append(f"  {good} of {each.attempts} attempts succeeded", "dim")
        if each.last_failure and each.failures:
            line.append(f"  last failure: {sanitized_line(each.last_failure, 300)}", "dim")
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines
