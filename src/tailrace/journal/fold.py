"""The state of a run, folded from its entries.

Pure: owns what each event means for the state, and nothing about where entries come from. Live runs, replays,
snapshots and the check at sealing all go through `Fold.apply`; it takes one entry at a time and each costs the
same, however long the log has become.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal, assert_never, get_args

import msgspec

from tailrace import events
from tailrace.events import AnyEvent, Entry
from tailrace.events.attempt_text import AttemptText
from tailrace.events.steers import Steers
from tailrace.messages import SpentTokens, Usage

_SHOWN_ONLY = (
    *get_args(events.StreamEvent),
    *(events.ReasoningChunk, events.ToolArgumentsChunk, events.ProviderEvents, events.LlmDelta, events.Snapshot),
)
SEQUENCE = "sequence"  # the kind of run whose output is its steps' outputs
DELIVERY = "delivery"  # the kind of the runs that say what became of an answer in a chat
_SHOWN_STEPS = 20  # the latest
_CANONICAL = msgspec.json.Encoder(order="deterministic")
_NO_TEXT = events.TextSoFar()
_NO_USAGE = Usage()
_NO_STEP = events.StepSoFar("")


def is_fact(event: AnyEvent) -> bool:
    """Whether compaction keeps the event: what is only shown survives in the snapshot alone."""
    return not isinstance(event, _SHOWN_ONLY)


def with_step(call: events.ToolSoFar, step: str) -> events.ToolSoFar:
    """The call, which is a run of its own, after a call of that run."""
    return msgspec.structs.replace(call, steps=(*call.steps, step)[-_SHOWN_STEPS:])


def is_progress(event: AnyEvent) -> bool:
    """Whether the event says that work was completed and will not be done again. A run whose owner died after such an
    event is not the run that kills its owners. What merely began, and what failed at once, is no progress."""
    if isinstance(event, events.ToolOutputRecorded):
        return event.ok
    if isinstance(event, events.Delivered):
        return event.state == "confirmed"
    return isinstance(event, events.StepFinished)


class _Text(AttemptText):
    """A message, a thought or the text of a step's model, so far."""

    __slots__ = ("commentary", "final", "stopped")

    def __init__(self, state: events.TextSoFar = _NO_TEXT) -> None:
        if state is _NO_TEXT:  # every run begins with two of them
            self._runs = []
        else:
            super().__init__(state.text, state.pieces)
        self.stopped, self.final, self.commentary = state.stopped, state.final, state.commentary

    def so_far(self) -> events.TextSoFar:
        return events.TextSoFar(self.text, self.lengths(), self.stopped, self.final, self.commentary)


class _Step:
    """What is known of one step of a sequence."""

    __slots__ = ("error", "finished_seq", "number", "output", "state", "text")

    def __init__(self, state: events.StepSoFar = _NO_STEP) -> None:
        self.state, self.number, self.output, self.error = state.state, state.number, state.output, state.error
        self.text = _Text(state.text)
        self.finished_seq = 0  # the entry that holds `output`; 0 where that is not known

    def so_far(self, block_id: str) -> events.StepSoFar:
        return events.StepSoFar(block_id, self.state, self.number, self.text.so_far(), self.output, self.error)


def outputs_text(outputs: Mapping[str, Any]) -> str:
    """A sequence's output: its steps' outputs by block id, as JSON with sorted keys."""
    return _CANONICAL.encode(outputs).decode()


