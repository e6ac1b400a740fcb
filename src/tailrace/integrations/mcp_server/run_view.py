"""One run as an MCP host is shown it: a line of progress while it goes on, the text since a cursor, open questions.

Pure: entries in, state out; any cut of the log into batches gives the same. The text of a discarded attempt is gone
from the state; a host that was given it is told that the text replaces what it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptFact,
    AttemptStarted,
    Commentary,
    Delivered,
    Entry,
    GatewayNotice,
    HistoryFact,
    LongToolHint,
    MessageChunk,
    MessageStop,
    ReasoningChunk,
    RunFinished,
    RunForked,
    RunStarted,
    SequenceFact,
    Snapshot,
    ToolCallChunk,
    ToolCallFinished,
)
from tailrace.journal.fold import Fold
from tailrace.runs.approval_words import outcome_words

LINE_CHARS: Final = 300  # of a progress message: hosts show it on a line or two


class RunView:
    """The state of a run for a host whose cursor is `after`. What the model thought is never part of it."""

    def __init__(self, after: int = 0) -> None:
        self._after = after
        self._fold = Fold()
        self._known: str | None = None  # the text at the cursor, once the log is past it
        self._known_for_certain = True
        self._line: str | None = None  # None: the text itself
        self.waiting: dict[str, ApprovalAsked] = {}  # questions without an answer, by approval id

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
            self._note(entry.event)

    def _note(self, event: AnyEvent) -> None:  # noqa: C901, PLR0912 - one case per event
        match event:
            case MessageChunk():
                self._line = None
            case Commentary(text=text):
                self._line = text
            case ReasoningChunk():
                self._line = "thinking"
            case ToolCallChunk(tool_name=name, preview=preview):
                self._line = f"{name}: {preview}" if preview else name
            case ToolCallFinished(tool_name=name, ok=ok):
                self._line = f"{name} {'is done' if ok else 'failed'}"
            case LongToolHint(tool_name=name, duration=duration):
                self._line = f"{name} has been running for {duration:.0f} s"
            case GatewayNotice(text=text):
                self._line = text or self._line
            case ApprovalAsked(approval_id=approval_id, command=command):
                self.waiting[approval_id] = event
                self._line = f"waiting for an approval: {command}"
            case ApprovalAnswered(approval_id=approval_id):
                self._line = f"approval: {outcome_words(self.waiting.pop(approval_id, None), event)}"
            case RunFinished(status=status):
                self.waiting.clear()
                self._line = status
            case Snapshot(approvals=approvals, status=status):
                is_open = status == "running"
                self.waiting = {
                    each.asked.approval_id: each.asked for each in approvals if is_open and not each.decision
                }
                self._line = None
            case RunStarted():
                self._line = "started"
            case AttemptStarted(provider=provider, model=model, previous_failure=why):
                self._line = f"waiting for {provider}/{model}" + (f" once more: {why}" if why else "")
            case RunForked() | MessageStop() | Delivered():
                pass
            case _ if isinstance(event, AttemptFact | HistoryFact | SequenceFact):
                pass
            case _:
                assert_never(event)


def _one_line(text: str) -> str:
    """The end of the text, without line ends and whatever else moves a terminal's cursor (J122)."""
    end = text[-2 * LINE_CHARS :]
    line = " ".join("".join(char if char.isprintable() else " " for char in end).split())
    if len(line) <= LINE_CHARS and len(end) == len(text):
        return line
    return "…" + line[-LINE_CHARS + 1 :]
