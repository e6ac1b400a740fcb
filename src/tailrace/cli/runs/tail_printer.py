"""A run's log as text, entry after entry: what `tailrace tail` prints.

What has ended is told whole: the output of a tool stands where its progress was. While the run goes on, progress is
printed as it comes, and the output only where there was none.
"""

from __future__ import annotations

import re
from typing import assert_never

from tailrace.cli.screen.words import output_text
from tailrace.cli.stop_words import stop_words
from tailrace.events import Entry, RunFinished, ToolOutputRecorded
from tailrace.runs.approval_words import outcome_words
from tailrace.runs.view import RunView, changes
from tailrace.runs.view.changes import Change

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def harmless(text: str) -> str:
    """Model output must not move the cursor or write the clipboard (J122)."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


class TailPrinter:
    """`live_after` is the last entry that was there when the viewer came: those after it are told as they come."""

    def __init__(self, live_after: int) -> None:
        self._view = RunView()
        self._live_after = live_after
        self._with_progress: set[str] = set()  # tools whose progress was printed, by name
        self._speaking = ""  # the step whose text the cursor stands in
        self._spoke: set[str] = set()  # steps whose text was printed
        self._open_line = False

    def text_of(self, entry: Entry) -> str:
        """What is printed for this entry."""
        return "".join(map(self._text_of, self._view.apply(entry)))

    def _text_of(self, change: Change) -> str:
        shown = harmless(self._shown(change))
        if shown:
            self._open_line = not shown.endswith("\n")
        return shown

    def _shown(self, change: Change) -> str:  # noqa: C901, PLR0912 - one case per change
        match change:
            case changes.TextGrew(text=text, block_id=block_id) if block_id:
                return self._speak(block_id, text)
            case changes.TextGrew(text=text, ends=ends):
                return f"{text}\n" if ends else text
            case changes.CallRuns(tool_name=name, preview=preview):
                return self._line(f"· {name} {preview or ''}".rstrip())
            case changes.CallEnded(output=output):
                return self._output(output, live=change.seq > self._live_after) if output is not None else ""
            case changes.UserNotice(kind="tool_progress", text=text, extra=extra):
                if change.seq <= self._live_after:
                    return ""
                self._with_progress.add(str(extra.get("tool_name", "")))
                return self._line(f"  │ {text}")
            case changes.UserNotice(text=text):
                return self._line(text)
            case changes.Asked(question=question):
                scope = f" ({question.scope})" if question.scope else ""
                return self._line(f"? approval needed: {question.command}{scope}")
            case changes.Answered(answer=answer):
                return self._line(f"? {outcome_words(None, answer)}")
            case changes.Restored(state=state):
                return "".join(f"{message.text}\n" for message in state.messages)
            case changes.StepMoved():
                return self._step(change)
            case changes.InstanceMoved(state=state):
                return self._line(f"… {state}") if state in ("waiting", "paused") else ""
            case changes.Ended(finished=finished):
                return self._end(finished)
            case changes.ThoughtGrew() | changes.TextWithdrawn() | changes.CallWritten() | changes.Noticed():
                return ""
            case _:
                assert_never(change)

    def _end(self, finished: RunFinished) -> str:
        if finished.status == "completed":
            return ""
        error = finished.error
        if finished.status == "stopped" and error is not None and error.by:
            return self._line(f"[stopped] {stop_words(error)}")
        return self._line(f"[{finished.status}]" + (f" {error.message}" if error else ""))

    def _line(self, text: str) -> str:
        self._speaking = ""
        return ("\n" if self._open_line else "") + text + "\n"

    def _output(self, event: ToolOutputRecorded, *, live: bool) -> str:
        failed = "" if event.ok else f"  ✗ {event.tool_name} failed\n"
        if live and event.tool_name in self._with_progress:
            self._with_progress.discard(event.tool_name)
            return failed
        lines = "".join(f"  │ {line}\n" for line in event.output.strip("\n").split("\n") if event.output.strip())
        return ("\n" if self._open_line else "") + lines + failed

    def _speak(self, block_id: str, delta: str) -> str:
        self._spoke.add(block_id)
        if self._speaking == block_id:
            return delta
        begin = "\n" if self._open_line else ""
        self._speaking = block_id
        return f"{begin}[{block_id}] {delta}"

    def _step(self, step: changes.StepMoved) -> str:
        match step.state:
            case "started":
                return self._line(f"· {step.block_id}" + (f" (try {step.number})" if step.number > 1 else ""))
            case "finished":
                spoke = step.block_id in self._spoke
                text = "" if spoke or step.output is None else output_text(step.output)
                return self._line(f"✓ {step.block_id}") + "".join(f"  │ {line}\n" for line in text.splitlines())
            case "failed" | "retrying":
                again = ", trying again" if step.state == "retrying" else ""
                self._spoke.discard(step.block_id)
                return self._line(f"✗ {step.block_id} failed{again}: {step.error.message if step.error else ''}")
            case "cancelled":
                return self._line(f"✗ {step.block_id} cancelled")
            case _:
                assert_never(step.state)