class Fold:
    """All that the entries so far say about a run."""

    def __init__(self) -> None:
        self.seq = 0
        self.attempt = 1
        self.status: events.RunStatus | Literal["running"] = "running"
        self._started: events.RunStarted | None = None
        self._open = _Text()  # the message that grows; listed among the messages once it has text
        self._messages: list[_Text] = []
        self._reasoning = _Text()
        self._tools: dict[int, events.ToolSoFar] = {}
        self._calls: dict[int, events.CallSoFar] = {}  # that the model is writing, without their arguments
        self._arguments: dict[int, list[str]] = {}
        self._approvals: dict[str, events.ApprovalSoFar] = {}
        self._usage = _NO_USAGE
        self._spent: dict[tuple[str, str], Usage] = {}  # by provider and model, in the order of their first use
        self._error: events.RunFailure | None = None
        self._steps: defaultdict[str, _Step] = defaultdict(_Step)  # by block id, in the order of their first entry
        self._state: events.InstanceState | None = None
        self.steers = Steers()

    @property
    def output(self) -> str:
        """The text of the last message: everything shown since the last tool boundary. Of a sequence: `outputs_text`
        of the steps that have finished."""
        if self._started is not None and self._started.kind == SEQUENCE:
            return outputs_text({key: step.output for key, step in self._steps.items() if step.state == "finished"})
        return self._open.text

    @property
    def output_seqs(self) -> list[int] | None:
        """The entries that a sequence's output is made of; None where it is not made of known entries."""
        if self._started is None or self._started.kind != SEQUENCE:
            return None
        seqs = [step.finished_seq for step in self._steps.values() if step.state == "finished"]
        return seqs if all(seqs) else None

    def snapshot(self) -> events.Snapshot:
        return events.Snapshot(
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
            tuple(
                msgspec.structs.replace(call, arguments="".join(self._arguments[index]))
                for index, call in self._calls.items()
            ),
            self.spent,
            self.steers.all,
        )

    @property
    def spent(self) -> tuple[SpentTokens, ...]:
        """The usage by model."""
        return tuple([SpentTokens(*who, usage) for who, usage in self._spent.items()])

    def entry(self) -> Entry:
        """The snapshot at its seq: it stands for every entry up to here."""
        return Entry(self.seq, self.snapshot(), self.attempt)

    def apply(self, entry: Entry) -> None:  # noqa: C901, PLR0912, PLR0915 - one case per event
        event, attempt = entry.event, entry.attempt
        self.seq, self.attempt = entry.seq, attempt
        if event.__class__ is events.MessageChunk:  # nearly every entry: 0.3 µs in place of 0.5
            self._message().add(event.text, attempt)
            return
        match event:
            # What every model call has comes first: a case that does not match costs more than such an event does.
            case events.RunStarted():
                self._started = event
            case events.AttemptStarted() | events.MessageRecorded():
                if self._calls:
                    self._forget_calls()
            case events.UsageRecorded():
                self._spend(event)
            case events.MessageStop():
                self._stop(event)
            case events.MessageChunk(text=text):
                self._message().add(text, attempt)
            case events.ReasoningChunk(text=text):
                self._reasoning.add(text, attempt)
            case events.Commentary(text=text):
                pieces = ((attempt, len(text)),)
                self._messages.append(_Text(events.TextSoFar(text, pieces, stopped=True, commentary=True)))
            case events.ToolArgumentsChunk(tool_name=name, index=index, text=text):
                self._calls.setdefault(index, events.CallSoFar(name, index, attempt))
                self._arguments.setdefault(index, []).append(text)
            case events.ToolCallChunk(tool_name=name, preview=preview, args=args, index=index):
                if (known := self._tools.get(index)) is None or known.ok is not None:
                    self._tools[index] = events.ToolSoFar(name, index, attempt, preview, args)
                    self._place_approvals(name, index)
                elif known.run_id and preview and preview != known.preview:
                    self._tools[index] = with_step(known, preview)
            case events.SubRunStarted(run_id=run_id, index=index):
                if known := self._tools.get(index):
                    self._tools[index] = msgspec.structs.replace(known, run_id=run_id)
            case events.ToolCallFinished(tool_name=name, duration=duration, ok=ok, index=index):
                begun = self._tools.get(index, events.ToolSoFar(name, index, attempt))
                self._tools[index] = msgspec.structs.replace(begun, tool_name=name, ok=ok, duration=duration)
            case events.AttemptDiscarded(block_id=block_id):
                if block_id:
                    self._steps[block_id].text.withdraw(attempt)
                else:
                    self._withdraw(attempt)
            case events.LlmDelta(block_id=block_id, delta=delta):
                self._steps[block_id].text.add(delta, attempt)
            case events.StepStarted(block_id=block_id, number=number):
                step = self._steps[block_id]
                step.state, step.number = "running", number
            case events.StepFailed(block_id=block_id, error=error, retry_at=retry_at):
                step = self._steps[block_id]
                step.state, step.error = "running" if retry_at is not None else "failed", error
            case events.StepFinished(block_id=block_id, output=output):
                step = self._steps[block_id]
                step.state, step.output, step.error, step.finished_seq = "finished", output, None, self.seq
            case events.StepCancelled(block_id=block_id):
                self._steps[block_id].state = "cancelled"
            case events.StateChanged(state=state):
                self._state = state
            case events.ApprovalAsked(approval_id=approval_id):
                self._approvals[approval_id] = events.ApprovalSoFar(event)
            case events.ApprovalAnswered(approval_id=approval_id, decision=decision, by=by, reason=reason):
                if approval := self._approvals.get(approval_id):
                    answered = msgspec.structs.replace(approval, decision=decision, by=by, reason=reason)
                    self._approvals[approval_id] = answered
            case events.SteerAccepted() | events.SteerCommitted() | events.SteerReturned():
                self.steers.apply(event, len(self._messages))
            case events.RunFinished(status=status, error=error):
                self.status, self._error = status, error
                self._forget_calls()
            case events.Snapshot():
                self._restore(event)
            case events.ToolOutputRecorded() | events.HistoryCompressed():
                pass  # for the history, not shown
            case events.ProviderEvents() | events.ProviderAnswer():
                pass  # for clients of the provider's dialect; the chunks beside them say the same
            case events.RunForked():
                pass  # the copied entries before it are like the run's own
            case events.AnswerKept() | events.SignalReceived() | events.Delivered():
                pass  # for the history and the delivery ledger, not shown
            case events.LongToolHint() | events.GatewayNotice():
                pass  # shown live, never kept
            case _:
                assert_never(event)

    def _place_approvals(self, tool_name: str, index: int) -> None:
        """The call begins: what was answered about a call of its tool and has none yet was asked about this one."""
        for approval_id, approval in self._approvals.items():
            if approval.index is None and approval.decision is not None and approval.asked.tool_name == tool_name:
                self._approvals[approval_id] = msgspec.structs.replace(approval, index=index)

    def _message(self) -> _Text:
        if not self._open:
            self._messages.append(self._open)
        return self._open

    def _spend(self, recorded: events.UsageRecorded) -> None:
        usage, who = recorded.usage, (recorded.provider, recorded.model)
        self._usage = usage if self._usage is _NO_USAGE else self._usage + usage
        self._spent[who] = self._spent[who] + usage if who in self._spent else usage

    def _stop(self, stop: events.MessageStop) -> None:
        if self._open:
            self._open.stopped, self._open.final = True, stop.final
        if not stop.final:
            self._open = _Text()

    def _forget_calls(self) -> None:
        """They are whole, or broke off."""
        if self._calls:
            self._calls, self._arguments = {}, {}

    def _withdraw(self, attempt: int) -> None:
        """Removes what the attempt showed. A tool that has finished stays: what it did is not undone."""
        self._forget_calls()
        for text in (*self._messages, self._reasoning):
            text.withdraw(attempt)
        self._messages = [text for text in self._messages if text]
        if not self._open:
            self._open = _Text()
        self._tools = {
            index: tool for index, tool in self._tools.items() if tool.attempt != attempt or tool.ok is not None
        }

    def _restore(self, state: events.Snapshot) -> None:
        self.status, self._started = state.status, state.started
        self._messages = [_Text(text) for text in state.messages]
        growing = [text for text in self._messages if text.final or not text.stopped]
        self._open = growing[-1] if growing else _Text()
        self._reasoning = _Text(state.reasoning)
        self._tools = {tool.index: tool for tool in state.tools}
        self._calls = {call.index: call for call in state.calls}
        self._arguments = {call.index: [call.arguments] for call in state.calls}
        self._approvals = {approval.asked.approval_id: approval for approval in state.approvals}
        self._usage, self._error = state.usage, state.error
        self._spent = {(each.provider, each.model): each.usage for each in state.spent}
        self._steps = defaultdict(_Step, {known.block_id: _Step(known) for known in state.steps})
        self._state = state.state
        self.steers = Steers(state.steers)


def fold(entries: Iterable[Entry]) -> Fold:
    state = Fold()
    for entry in entries:
        state.apply(entry)
    return state
