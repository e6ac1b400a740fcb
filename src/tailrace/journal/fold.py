"""The state of a run, folded from its entries.

Pure: owns what each event means for the state, and nothing about where entries come from. Live runs, replays,
snapshots and the check at sealing all go through `Fold.apply`; it takes one entry at a time and each costs the
same, however long the log has become.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, assert_never, get_args

import msgspec

from tailrace.attempt_text import AttemptText
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalSoFar,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Delivered,
    Entry,
    GatewayNotice,
    HistoryCompressed,
    InstanceState,
    LlmDelta,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStarted,
    RunStatus,
    SignalReceived,
    Snapshot,
    StateChanged,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepSoFar,
    StepStarted,
    StepState,
    StreamEvent,
    TextSoFar,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    ToolSoFar,
    UsageRecorded,
)
from tailrace.messages import Usage

_SHOWN_ONLY = (*get_args(StreamEvent), ReasoningChunk, LlmDelta, Snapshot)
SEQUENCE = "sequence"  # the kind of run whose output is its steps' outputs
_CANONICAL = msgspec.json.Encoder(order="deterministic")
_NO_TEXT = TextSoFar()


def is_fact(event: AnyEvent) -> bool:
    """Whether compaction keeps it. Events that are only shown live on in the snapshot."""
    return not isinstance(event, _SHOWN_ONLY)


class _Text(AttemptText):
    """A message, a thought or what a step's model said, as far as it has come."""

    __slots__ = ("commentary", "final", "stopped")

    def __init__(self, state: TextSoFar = _NO_TEXT) -> None:
        super().__init__(state.text, state.pieces)
        self.stopped, self.final, self.commentary = state.stopped, state.final, state.commentary

    def so_far(self) -> TextSoFar:
        return TextSoFar(self.text, self.lengths(), self.stopped, self.final, self.commentary)


class _Step:
    """What is known of one step of a sequence."""

    __slots__ = ("error", "number", "output", "state", "text")

    def __init__(self) -> None:
        self.state: StepState = "running"
        self.number = 1
        self.text = _Text()
        self.output: Any = None
        self.error: RunFailure | None = None

    def so_far(self, block_id: str) -> StepSoFar:
        return StepSoFar(block_id, self.state, self.number, self.text.so_far(), self.output, self.error)

    @classmethod
    def from_so_far(cls, known: StepSoFar) -> _Step:
        step = cls()
        step.state, step.number, step.output, step.error = known.state, known.number, known.output, known.error
        step.text = _Text(known.text)
        return step


_StepEvent: TypeAlias = StepStarted | StepFailed | StepFinished | StepCancelled | LlmDelta


class _Steps(dict[str, _Step]):
    """The steps of a sequence by block id, in the order in which they were first heard of."""

    def __missing__(self, block_id: str) -> _Step:
        step = self[block_id] = _Step()
        return step

    def apply(self, event: _StepEvent, attempt: int) -> None:
        step = self[event.block_id]
        match event:
            case LlmDelta(delta=delta):
                step.text.add(delta, attempt)
            case StepStarted(number=number):
                step.state, step.number = "running", number
            case StepFailed(error=error, retry_at=retry_at):
                step.state, step.error = "running" if retry_at is not None else "failed", error
            case StepFinished(output=output):
                step.state, step.output, step.error = "finished", output, None
            case StepCancelled():
                step.state = "cancelled"
            case _:
                assert_never(event)

    def outputs(self) -> dict[str, Any]:
        return {block_id: step.output for block_id, step in self.items() if step.state == "finished"}


def outputs_text(outputs: Mapping[str, Any]) -> str:
    """A sequence's output: its steps' outputs by block id, as JSON with sorted keys."""
    return _CANONICAL.encode(outputs).decode()


