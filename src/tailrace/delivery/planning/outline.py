"""What an answer consists of: a run's changes folded into slots, in the order of the chat.

Pure. A slot is a text bubble, a group of tools, a question for approval or a note. Its key never changes, so that a
restarted process finds its messages again. Knows the text so far, never what was sent.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import msgspec

from tailrace import events
from tailrace.delivery.planning.presenter import FILE_LEFT_OUT, Presenter
from tailrace.delivery.port import Purpose
from tailrace.events import Entry
from tailrace.events.attempt_text import AttemptText
from tailrace.journal.fold import with_step
from tailrace.messages import ToolFile
from tailrace.runs.approval_words import RUN_OVER, WRITTEN_OVER
from tailrace.runs.signals import NEWER_MESSAGE
from tailrace.runs.view import RunView, changes

CHARACTERS_PER_TOKEN = 4
ENDING = "end"
KEPT_BACK_KEY = "kept"
_REVISIONS = frozenset({changes.Ended, changes.TextWithdrawn, changes.Answered, changes.Restored})


class TextSlot:
    """A bubble of the answer. `growing` until a `MessageStop` or the run's end."""

    def __init__(self, key: str, purpose: Purpose = "answer") -> None:
        self.key = key
        self.purpose = purpose
        self.growing = True
        self.deltas = 0
        self._pieces = AttemptText()
        self._text: str | None = ""

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = _sendable(self._pieces.text)
        return self._text

    @property
    def tokens(self) -> int:
        return max(self.deltas, len(self.text) // CHARACTERS_PER_TOKEN)

    def add(self, text: str, attempt: int) -> None:
        self._pieces.add(text, attempt)
        self._text = None
        self.deltas += 1

    def withdraw(self, attempt: int) -> None:
        self._pieces.withdraw(attempt)
        self._text = None

    def replace(self, text: str) -> None:
        """Replaces what the chunks said."""
        self._text = _sendable(text)
        self._pieces = AttemptText(self._text)


class ToolSlot:
    """Tools that ran with no text between them: one message with a line for each."""

    purpose: Purpose = "tools"

    def __init__(self, key: str) -> None:
        self.key = key
        self.tools: dict[int, events.ToolSoFar] = {}
        self.problems: dict[int, str] = {}  # the last line of what a failed tool gave
        self.followed = False  # another slot follows: no tool will be added

    @property
    def growing(self) -> bool:
        return not self.followed or any(tool.ok is None for tool in self.tools.values())


class ApprovalSlot:
    purpose: Purpose = "approval"

    def __init__(self, key: str, approval: events.ApprovalSoFar) -> None:
        self.key, self.approval = key, approval


class NoteSlot:
    """A text that does not grow."""

    def __init__(self, key: str, text: str, kind: str = "", purpose: Purpose = "notice") -> None:
        self.key, self.text, self.kind, self.purpose = key, text, kind, purpose


class FileSlot:
    """A file or an image that a tool gave for the user."""

    purpose: Purpose = "tools"

    def __init__(self, key: str, file: ToolFile) -> None:
        self.key, self.file = key, file


Slot: TypeAlias = TextSlot | ToolSlot | ApprovalSlot | NoteSlot | FileSlot


class Outline:
    """`edits`: a message can still change after it was sent; without that, what would change it is a message of its
    own."""

    def __init__(self, presenter: Presenter, *, edits: bool = True, purpose: Purpose = "answer") -> None:
        self.slots: list[Slot] = []
        # The bubble that the next chunk is added to: after the run's end, the text that a non-streaming call returns.
        self.answer: TextSlot | None = None
        self.finished: events.RunFinished | None = None
        self.parked = False  # nothing is awaited: the run was set aside, or the chat is asked its questions alone
        self._told_of_long_tool = False
        self._view = RunView()
        self._presenter = presenter
        self._edits = edits
        self._purpose: Purpose = purpose
        self._questions_only = False
        self._texts = 0
        self._tools: dict[int, ToolSlot] = {}
        self._files: list[FileSlot] = []  # of a tool whose end is not recorded yet
        self._approvals: dict[str, ApprovalSlot] = {}

    def begin_with(self, text: str) -> None:
        """What stands above an answer that was kept back. Call it before any entry is applied."""
        self.slots.append(NoteSlot(KEPT_BACK_KEY, text))

    def show_questions_only(self) -> None:
        """Call it before any entry is applied."""
        self.parked = self._questions_only = True

    @property
    def open_approval(self) -> events.ApprovalAsked | None:
        """The newest question without an answer."""
        waiting = [slot.approval.asked for slot in self._approvals.values() if slot.approval.decision is None]
        return waiting[-1] if waiting and self.finished is None else None

    @property
    def waits_for_person(self) -> bool:
        """Whether nothing happens in the run before a person has answered."""
        return self.open_approval is not None and not self._running_tools()

    def _running_tools(self) -> list[events.ToolSoFar]:
        return [tool for slot in self._tools.values() for tool in slot.tools.values() if tool.ok is None]

    @property
    def activity(self) -> str:
        """What the run does now, in a few words."""
        running = self._running_tools()
        return self._presenter.activity(running[-1] if running else None, writing=self.answer is not None)

    def apply(self, entry: Entry) -> bool:
        """Whether slots that were complete may have changed."""
        made = self._view.apply(entry)
        if self._questions_only:
            made = [change for change in made if isinstance(change, changes.Asked | changes.Answered | changes.Ended)]
        for change in made:
            if change.__class__ is changes.TextGrew:  # nearly every entry: ahead of the match for speed alone
                self._grow(change)
            else:
                is_parked = isinstance(change, changes.UserNotice) and change.kind == "parked"
                self.parked = is_parked or self._questions_only
                self._apply(change)
        return any(change.__class__ in _REVISIONS for change in made)

    def _apply(self, change: changes.Change) -> None:  # noqa: C901 - one case per change
        match change:
            case changes.TextGrew():
                self._grow(change)
            case changes.TextWithdrawn(attempt=attempt, discarded=discarded, block_id=block_id):
                if discarded and not block_id:
                    self._withdraw(attempt)
            case changes.CallRuns(index=index, tool_name=name, preview=preview, args=args, attempt=attempt):
                self._tool_slot(index).tools[index] = events.ToolSoFar(name, index, attempt, preview, args)
            case changes.CallEnded():
                self._end_call(change)
            case changes.Asked(question=question):
                self._ask(question)
            case changes.Answered(answer=answer):
                self._answer(answer)
            case changes.UserNotice() | changes.ToolRunsLong():
                self._notice(change)
            case changes.Steered(steer=steer):
                self._note(f"s{change.seq}", self._presenter.steered(steer), kind=f"steer_{steer.state}")
            case changes.Restored(state=state):
                self._restore(state)
            case changes.Ended(finished=finished):
                self._finish(finished)
            case changes.ThoughtGrew() | changes.CallWritten() | changes.Noticed():
                pass
            case _:
                assert_never(change)

    def _grow(self, change: changes.TextGrew) -> None:
        """The last stop changes nothing: the run's end follows it."""
        if change.commentary:
            self._note(f"c{change.seq}", change.text, purpose="answer")
        elif change.text and not change.block_id:
            self._chunk(change.text, change.attempt)
        elif change.ends and not change.final:
            if self.answer is not None:
                self.answer.growing = False
            self.answer = None

    def _chunk(self, text: str, attempt: int) -> None:
        self._bubble().add(text, attempt)

    def _bubble(self) -> TextSlot:
        if self.answer is None:
            self.answer = TextSlot(f"t{self._texts}", self._purpose)
            self._texts += 1
            self._add(self.answer)
        return self.answer

    def _tool_slot(self, index: int) -> ToolSlot:
        slot = self._tools.get(index)
        if slot is None:
            last = self.slots[-1] if self.slots else None
            slot = last if isinstance(last, ToolSlot) else ToolSlot(f"x{index}")
            if slot is not last:
                self._add(slot)
            self._tools[index] = slot
        return slot

    def _end_call(self, change: changes.CallEnded) -> None:
        if (output := change.output) is not None:
            self._files += [FileSlot(f"f{change.seq}-{number}", file) for number, file in enumerate(output.files)]
            if not output.ok and output.not_executed is None and change.index is not None:
                self._tool_slot(change.index).problems[change.index] = output.output.rstrip().rpartition("\n")[2]
        elif (index := change.index) is not None:
            slot, name = self._tool_slot(index), change.tool_name
            begun = slot.tools.get(index, events.ToolSoFar(name, index, change.attempt))
            ended = {"tool_name": name, "ok": change.ok, "duration": change.duration_s or 0.0}
            slot.tools[index] = msgspec.structs.replace(begun, **ended)
            self._show_files()

    def _notice(self, notice: changes.UserNotice | changes.ToolRunsLong) -> None:
        if isinstance(notice, changes.UserNotice) and "run_id" in notice.extra:
            slot, index = self._tool_slot(notice.extra["index"]), notice.extra["index"]
            slot.tools[index] = with_step(slot.tools[index], notice.text)
        elif isinstance(notice, changes.ToolRunsLong):
            if not self._told_of_long_tool:
                self._told_of_long_tool = True
                self._note(f"h{notice.seq}", self._presenter.long_tool(notice.tool_name))
        else:
            kind = "" if notice.kind == FILE_LEFT_OUT else notice.kind  # each names another file
            text = self._presenter.notice(notice.kind, notice.text, notice.extra)
            self._note(f"n{notice.seq}", text, kind=kind)

    def _show_files(self) -> None:
        """Files are recorded right before the end of their tool: they stand below its line."""
        for slot in self._files:
            self._add(slot)
        self._files = []

    def _ask(self, asked: events.ApprovalAsked) -> None:
        new = ApprovalSlot(f"a{asked.approval_id}", events.ApprovalSoFar(asked))
        self._add(self._approvals.setdefault(asked.approval_id, new))

    def _answer(self, answer: events.ApprovalAnswered) -> None:
        if slot := self._approvals.get(answer.approval_id):
            slot.approval = events.ApprovalSoFar(slot.approval.asked, answer.decision, answer.by, answer.reason)
            if not self._edits:
                self._note(f"d{answer.approval_id}", self._presenter.outcome(slot.approval), purpose="approval")

    def _close_questions(self, failure: events.RunFailure | None) -> None:
        """A run that is stopped leaves its question open in the log. In the chat it has an end: no button that does
        nothing, and a word on what became of the command."""
        ended_by = WRITTEN_OVER if failure is not None and failure.code == NEWER_MESSAGE else RUN_OVER
        for approval_id, slot in self._approvals.items():
            if slot.approval.decision is None:
                self._answer(events.ApprovalAnswered(approval_id, "deny", ended_by))

    def _note(self, key: str, text: str | None, *, kind: str = "", purpose: Purpose = "notice") -> None:
        """A notice replaces one of the same kind directly before it, where messages can be edited."""
        if not text:
            return
        last = self.slots[-1] if self.slots else None
        if kind and self._edits and isinstance(last, NoteSlot) and last.kind == kind:
            last.text = _sendable(text)
        else:
            self._add(NoteSlot(key, _sendable(text), kind, purpose))

    def _add(self, slot: Slot) -> None:
        if self.slots and isinstance(last := self.slots[-1], ToolSlot):
            last.followed = True
        self.slots.append(slot)

    def _withdraw(self, attempt: int) -> None:
        for slot in self.slots:
            match slot:
                case TextSlot():
                    slot.withdraw(attempt)
                case ToolSlot(tools=tools):
                    slot.tools = {
                        index: tool for index, tool in tools.items() if tool.attempt != attempt or tool.ok is not None
                    }
                case _:
                    pass

    def _finish(self, finished: events.RunFinished) -> None:
        """The last bubble shows the run's output, which may differ from the streamed text, and whether it was cut."""
        self._show_files()
        self._close_questions(finished.error)
        if self._questions_only:
            self.finished = finished
            return
        if finished.output:
            bubble = self._bubble()
            bubble.replace(self._presenter.answer(finished))
            if finished.status == "stopped":
                bubble.purpose = "stopped"
        elif self.answer is not None:
            self.answer.replace("")
        self.finished = finished
        for slot in self.slots:
            match slot:
                case TextSlot():
                    slot.growing = False
                case ToolSlot():
                    slot.followed = True
                    for index, tool in slot.tools.items():
                        if tool.ok is None:  # it was running when its run ended
                            slot.tools[index] = msgspec.structs.replace(tool, ok=False)
                case _:
                    pass
        after_tools = bool(self.slots) and isinstance(self.slots[-1], ToolSlot)
        ending = self._presenter.ending(finished, shown=bool(finished.output.strip()), after_tools=after_tools)
        self._note(ENDING, ending, purpose="failure")

    def _restore(self, state: events.Snapshot) -> None:
        """For a compacted log: texts and tools are known, their order among each other is not."""
        for number, message in enumerate(message for message in state.messages if not message.commentary):
            slot = TextSlot(f"t{number}")
            slot.replace(message.text)
            slot.growing = not message.stopped
            slot.deltas = len(message.text)
            self.answer = None if message.stopped and not message.final else slot
            self._texts = number + 1
            self._add(slot)
        for tool in state.tools:
            self._tools[tool.index] = tools = ToolSlot(f"x{tool.index}")
            tools.tools[tool.index] = tool
        for approval in state.approvals:
            question = ApprovalSlot(f"a{approval.asked.approval_id}", approval)
            self._approvals[approval.asked.approval_id] = question
            self._add(question)


def _sendable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
