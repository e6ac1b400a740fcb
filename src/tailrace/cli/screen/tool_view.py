"""The tools of a conversation on the screen: a line each, the end of what failed, the diff of what was written.

Keeps what the latest ones did, so that one of them can be shown in full. Knows no terminal.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tailrace.agent import turn
from tailrace.cli.screen.painter import DIFF_STYLES, NoticeLine, Piece, Rows, ToolLine
from tailrace.cli.screen.sanitize import sanitized, sanitized_line
from tailrace.cli.screen.tool_details import argument_lines, file_lines, output_lines
from tailrace.events import ToolOutputRecorded
from tailrace.messages import FileChange
from tailrace.runs.view.changes import CallEnded, CallRuns

KEPT_TOOLS: Final = 100
FAILED_LINES: Final = 6  # of the output of a tool that failed, the last ones
DIFF_LINES: Final = 8
EXPANDED_LINES: Final = 400
OWN_LINES: Final = 40  # of a command that the user ran
DETAIL_INDENT: Final = 6
_ENDING: Final = re.compile(r"\[((?:exit code|ended by signal) \d+|ended after .*)\]")
_INTERRUPTED: Final = (turn.INTERRUPTED, turn.ENDED_WITH_PROCESS)


class KeptTool(msgspec.Struct, frozen=True):
    """A call that has ended."""

    line: ToolLine
    args: dict[str, Any] | None
    recorded: ToolOutputRecorded | None
    steps: Sequence[str] = ()  # of the agent that was called


class ToolView:
    """Numbers the calls from 1 on. `verbose`: everything is shown at once."""

    def __init__(self) -> None:
        self.verbose = False
        self._running: dict[int, tuple[CallRuns, float]] = {}
        self._steps: dict[int, list[str]] = {}  # of the agents that are called, by the call's index
        self._recorded: ToolOutputRecorded | None = None  # of the tool whose end comes next
        self._kept: deque[KeptTool] = deque(maxlen=KEPT_TOOLS)
        self._count = 0
        self._expanded = 0  # the number that was shown last; 0: none since a tool ended

    def __bool__(self) -> bool:
        """Whether a tool runs."""
        return bool(self._running)

    def end_turn(self) -> None:
        self._running.clear()

    def begin(self, call: CallRuns, now: float) -> None:
        self._running[call.index] = (call, now)
        self._steps.pop(call.index, None)

    def step(self, index: int, text: str) -> None:
        """The agent that is called makes a call of its own."""
        self._steps.setdefault(index, []).append(sanitized_line(text))

    def moving(self, now: float, mark: str) -> list[Piece]:
        pieces: list[Piece] = []
        for index, (call, began) in self._running.items():
            pieces.append(ToolLine(sanitized_line(call.tool_name, 60), _preview(call), now - began, mark=mark))
            pieces += _step_lines(self._steps.get(index, [])[-1:])
        return pieces

    # ── a call that ended ────────────────────────────────────────────────────────────────────────────────────

    def output(self, recorded: ToolOutputRecorded) -> list[Piece]:
        self._recorded = recorded
        action = recorded.not_executed
        if action is None or action.kind not in ("forbidden", "failed"):  # of the others a question has told the user
            return []
        what = f"✗ not executed: {sanitized_line(action.command)} ({sanitized_line(action.reason)})"
        return [NoticeLine(what, "red")]

    def end(self, ended: CallEnded) -> list[Piece]:
        """Nothing for a call that was not executed: its question, or `output`, has shown that."""
        begun = self._running.pop(ended.index, None) if ended.index is not None else None
        recorded, self._recorded = self._recorded, None
        steps = self._steps.pop(ended.index, []) if ended.index is not None else []
        if recorded is not None and recorded.not_executed is not None:
            return []
        call = begun[0] if begun else None
        line = ToolLine(ended.tool_name, _preview(call) if call else "", ended.duration_s or 0.0, ended.ok)
        return self._ended(line, call.args if call else None, recorded, steps)

    def ended_before(self, tool_name: str, duration_s: float, ok: bool, preview: str) -> list[Piece]:
        """A call of which only its line is known."""
        return self._ended(ToolLine(tool_name, preview, duration_s, ok), None, None)

    def _ended(
        self,
        ended: ToolLine,
        args: dict[str, Any] | None,
        recorded: ToolOutputRecorded | None,
        steps: Sequence[str] = (),
    ) -> list[Piece]:
        self._count += 1
        self._expanded = 0
        note = _note(recorded) or (f"{len(steps)} steps" if steps else "")
        mark = "◼" if note == "interrupted" else ""
        name = sanitized_line(ended.name, 60)
        line = msgspec.structs.replace(ended, name=name, mark=mark, note=note, number=self._count)
        self._kept.append(KeptTool(line, args, recorded, steps))
        if self.verbose:
            details = argument_lines(args) + (output_lines(recorded) if recorded else [])
            shown: list[Piece] = [NoticeLine("\n".join(details), "dim", indent=DETAIL_INDENT)] if details else []
            return [line, *_step_lines(steps), *shown]
        return [line, *_in_short(recorded)]

    # ── one of them in full ──────────────────────────────────────────────────────────────────────────────────

    def expand(self, number: int | None = None) -> list[Piece]:
        """Everything of that call; without a number of the last one, and of the one before it when asked again. Empty
        where there is none."""
        wanted = number if number is not None else (self._expanded or self._count + 1) - 1
        tool = next((tool for tool in self._kept if tool.line.number == wanted), None)
        if tool is None:
            return []
        self._expanded = wanted
        return [Rows(((("", ""),),)), tool.line, *_in_full(tool)]


def command_pieces(output: str, code: int | None, took_s: float, *, goes_along: bool = True) -> list[Piece]:
    """What a command of the user's own printed: its end where it is long, and how it ended where that was not well.
    `goes_along`: with the user's next message."""
    lines = sanitized(output).rstrip().split("\n") if output.strip() else []
    above = [f"… {len(lines) - OWN_LINES} lines above"] if len(lines) > OWN_LINES else []
    pieces: list[Piece] = [
        Rows(tuple(((line, "dim"),) for line in above) + tuple(((line, ""),) for line in lines[-OWN_LINES:]))
    ]
    ended = "stopped" if code is None else f"exit code {code}" if code else ""
    then = "goes with your next message" if goes_along else "stays in the session before"
    said = " · ".join(filter(None, (ended, f"{took_s:.1f} s" if took_s >= 1 else "", then)))
    return [*(pieces if lines else []), NoticeLine(said, "red" if ended else "dim")]


