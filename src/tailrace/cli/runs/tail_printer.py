"""A run's log as text, entry after entry: what `tailrace tail` prints.

What has ended is told whole: the output of a tool stands where its progress was. While the run goes on, progress is
printed as it comes, and the output only where there was none.
"""

from __future__ import annotations

import re
from typing import TypeAlias, assert_never

from tailrace.cli.runs.happenings import output_text
from tailrace.events import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptFact,
    Commentary,
    Delivered,
    Entry,
    GatewayNotice,
    HistoryCompressed,
    LlmDelta,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFact,
    RunFinished,
    SignalReceived,
    Snapshot,
    StateChanged,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
)
from tailrace.runs.approval_words import outcome_words
from tailrace.runs.failures import stop_words

_NotShown: TypeAlias = (
    RunFact
    | ReasoningChunk
    | LongToolHint
    | AttemptFact
    | MessageRecorded
    | HistoryCompressed
    | Delivered
    | SignalReceived
    | ToolCallFinished
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def harmless(text: str) -> str:
    """Model output must not move the cursor or write the clipboard (J122)."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


class TailPrinter:
    """`live_after` is the last entry that was there when the viewer came: those after it are told as they come."""

    def __init__(self, live_after: int) -> None:
        self._live_after = live_after
        self._with_progress: set[str] = set()  # tools whose progress was printed, by name
        self._speaking = ""  # the step whose text the cursor stands in
        self._spoke: set[str] = set()  # steps whose text was printed
        self._open_line = False

    def text_of(self, entry: Entry) -> str:
        """What is printed for this entry."""
        shown = harmless(self._shown(entry))
        if shown:
            self._open_line = not shown.endswith("\n")
        return shown

    def _shown(self, entry: Entry) -> str:  # noqa: C901, PLR0912 - one case per event
        match entry.event:
            case MessageChunk(text=text):
                return text
            case MessageStop():
                return "\n"
            case Commentary(text=text):
                return f"{text}\n"
            case ToolCallChunk(tool_name=name, preview=preview):
                return self._line(f"· {name} {preview or ''}".rstrip())
            case ToolOutputRecorded():
                return self._output(entry.event, live=entry.seq > self._live_after)
            case GatewayNotice(kind="tool_progress", text=text, extra=extra):
                if entry.seq <= self._live_after:
                    return ""
                self._with_progress.add(str(extra.get("tool_name", "")))
                return self._line(f"  │ {text}")
            case GatewayNotice(text=text):
                return self._line(text)
            case ApprovalAsked(command=command, scope=scope):
                return self._line(f"? approval needed: {command}" + (f" ({scope})" if scope else ""))
            case ApprovalAnswered():
                return self._line(f"? {outcome_words(None, entry.event)}")
            case Snapshot(messages=messages):
                return "".join(f"{message.text}\n" for message in messages)
            case LlmDelta(block_id=block_id, delta=delta):
                return self._speak(block_id, delta)
            case StepFailed() | StepFinished() | StepCancelled():
                return self._step(entry.event)
            case StepStarted(block_id=block_id, number=number):
                return self._line(f"· {block_id}" + (f" (try {number})" if number > 1 else ""))
            case StateChanged(state=state):
                return self._line(f"… {state}") if state in ("waiting", "paused") else ""
            case RunFinished(status="stopped", error=error) if error is not None and error.by:
                return self._line(f"[stopped] {stop_words(error)}")
            case RunFinished(status=status, error=error) if status != "completed":
                return self._line(f"[{status}]" + (f" {error.message}" if error else ""))
            case _ if isinstance(entry.event, _NotShown):
                return ""
            case _:
                assert_never(entry.event)

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

    def _step(self, event: StepFailed | StepFinished | StepCancelled) -> str:
        match event:
            case StepFinished(block_id=block_id, output=output):
                spoke = block_id in self._spoke
                text = "" if spoke or output is None else output_text(output)
                return self._line(f"✓ {block_id}") + "".join(f"  │ {line}\n" for line in text.splitlines())
            case StepFailed(block_id=block_id, error=error, retry_at=retry_at):
                again = ", trying again" if retry_at is not None else ""
                self._spoke.discard(block_id)
                return self._line(f"✗ {block_id} failed{again}: {error.message}")
            case StepCancelled(block_id=block_id):
                return self._line(f"✗ {block_id} cancelled")
            case _:
                assert_never(event)
