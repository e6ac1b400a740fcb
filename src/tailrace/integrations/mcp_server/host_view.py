"""One run as an MCP host is shown it: a line of progress while it goes on, the text since a cursor, open questions.

Pure: entries in, state out; any cut of the log into batches gives the same. The text of a discarded attempt is gone
from the state; a report to a host that has it says that its text replaces what the host has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from tailrace.events import ApprovalAsked, Entry, Snapshot
from tailrace.journal.fold import Fold
from tailrace.runs.approval_words import outcome_words
from tailrace.runs.view import RunView, changes

LINE_CHARS: Final = 300  # of a progress message: hosts show it on a line or two


class HostView:
    """The state of a run for a host whose cursor is `after`. What the model thought is never part of it."""

    def __init__(self, after: int = 0) -> None:
        self._after = after
        self._fold = Fold()
        self._view = RunView()
        self._known: str | None = None  # the text at the cursor, once the log is past it
        self._known_for_certain = True
        self._line: str | None = None  # None: the text itself

    @property
    def waiting(self) -> dict[str, ApprovalAsked]:
        """Questions without an answer, by approval id."""
        return self._view.questions

    @property
    def seq(self) -> int:
        return self._fold.seq

    @property
    def has_ended(self) -> bool:
        return self._fold.status != "running"

    @property
    def state(self) -> Snapshot:
        return self._fold.snapshot()

    @property
    def text(self) -> str:
        """All that was said, a blank line between messages."""
        return "\n\n".join(message.text for message in self.state.messages)

    def text_since(self) -> tuple[str, bool]:
        """The text after the cursor. True: it replaces what the host has, because what the host was given was withdrawn
        since, or is no longer kept apart from the rest."""
        if self._known is None:
            return "", False
        text = self.text
        if self._known_for_certain and text.startswith(self._known):
            return text[len(self._known) :], False
        return text, True

    @property
    def line(self) -> str:
        """What happens now, on one line."""
        return _one_line(self._fold.output if self._line is None else self._line)

    def feed(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if self._known is None and entry.seq > self._after:
                self._known = self.text
                self._known_for_certain = self._after == 0 or not isinstance(entry.event, Snapshot)
            self._fold.apply(entry)
            for change in self._view.apply(entry):
                self._note(change)

    def _note(self, change: changes.Change) -> None:  # noqa: C901 - one case per change
        match change:
            case changes.TextGrew(text=text, commentary=commentary):
                if text:
                    self._line = text if commentary else None
            case changes.ThoughtGrew(text=text):
                if text:
                    self._line = "thinking"
            case changes.CallRuns(tool_name=name, preview=preview):
                self._line = f"{name}: {preview}" if preview else name
            case changes.CallEnded(tool_name=name, ok=ok, output=None):
                self._line = f"{name} {'is done' if ok else 'failed'}"
            case changes.Asked(question=question):
                self._line = f"waiting for an approval: {question.command}"
            case changes.Answered(answer=answer, question=question):
                self._line = f"approval: {outcome_words(question, answer)}"
            case changes.Noticed():
                self._line = self._notice(change)
            case changes.Ended(finished=finished):
                self._line = finished.status
            case changes.Steered(steer=steer):
                self._line = f"a message for the run is {steer.state}"
            case changes.TextWithdrawn() | changes.CallWritten() | changes.CallEnded():
                pass
            case _:
                assert_never(change)

    def _notice(self, change: changes.Noticed) -> str | None:
        match change:
            case changes.RunBegan():
                return "started"
            case changes.AttemptBegan(asked=asked):
                again = f" once more: {asked.previous_failure}" if asked.previous_failure else ""
                return f"waiting for {asked.provider}/{asked.model}{again}"
            case changes.ToolRunsLong(tool_name=name, duration_s=duration):
                return f"{name} has been running for {duration:.0f} s"
            case changes.UserNotice(text=text):
                return text or self._line
            case changes.Restored():
                return None
            case _:
                return self._line


def _one_line(text: str) -> str:
    """The end of the text, without line ends and whatever else moves a terminal's cursor (J122)."""
    end = text[-2 * LINE_CHARS :]
    line = " ".join("".join(char if char.isprintable() else " " for char in end).split())
    if len(line) <= LINE_CHARS and len(end) == len(text):
        return line
    return "…" + line[-LINE_CHARS + 1 :]