def _preview(call: CallRuns) -> str:
    return sanitized_line(call.preview or "")


def _note(recorded: ToolOutputRecorded | None) -> str:
    if recorded is None:
        return ""
    if recorded.output in _INTERRUPTED:
        return "interrupted"
    if (change := recorded.change) is not None:
        return _counts(change)
    ending = _ENDING.fullmatch(recorded.output.rpartition("\n")[2])
    return ending[1] if ending and not recorded.ok else ""


def _counts(change: FileChange) -> str:
    if not change.added and not change.removed:
        return "unchanged" if not change.created else "empty"
    return " ".join((f"+{change.added}", *([f"−{change.removed}"] if change.removed or not change.created else [])))


def _in_short(recorded: ToolOutputRecorded | None) -> list[Piece]:
    """The last lines of what failed; the first ones of a diff."""
    if recorded is None or recorded.output in _INTERRUPTED:
        return []
    if not recorded.ok:
        lines = sanitized(recorded.output).rstrip().split("\n")
        if _ENDING.fullmatch(lines[-1]):
            lines.pop()
        above = [f"… {len(lines) - FAILED_LINES} lines above · Ctrl-O shows all"] if len(lines) > FAILED_LINES else []
        return _dim([*above, *lines[-FAILED_LINES:]]) if any(line.strip() for line in lines) else []
    return _diff(recorded.change, DIFF_LINES) if recorded.change is not None else []


def _in_full(tool: KeptTool) -> list[Piece]:
    recorded = tool.recorded
    pieces = _dim(argument_lines(tool.args, limit=EXPANDED_LINES)) + _step_lines(tool.steps)
    if recorded is None:
        return [*pieces, *_dim(["its output is no longer kept: only the line is"])]
    if recorded.change is not None:
        said = recorded.output.partition("\n")[0]  # the lines below it are the diff
        return [*_dim([sanitized_line(said).removesuffix(":")]), *_diff(recorded.change, EXPANDED_LINES)]
    lines = sanitized(recorded.output).rstrip().split("\n")
    more = [f"… {len(lines) - EXPANDED_LINES} more lines"] if len(lines) > EXPANDED_LINES else []
    return [
        *pieces,
        Rows(tuple(((line, ""),) for line in (*lines[:EXPANDED_LINES], *more, *file_lines(recorded))), DETAIL_INDENT),
    ]


def _step_lines(steps: Sequence[str]) -> list[Piece]:
    return _dim([f"▸ {step}" for step in steps])


def _dim(lines: Sequence[str]) -> list[Piece]:
    return [Rows(tuple(((line, "dim"),) for line in lines), DETAIL_INDENT)] if lines else []


def _diff(change: FileChange, limit: int) -> list[Piece]:
    lines = sanitized(change.diff).split("\n") if change.diff else []
    shown = [line for line in lines if line.strip()] if limit == DIFF_LINES else lines
    rows = [
        ((f"{line[:1]} {line[1:]}" if line[:1] in "+- " else line, DIFF_STYLES.get(line[:1], "dim")),)
        for line in shown[:limit]
    ]
    if len(shown) > limit:
        rows.append(((f"… {len(shown) - limit} more lines · Ctrl-O shows all", "dim"),))
    return [Rows(tuple(rows), DETAIL_INDENT)] if rows else []
