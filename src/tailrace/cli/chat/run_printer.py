"""A run as it is written: its texts on stdout, all else on stderr.

A viewer of the run's log. Streamed or not, the bytes on stdout are the same.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from typing import Final, TypeAlias, assert_never

from tailrace.app.error_advice import error_advice, failed_provider, failure_text
from tailrace.cli.main import print_error
from tailrace.cli.screen.sanitize import Sanitizer, sanitized, sanitized_line
from tailrace.cli.screen.tool_details import argument_lines, output_lines, progress_lines
from tailrace.cli.stop_words import stop_words
from tailrace.cli.words import output_text
from tailrace.config.load import Config
from tailrace.events import Entry, RunFailure, RunFinished, ToolOutputRecorded, entry_to_json
from tailrace.journal.viewed_lines import in_short
from tailrace.messages import Usage
from tailrace.ports import Journal
from tailrace.runs.approval_words import outcome_words
from tailrace.runs.recovery import follow
from tailrace.runs.view import RunView, changes
from tailrace.runs.view.changes import Change
from tailrace.system.stdout_writer import StdoutWriter

FRAME_S: Final = 0.05  # between two writes to a terminal, at least; a pipe is written to at once
_C1: Final = re.compile("[\x7f-\x9f]")
# What stands on stderr, below the text that came before it.
_Told: TypeAlias = (
    changes.UserNotice
    | changes.ThoughtGrew
    | changes.CallRuns
    | changes.CallEnded
    | changes.Asked
    | changes.Answered
    | changes.StepMoved
    | changes.Ended
)


class RunFooter:
    """Collects it from the changes of the run's view."""

    def __init__(self) -> None:
        self._began_at = 0.0
        self._model = ""  # that answered last
        self._tries = 0
        self._calls = 0
        self._answered = True  # the next attempt begins a call

    def note(self, change: Change) -> None:
        match change:
            case changes.RunBegan(started=started):
                self._began_at = started.at
            case changes.ForkBegan():
                self._calls = 0  # the tool calls before a fork are another run's
            case changes.AttemptBegan(asked=asked):
                self._tries += 1
                self._calls += self._answered
                self._answered = False
                self._model = f"{asked.provider}/{asked.model}" if asked.provider else asked.model
            case changes.MessageJoined(message=message) if message.role == "assistant":
                self._answered = True
            case _:
                pass

    def line(self, finished: RunFinished) -> str:
        """Empty where no model was called. Has the number of tries where one of them failed."""
        if not self._tries:
            return ""
        parts = [sanitized_line(self._model, 100)]
        parts += [f"{self._calls} calls"] if self._calls > 1 else []
        parts += [f"{self._tries} tries"] if self._tries > self._calls else []
        parts += [f"{max(0.0, finished.at - self._began_at):.1f} s"]
        usage, about = finished.usage, "~" if finished.usage.estimated_tokens else ""
        parts += [f"{about}{usage.input_tokens:,} in, {about}{usage.output_tokens:,} out"] if usage != Usage() else []
        return " · ".join(parts)


class PlainText:
    """The visible text of a run, change by change. Every message ends with a line end; a blank line separates two. The
    text of a sequence's step has the step's name before it."""

    def __init__(self) -> None:
        self._last = ""  # the last character of the open message
        self._between = ""
        self._step = ""  # whose text is the last

    def text_of(self, change: Change) -> str:
        match change:
            case changes.TextGrew(text=text, ends=ends, block_id=block_id):
                begin = ""
                if block_id and (block_id != self._step or not self._last):
                    begin, self._step = f"{self._end()}[{block_id}] ", block_id
                    self._between = ""
                return begin + self._more(text) + (self._end() if ends else "")
            case changes.StepMoved(state="finished", block_id=block_id, output=output) if block_id != self._step:
                return f"{self._end()}{output_text(output)}\n" if output is not None else ""
            case changes.Restored(state=state):
                return "".join(f"{message.text}\n" for message in state.messages)
            case changes.Ended():
                return self._end()
            case _:
                return ""

    def end_line(self) -> str:
        """What ends the line that the open message is in the middle of."""
        if self._last in ("", "\n"):
            return ""
        self._last = "\n"
        return "\n"

    def _more(self, text: str) -> str:
        if not text:
            return ""
        between, self._between, self._last = self._between, "", text[-1]
        return between + text

    def _end(self) -> str:
        if not self._last:
            return ""
        missing = "" if self._last == "\n" else "\n"
        self._last, self._between = "", "\n"
        return missing


