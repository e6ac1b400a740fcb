"""A run's timeline as lines for the terminal. Pure: a timeline in, styled lines out, none longer than the terminal.

A line has the entry's number, the seconds since the run began, what it is, and what is to say about it. Details stand
below it behind a bar: the output of a tool, a diff, the rest of a text.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from rich.text import Text

from tailrace.app.timeline import Timeline
from tailrace.cli.runs.timeline_rows import LABEL_WIDTH, Detail, TimelineRow, timeline_rows
from tailrace.cli.screen.fitted_table import folded, padded
from tailrace.cli.screen.sanitize import sanitized, sanitized_line
from tailrace.cli.words import STYLES, duration, spent_words

MIN_NUMBERED = 76  # columns from which on entries are numbered
SHORT_DETAILS = 6  # lines of an output that are shown without --full
SHORT_TEXT = 3  # lines of a text


class TimelineHead(NamedTuple):
    """What the log does not say of a run."""

    name: str  # the id as people know it
    state: str
    owner: str = ""
    origin: str = ""  # what it was forked from, in words
    running_s: float | None = None  # how long it has been executed, while it is
    advice: str = ""  # what helps against the failure that it has ended with


def timeline_lines(timeline: Timeline, head: TimelineHead, *, width: int | None, full: bool = False) -> list[Text]:
    """`width` is that of the terminal; None where lines may be of any length. `full`: texts and outputs whole."""
    lines = [*_head_lines(timeline, head, width), Text()]
    numbered = width is None or width >= MIN_NUMBERED
    number_width = len(str(timeline.last_seq)) if numbered else 0
    rows = timeline_rows(timeline, full=full, advice=head.advice)
    clock_width = max((len(clock(each.at)) for each in rows), default=0)
    indent = (number_width + 2 if numbered else 0) + clock_width + 2
    for each in rows:
        lines += _lines_of(each, number_width, clock_width, indent, width, full=full)
    return lines


def _head_lines(timeline: Timeline, head: TimelineHead, width: int | None) -> list[Text]:
    first = Text().append(head.name, style="bold").append("  ").append(head.state, style=STYLES.get(head.state, ""))
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timeline.started_at))
    first.append(f"  {began}", style="dim")
    about = [timeline.kind, timeline.model, f"session {timeline.session}" if timeline.session else ""]
    about += [f"executed by {head.owner}" if head.owner else "", spent_words(timeline.usage, timeline.cost_usd)]
    if head.running_s is not None:
        about.append(f"{duration(head.running_s)} so far")
    elif timeline.duration_s is not None:
        about.append(f"took {duration(timeline.duration_s)}")
    lines = [first, Text(sanitized_line(" · ".join(filter(None, about)), 400), style="dim")]
    if head.origin:
        lines.append(Text(sanitized_line(head.origin), style="dim"))
    if timeline.compacted:
        lines.append(Text("compacted: texts are whole and have no times of their own", style="dim"))
    return [part for line in lines for part in _wrapped(line, width)]


def clock(at: float | None) -> str:
    """`+0.31`, `+1:05.2`, `+1:02:03`; empty where it is not known."""
    if at is None:
        return ""
    if at < 59.995:
        return f"+{at:.2f}"
    if at < 3_599.95:
        minutes, seconds = divmod(round(at, 1), 60)
        return f"+{minutes:.0f}:{seconds:04.1f}"
    hours, rest = divmod(round(at), 3_600)
    return f"+{hours}:{rest // 60:02}:{rest % 60:02}"


# ── one happening ────────────────────────────────────────────────────────────────────────────────────────────


def _lines_of(
    each: TimelineRow, number_width: int, clock_width: int, indent: int, width: int | None, *, full: bool
) -> list[Text]:
    line = Text()
    if number_width:
        line.append(f"{each.seq:>{number_width}}  ", style="dim")
    line.append(f"{clock(each.at):>{clock_width}}  ", style="cyan dim" if each.quiet else "cyan")
    room = None if width is None else max(8, width - indent - LABEL_WIDTH - 1)
    body = sanitized_line(each.text, 2_000) if not each.is_text else each.text
    rows = _text_rows(body, room, full=full) if each.is_text else [body]
    first = rows[0] if rows else ""
    mark = f"  {each.mark}" if each.mark else ""
    if room is not None and not each.is_text:
        first = padded(first, max(1, min(cell_len(first), room - cell_len(mark))))
    line.append(padded(sanitized_line(each.label, 100), LABEL_WIDTH) + " ", style=each.style)
    line.append(first, style="dim" if each.quiet else "").append(mark, style=each.mark_style)
    line.rstrip()
    rest = [Text(" " * (indent + LABEL_WIDTH + 1) + row) for row in rows[1:]]
    details = [part for detail in each.details for part in _detail_lines(detail, indent, width, full=full)]
    return [line, *rest, *details]


def _text_rows(text: str, room: int | None, *, full: bool) -> list[str]:
    rows = _rows(sanitized(text).strip("\n"), room)
    if full or len(rows) <= SHORT_TEXT:
        return rows
    kept = rows[:SHORT_TEXT]
    return [*kept[:-1], padded(kept[-1], min(cell_len(kept[-1]), (room or 200) - 1)).rstrip() + "…"]


def _rows(text: str, room: int | None) -> list[str]:
    """The lines of a text, each cut into pieces that fit; words stay whole where they can."""
    rows: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        rows += folded(line, room) if room is not None else [line]
    return rows


def _detail_lines(detail: Detail, indent: int, width: int | None, *, full: bool) -> list[Text]:
    bar = " " * (indent + LABEL_WIDTH + 1) if width is None or width >= MIN_NUMBERED else " " * (indent + 2)
    room = None if width is None else max(8, width - cell_len(bar) - 2)
    lines = sanitized(detail.text).strip("\n").expandtabs(4).split("\n")
    left_out = 0
    if not full and len(lines) > SHORT_DETAILS + 1:
        begins = SHORT_DETAILS // 2 if detail.both_ends else SHORT_DETAILS
        left_out = len(lines) - SHORT_DETAILS
        lines = [*lines[:begins], "", *lines[len(lines) - (SHORT_DETAILS - begins) :]]
    shown: list[Text] = []
    for number, line in enumerate(lines):
        if left_out and number == (SHORT_DETAILS // 2 if detail.both_ends else SHORT_DETAILS):
            more = f"{bar}┊ {left_out} more lines, all with --full"
            shown.append(Text(more if width is None else padded(more, min(len(more), width)), style="dim"))
            continue
        pieces = chop_cells(line, room) or [""] if full and room is not None else [line]
        for piece in pieces:
            fitted = piece if room is None else padded(piece, min(cell_len(piece), room))
            row = Text(bar).append("│ ", style="dim").append(fitted, style=_detail_style(detail, line))
            row.rstrip()
            shown.append(row)
    return shown


def _detail_style(detail: Detail, line: str) -> str:
    if not detail.is_diff:
        return detail.style
    return "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"


def _wrapped(line: Text, width: int | None) -> list[Text]:
    if width is None or line.cell_len <= width:
        return [line]
    return [Text(row, style=line.style) for row in folded(line.plain, width)]