class Fold:
    """All that the entries so far say about a run."""

    def __init__(self) -> None:
        self.seq = 0
        self.attempt = 1
        self.status: RunStatus | Literal["running"] = "running"
        self._started: RunStarted | None = None
        self._open = _Text()  # the message that grows; listed among the messages once it has text
        self._messages: list[_Text] = []
        self._reasoning = _Text()
        self._tools: dict[int, ToolSoFar] = {}
        self._approvals: dict[str, ApprovalSoFar] = {}
        self._usage = Usage()
        self._error: RunFailure | None = None
        self._steps = _Steps()
        self._state: InstanceState | None = None

    @property
    def output(self) -> str:
        """The text of the last message: everything shown since the last tool boundary. Of a sequence: `outputs_text`
        of the steps that have finished."""
        if self._started is not None and self._started.kind == SEQUENCE:
            return outputs_text(self._steps.outputs())
        return self._open.text

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.status,
            self._started,
            tuple(text.so_far() for text in self._messages),
            self._reasoning.so_far(),
            tuple(self._tools.values()),
            tuple(self._approvals.values()),
            self._usage,
            self.output,
            self._error,
            tuple(step.so_far(block_id) for block_id, step in self._steps.items()),
            self._state,
        )

    def entry(self) -> Entry:
        """The snapshot in its place: what a viewer may be given instead of every entry up to here."""
        return Entry(self.seq, self.snapshot(), self.attempt)

    def apply(self, entry: Entry) -> None:
        event = entry.event
        self.seq, self.attempt = entry.seq, entry.attempt
        if type(event) is MessageChunk:  # nearly every entry: ahead of the match for speed alone
            self._message().add(event.text, entry.attempt)
        else:
            self._apply(event, entry.attempt)

    def _apply(self, event: AnyEvent, attempt: int) -> None:  # noqa: C901, PLR0912 - one case per event
        match event:
            case MessageChunk(text=text):
                self._message().add(text, attempt)
            case ReasoningChunk(text=text):
                self._reasoning.add(text, attempt)
            case MessageStop(final=final):
                self._stop(final=final)
            case Commentary(text=text):
                pieces = ((attempt, len(text)),)
                self._messages.append(_Text(TextSoFar(text, pieces, stopped=True, commentary=True)))
            case ToolCallChunk(tool_name=name, preview=preview, args=args, index=index):
                self._tools[index] = ToolSoFar(name, index, attempt, preview, args)
            case ToolCallFinished(tool_name=name, duration=duration, ok=ok, index=index):
                begun = self._tools.get(index, ToolSoFar(name, index, attempt))
                self._tools[index] = ToolSoFar(name, index, begun.attempt, begun.preview, begun.args, ok, duration)
            case AttemptDiscarded(block_id=block_id):
                if block_id:
                    self._steps[block_id].text.withdraw(attempt)
                else:
                    self._withdraw(attempt)
            case LlmDelta() | StepStarted() | StepFailed() | StepFinished() | StepCancelled():
                self._steps.apply(event, attempt)
            case StateChanged(state=state):
                self._state = state
            case ApprovalAsked(approval_id=approval_id):
                self._approvals[approval_id] = ApprovalSoFar(event)
            case ApprovalAnswered(approval_id=approval_id, decision=decision, by=by):
                if approval := self._approvals.get(approval_id):
                    self._approvals[approval_id] = ApprovalSoFar(approval.asked, decision, by)
            case UsageRecorded(usage=usage):
                self._usage += usage
            case RunStarted():
                self._started = event
            case RunFinished(status=status, error=error):
                self.status, self._error = status, error
            case Snapshot():
                self._restore(event)
            case MessageRecorded() | ToolOutputRecorded() | HistoryCompressed() | AttemptStarted() | SignalReceived():
                pass  # the history's, not the screen's
            case Delivered():
                pass  # the ledger's
            case LongToolHint() | GatewayNotice():
                pass  # of the moment
            case _:
                assert_never(event)

    def _message(self) -> _Text:
        if not self._open:
            self._messages.append(self._open)
        return self._open

    def _stop(self, *, final: bool) -> None:
        if self._open:
            self._open.stopped, self._open.final = True, final
        if not final:
            self._open = _Text()

    def _withdraw(self, attempt: int) -> None:
        """What the attempt showed goes; what it did stays: a tool that has finished has finished."""
        for text in (*self._messages, self._reasoning):
            text.withdraw(attempt)
        self._messages = [text for text in self._messages if text]
        if not self._open:
            self._open = _Text()
        self._tools = {
            index: tool for index, tool in self._tools.items() if tool.attempt != attempt or tool.ok is not None
        }

    def _restore(self, state: Snapshot) -> None:
        self.status, self._started = state.status, state.started
        self._messages = [_Text(text) for text in state.messages]
        growing = [text for text in self._messages if text.final or not text.stopped]
        self._open = growing[-1] if growing else _Text()
        self._reasoning = _Text(state.reasoning)
        self._tools = {tool.index: tool for tool in state.tools}
        self._approvals = {approval.asked.approval_id: approval for approval in state.approvals}
        self._usage, self._error = state.usage, state.error
        self._steps = _Steps({known.block_id: _Step.from_so_far(known) for known in state.steps})
        self._state = state.state


def fold(entries: Iterable[Entry]) -> Fold:
    state = Fold()
    for entry in entries:
        state.apply(entry)
    return state