class RunPrinter:
    """Prints one run. `is_exact`: a pipe gets the bytes of the answer, with whatever a terminal would obey (J122)."""

    is_exact = False

    def __init__(
        self,
        journal: Journal,
        config: Config,
        *,
        streamed: bool,
        as_json: bool,
        reasoning: bool = False,
        verbose: bool = False,
        footer: bool = False,
    ) -> None:
        """`verbose`: all of each call of a tool. `footer`: a line at the end says what the run cost."""
        self._journal = journal
        self._config = config
        self._streamed = streamed
        self._as_json = as_json
        self._reasoning = reasoning
        self._verbose = verbose
        self._out = StdoutWriter(sys.stdout.fileno())
        self._text = PlainText()
        self._clean = Sanitizer()
        self._texts: list[str] = []  # to be written; without streaming at the end
        self._view = RunView()
        self._tools: dict[int, changes.CallRuns] = {}
        self._footer = RunFooter() if footer and not as_json else None
        self._output: list[str] = []  # of the tool whose end comes next
        self._not_executed = False
        self._provider = ""  # that was asked last
        self._seq = 0
        self._stops = False  # the user has stopped the run here
        self._thinks = False  # the last thing on stderr is a piece of reasoning: its line is open
        self._viewer = ""  # the requester of the joined run: messages from other terminals are marked
        self.finished: RunFinished | None = None

    async def watch(self, run_id: str, *, after: int = 0) -> None:
        """Prints the log from the last printed entry to its end. Raises `RunParked` for a run that is set aside."""
        async for batch in follow(self._journal, run_id, after=max(after, self._seq)):
            shown = 0  # entries of the batch whose text is written
            for number, entry in enumerate(batch, 1):
                seen = self._view.apply(entry)
                self._texts += map(self._text.text_of, seen)
                self._seq = entry.seq
                if number == len(batch) or any(isinstance(change, _Told) for change in seen):
                    await self._write(batch[shown:number])
                    shown = number
                for change in seen:
                    await self._handle(run_id, change)
            if self._out.is_terminal and self.finished is None:
                await asyncio.sleep(FRAME_S)  # what arrives meanwhile comes as one batch

    async def _write(self, entries: Sequence[Entry]) -> None:
        """Writes what the entries add to stdout: what came first is shown first."""
        if self._as_json:
            shown = entries if self._reasoning else in_short(entries)
            await self._out.write(b"".join(self._line(entry) for entry in shown))
            return
        if self._streamed or self._view.finished is not None:
            text, self._texts = "".join(self._texts), []
            if text:
                self._end_thought()
            text = text if self.is_exact and not self._out.is_terminal else self._clean.feed(text)
            await self._out.write(text.encode(errors="replace"))

    def _line(self, entry: Entry) -> bytes:
        line = entry_to_json(entry) + b"\n"
        if self._out.is_terminal:  # JSON escapes the other control characters itself
            line = _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", line.decode()).encode()
        return line

    async def _handle(self, run_id: str, change: Change) -> None:
        """Everything but the texts."""
        if self._footer is not None:
            self._footer.note(change)
        match change:
            case changes.Asked() | changes.Answered():
                await self._question(run_id, change)
            case changes.CallRuns(index=index):
                self._tools[index] = change
            case changes.CallEnded(output=output) if output is not None:
                self._record(output)
            case changes.CallEnded():
                self._show_tool(change)
            case changes.Noticed():
                await self._notice(change)
            case changes.ThoughtGrew(ends=True):
                self._end_thought()
            case changes.ThoughtGrew(text=text):
                if self._reasoning and not self._as_json:
                    sys.stderr.write(sanitized(text))
                    sys.stderr.flush()
                    self._thinks = not text.endswith("\n")
            case changes.Ended(finished=finished):
                self._finish(finished)
            case changes.TextGrew() | changes.TextWithdrawn() | changes.CallWritten() | changes.Steered():
                pass
            case _:
                assert_never(change)

    def _end_thought(self) -> None:
        if self._thinks:
            self._thinks = False
            print_status("")

    async def _notice(self, change: changes.Noticed) -> None:
        match change:
            case changes.AttemptBegan(asked=asked):
                self._provider = asked.provider
            case changes.SubRunBegan(run_id=sub_run, tool_name=name):
                await self._tell([f"· {sanitized_line(name, 60)}  {sub_run}"])
            case changes.UserNotice(kind="tool_progress", text=text, extra=extra):
                is_shown = self._verbose or "run_id" in extra
                await self._tell([f"    {line}" for line in progress_lines(text)] if is_shown else [])
            case changes.UserNotice(text=text):
                await self._tell([sanitized_line(text)])
            case changes.StepMoved():
                await self._tell(_step_lines(change))
            case _:
                pass

    async def _question(self, _run_id: str, change: changes.Asked | changes.Answered) -> None:
        """Another surface answers it."""
        if isinstance(change, changes.Asked):
            scope = f" ({change.question.scope})" if change.question.scope else ""
            await self._tell([f"? approval needed: {sanitized_line(change.question.command + scope, 2000)}"])
        else:
            await self._tell([f"? {sanitized_line(outcome_words(None, change.answer), 500)}"])

    def _record(self, output: ToolOutputRecorded) -> None:
        self._output = output_lines(output) if self._verbose else []
        if (action := output.not_executed) is not None:
            self._not_executed = True
            hint = "; --yolo approves it" if action.kind == "no_one_to_ask" else ""
            print_status(f"not executed: {sanitized_line(action.command)} ({sanitized_line(action.reason)}{hint})")

    async def _tell(self, lines: Sequence[str]) -> None:
        """On lines of their own, also in the middle of the answer."""
        if lines and self._streamed and self._out.is_terminal and not self._as_json:
            await self._out.write(self._text.end_line().encode())
        for line in lines:
            print_status(line)

    def _show_tool(self, ended: changes.CallEnded) -> None:
        begun = self._tools.pop(ended.index, None) if ended.index is not None else None
        preview = sanitized_line(begun.preview or "") if begun else ""
        name = sanitized_line(ended.tool_name, 60)
        print_status(f"{'✓' if ended.ok else '✗'} {name}  {preview}  {ended.duration_s or 0.0:.1f}s")
        if self._verbose:
            for line in [*argument_lines(begun.args if begun else None), *self._output]:
                print_status(f"    {line}")

    def _finish(self, finished: RunFinished) -> None:
        """One line: what went wrong, if anything did, and what the run cost."""
        self.finished = finished
        cost = self._footer.line(finished) if self._footer is not None else ""
        what = self._failure_words(finished.error) if finished.error is not None else ""
        if what and finished.status == "failed":
            print_error(what + (f" ({cost})" if cost else ""))
            self._print_advice(finished.error)
        elif what and finished.status == "incomplete":
            print_status(f"incomplete: {what}" + (f" · {cost}" if cost else ""))
        elif finished.status == "stopped":
            if not self._stops:
                print_status(sanitized_line(stop_words(finished.error, viewer=self._viewer), 200))
        elif cost:
            print_status(cost)

    def _failure_words(self, failure: RunFailure) -> str:
        """With the HTTP status of a call that failed: a refused key and a server's fault are told apart by it."""
        return sanitized_line(failure_text(failure, model=self._provider if failure.status else ""), 2000)

    def _print_advice(self, failure: RunFailure | None) -> None:
        """What to do next, below the error, for a person; a program that reads stderr gets the one line."""
        if failure is None or self._as_json or not sys.stderr.isatty():
            return
        if advice := error_advice(failure, failed_provider(self._config, self._provider)):
            print_status(f"       {sanitized_line(advice, 300)}")


def _step_lines(step: changes.StepMoved) -> list[str]:
    """What happens to a step of a sequence."""
    mark = {"started": "·", "finished": "✓", "cancelled": "–"}.get(step.state, "✗")
    again = f" (try {step.number})" if step.number > 1 and step.state == "started" else ""
    failed = f" failed: {step.error.message}" if step.error is not None else ""
    return [sanitized_line(f"{mark} {step.block_id}{again}{failed}", 500)]


def print_status(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
