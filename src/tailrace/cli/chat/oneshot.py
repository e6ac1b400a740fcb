"""One question, one answer: the answer alone on stdout, all else on stderr.

A viewer of the run's log. Streamed or not, the bytes on stdout are the same.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from typing import Final, TypeAlias, assert_never

import msgspec

from tailrace.agent.service import TurnSpec
from tailrace.app import App
from tailrace.app.error_advice import error_advice, failed_provider, failure_text
from tailrace.cli.chat.options import REQUESTER, ToolDisplay
from tailrace.cli.chat.run_footer import RunFooter
from tailrace.cli.chat.tty_approval import TerminalAsker
from tailrace.cli.main import DONE, FAILED, INCOMPLETE, INTERRUPTED, print_error
from tailrace.cli.screen.sanitize import Sanitizer, sanitized, sanitized_line
from tailrace.cli.screen.tool_details import argument_lines, output_lines, progress_lines
from tailrace.cli.stop_words import stop_words
from tailrace.events import ApprovalAsked, Entry, NotExecuted, RunFailure, RunFinished, RunStatus, entry_to_json
from tailrace.journal.viewed_lines import in_short
from tailrace.runs.recovery import follow
from tailrace.runs.view import RunView, changes
from tailrace.runs.view.changes import Change
from tailrace.system.stdout_writer import StdoutWriter

FRAME_S: Final = 0.05  # between two writes to a terminal, at least; a pipe is written to at once
EXIT: Final[dict[RunStatus, int]] = {
    "completed": DONE,
    "incomplete": INCOMPLETE,
    "failed": FAILED,
    "stopped": INTERRUPTED,
}
_C1: Final = re.compile("[\x7f-\x9f]")


# What stands on stderr, below the text that came before it.
_Told: TypeAlias = changes.UserNotice | changes.ThoughtGrew | changes.CallEnded | changes.Asked | changes.Ended


class PlainText:
    """The visible text of a run, change by change. Every message ends with a line end; a blank line separates two."""

    def __init__(self) -> None:
        self._last = ""  # the last character of the open message
        self._between = ""

    def text_of(self, change: Change) -> str:
        match change:
            case changes.TextGrew(text=text, ends=ends, block_id=""):
                return self._more(text) + (self._end() if ends else "")
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


class OneShot:
    """Asks one question and prints the run."""

    def __init__(
        self,
        app: App,
        *,
        streamed: bool,
        as_json: bool,
        reasoning: bool = False,
        asker: TerminalAsker | None = None,
        tools: ToolDisplay = "lines",
        footer: bool = False,
    ) -> None:
        """`footer`: a line at the end says what the run cost."""
        self._app = app
        self._streamed = streamed
        self._as_json = as_json
        self._reasoning = reasoning
        self._asker = asker
        self._out = StdoutWriter(sys.stdout.fileno())
        self._text = PlainText()
        self._clean = Sanitizer()
        self._texts: list[str] = []  # to be written; without streaming at the end
        self._display: ToolDisplay = tools
        self._view = RunView()
        self._tools: dict[int, changes.CallRuns] = {}
        self._last_tool = ""
        self._footer = RunFooter() if footer and not as_json else None
        self._output: list[str] = []  # of the tool whose end comes next
        self._not_executed = False
        self._provider = ""  # that was asked last
        self._seq = 0
        self._stops = False  # the user has stopped the run here
        self._viewer = ""  # whose runs these are, once one is joined: another terminal is told as such
        self.finished: RunFinished | None = None

    async def ask(self, spec: TurnSpec, session: str = "") -> int:
        """Returns the exit code. When it is cancelled, or stdout cannot be written, it stops the run first."""
        spec = msgspec.structs.replace(spec, reachable=self._asker is not None)
        run = await self._app.agents.submit(spec, session=session)
        return await self.join(run.id)

    def pass_over(self, entries: Sequence[Entry]) -> None:
        """Shows nothing of these: they are the run's first entries, and the user has seen what they say."""
        for entry in entries:
            self._seq = entry.seq
            for change in self._view.apply(entry):
                if self._footer is not None:
                    self._footer.note(change)

    async def join(self, run_id: str) -> int:
        """The same for a run that has been started."""
        self._viewer = REQUESTER
        try:
            await self.watch(run_id)
        except asyncio.CancelledError:
            await self._stop(run_id)
            await self.watch(run_id)
            raise
        except OSError:
            await self._stop(run_id)
            await self._app.agents.finished(run_id)
            raise
        return self._exit_code()

    async def _stop(self, run_id: str) -> None:
        self._stops = True
        await self._app.agents.stop(run_id, by=REQUESTER)

    async def watch(self, run_id: str) -> None:
        """Prints the log from the last printed entry to its end. Raises `RunParked` for a run that is set aside."""
        async for batch in follow(self._app.journal, run_id, after=self._seq):
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
            text = self._clean.feed(text) if self._out.is_terminal else text
            await self._out.write(text.encode(errors="replace"))

    def _line(self, entry: Entry) -> bytes:
        line = entry_to_json(entry) + b"\n"
        if self._out.is_terminal:  # JSON escapes the other control characters itself
            line = _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", line.decode()).encode()
        return line

    async def _handle(self, run_id: str, change: Change) -> None:
        """Everything but the answer's text."""
        if self._footer is not None:
            self._footer.note(change)
        match change:
            case changes.Asked(question=question):
                await self._ask(run_id, question)
            case changes.AttemptBegan(asked=asked):
                self._provider = asked.provider
            case changes.CallRuns(index=index):
                self._tools[index] = change
            case changes.CallEnded(output=output) if output is not None:
                self._show_not_executed(output.not_executed)
                self._output = output_lines(output) if self._display == "verbose" else []
            case changes.CallEnded():
                self._show_tool(change)
            case changes.UserNotice():
                await self._show_notice(change)
            case changes.ThoughtGrew(text=text):
                if self._reasoning and not self._as_json:
                    sys.stderr.write(sanitized(text))
                    sys.stderr.flush()
            case changes.Ended(finished=finished):
                self._finish(finished)
            case (
                changes.TextGrew()
                | changes.TextWithdrawn()
                | changes.CallWritten()
                | changes.Answered()
                | changes.Noticed()
            ):
                pass
            case _:
                assert_never(change)

    async def _ask(self, run_id: str, question: ApprovalAsked) -> None:
        if self._asker is None or question.requester != REQUESTER:
            return  # it will be denied, and told then
        answer = await self._asker.ask(question, timeout_s=self._app.config.approvals.timeout_s)
        if answer is not None:
            decision, reason = answer
            await self._app.agents.answer(run_id, question.approval_id, decision, by=REQUESTER, reason=reason)

    def _show_not_executed(self, action: NotExecuted | None) -> None:
        if action is not None:
            self._not_executed = True
            hint = "; --yolo approves it" if action.kind == "no_one_to_ask" else ""
            print_status(f"not executed: {sanitized_line(action.command)} ({sanitized_line(action.reason)}{hint})")

    async def _end_line(self) -> None:
        """What is told below stands on a line of its own, also in the middle of the answer."""
        if self._streamed and self._out.is_terminal and not self._as_json:
            await self._out.write(self._text.end_line().encode())

    async def _show_notice(self, notice: changes.UserNotice) -> None:
        if lines := self._notice_lines(notice):
            await self._end_line()
            print_lines(lines)

    def _notice_lines(self, notice: changes.UserNotice) -> list[str]:
        if notice.kind != "tool_progress":
            return [sanitized_line(notice.text)]
        return details(progress_lines(notice.text)) if self._display == "verbose" else []

    def _show_tool(self, ended: changes.CallEnded) -> None:
        begun = self._tools.pop(ended.index, None) if ended.index is not None else None
        repeats, self._last_tool = ended.tool_name == self._last_tool and ended.ok, ended.tool_name
        if repeats and self._display == "new":
            return
        preview = sanitized_line(begun.preview or "") if begun else ""
        name = sanitized_line(ended.tool_name, 60)
        print_status(f"{'✓' if ended.ok else '✗'} {name}  {preview}  {ended.duration_s or 0.0:.1f}s")
        if self._display == "verbose":
            print_lines(details([*argument_lines(begun.args if begun else None), *self._output]))

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
        if advice := error_advice(failure, failed_provider(self._app.config, self._provider)):
            print_status(f"       {sanitized_line(advice, 300)}")

    def _exit_code(self) -> int:
        if self.finished is None:  # the journal was closed
            print_error("the run has not ended; see: tailrace runs")
            return FAILED
        code = EXIT[self.finished.status]
        return INCOMPLETE if code == DONE and self._not_executed else code


def details(lines: Sequence[str]) -> list[str]:
    """As they stand below the line of a tool."""
    return [f"    {line}" for line in lines]


def print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        print_status(line)


def print_status(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
