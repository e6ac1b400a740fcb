"""The one reader of a run's log for every surface that shows it: entries in, changes out.

No I/O. The live stream and a late reader go through the same `apply`, and any cut of the log into batches gives the
same changes. Owns when a thought ends, which call an entry means, and what a discarded attempt takes with it. Knows no
surface: what a change looks like is each surface's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, assert_never

from tailrace import events
from tailrace.events import CallSoFar, Entry
from tailrace.events.attempt_text import AttemptText
from tailrace.events.steers import Steers
from tailrace.messages import Message, Reasoning, ToolCall
from tailrace.runs.view import changes
from tailrace.runs.view.changes import Change, ThoughtGrew, WrittenCall

# Events whose change depends on no event before them.
_Standalone: TypeAlias = (
    events.GatewayNotice
    | events.LongToolHint
    | events.RunStarted
    | events.RunForked
    | events.HistoryCompressed
    | events.AnswerKept
    | events.UsageRecorded
    | events.ProviderEvents
    | events.ProviderAnswer
    | events.StateChanged
    | events.StepStarted
    | events.StepFailed
    | events.StepFinished
    | events.StepCancelled
    | events.SignalReceived
    | events.Delivered
)


class WrittenCalls:
    """Those of the newest attempt, in order: their indices follow upon each other."""

    def __init__(self, calls: Sequence[CallSoFar] = ()) -> None:
        self._calls = [WrittenCall(call.index, call.tool_name, [call.arguments]) for call in calls] if calls else []

    @property
    def calls(self) -> tuple[WrittenCall, ...]:
        return tuple(self._calls)

    def add(self, tool_name: str, index: int, text: str, *, recorded: int) -> bool | None:
        """Whether this piece begins a call; None where the log does not have the calls before it. `recorded`: how many
        calls of the run are whole."""
        place = index - (self._calls[0].index if self._calls else recorded)
        if not 0 <= place <= len(self._calls):
            return None
        begins = place == len(self._calls)
        if begins:
            self._calls.append(WrittenCall(index, tool_name, []))
        self._calls[place].pieces.append(text)
        return begins

    def became(self, calls: Sequence[ToolCall]) -> bool:
        """Whether these are the calls that were written, as far as they had come."""
        if not self._calls:
            return True
        return len(self._calls) <= len(calls) and all(
            written.tool_name == call.name and call.arguments.startswith(written.text)
            for written, call in zip(self._calls, calls, strict=False)
        )

    def take_all(self) -> tuple[WrittenCall, ...]:
        """Removes them: they are whole, or broke off."""
        if not self._calls:
            return ()
        calls, self._calls = tuple(self._calls), []
        return calls


class RunView:
    """One run, read from its first entry or from a snapshot."""

    def __init__(self) -> None:
        self.questions: dict[str, events.ApprovalAsked] = {}  # without an answer, by approval id
        self.steers = Steers()
        self.written = WrittenCalls()
        self.finished: events.RunFinished | None = None
        self._text = AttemptText()  # of the message under way, until it is recorded
        self._has_text = False  # the answer under way has shown a text that has ended
        self._has_thought = False  # so for a thought
        self._is_thinking = False
        self._calls: dict[str, int] = {}  # index by the provider's id; the newest call of an id counts
        self._recorded = 0  # calls of the messages so far
        self._running: dict[int, str | None] = {}  # the calls that run, with their first preview, by index
        self._sub_runs: dict[int, str] = {}  # ids of the runs that are calls of this one, by index

    def apply(self, entry: Entry) -> list[Change]:  # noqa: C901, PLR0912 - one case per event
        event, seq, attempt = entry.event, entry.seq, entry.attempt
        if event.__class__ is events.MessageChunk:  # nearly every entry: ahead of the match for speed alone
            grown = changes.TextGrew(seq, attempt, event.text)
            self._text.add(event.text, attempt)
            return [grown] if not self._is_thinking else [*self._end_thought(seq, attempt), grown]
        match event:
            case events.MessageChunk(text):
                self._text.add(text, attempt)
                return [*self._end_thought(seq, attempt), changes.TextGrew(seq, attempt, text)]
            case events.Commentary(text):
                return [*self._end_thought(seq, attempt), self._whole_text(seq, attempt, text, commentary=True)]
            case events.MessageStop(final):
                return self._end_texts(seq, attempt, final=final)
            case events.ReasoningChunk(text):
                self._has_thought = self._is_thinking = True
                return [ThoughtGrew(seq, attempt, text)]
            case events.ToolArgumentsChunk(name, index, text):
                return self._write(seq, attempt, name, index, text)
            case events.ToolCallChunk(name, preview, args, index):
                if index in self._running:
                    return self._progress(seq, attempt, name, preview, index)
                self._running[index] = preview
                return [changes.CallRuns(seq, attempt, index, name, preview, args)]
            case events.ToolOutputRecorded(call_id, name, ok=ok):
                return [changes.CallEnded(seq, attempt, self._calls.get(call_id), name, ok, event)]
            case events.ToolCallFinished(name, duration, ok, index):
                self._running.pop(index, None)
                return [changes.CallEnded(seq, attempt, index, name, ok, duration_s=duration)]
            case events.SubRunStarted(run_id, name, index):
                self._sub_runs[index] = run_id
                return [changes.SubRunBegan(seq, attempt, run_id, name, index)]
            case events.ApprovalAsked(approval_id=approval_id, call_id=call_id):
                self.questions[approval_id] = event
                return [changes.Asked(seq, attempt, event, self._calls.get(call_id))]
            case events.ApprovalAnswered(approval_id=approval_id):
                return [changes.Answered(seq, attempt, event, self.questions.pop(approval_id, None))]
            case events.AttemptStarted():
                return [*self._break_off(seq, attempt), changes.AttemptBegan(seq, attempt, event)]
            case events.AttemptDiscarded():
                return self._discard(seq, attempt, event)
            case events.MessageRecorded(message, stop, stop_sequence):
                is_answer = message.role == "assistant" and stop != events.REJECTED
                made = self._record(seq, attempt, message) if is_answer else []
                return [*made, changes.MessageJoined(seq, attempt, message, stop, stop_sequence)]
            case events.SteerAccepted() | events.SteerCommitted() | events.SteerReturned():
                self.steers.apply(event)
                steer = self.steers.get(event.steer_id)
                return [changes.Steered(seq, attempt, steer)] if steer is not None else []
            case events.RunFinished():
                return self._finish(seq, attempt, event)
            case events.Snapshot():
                self._restore(event)
                return [changes.Restored(seq, attempt, event)]
            case events.LlmDelta(block_id, delta):
                return [changes.TextGrew(seq, attempt, delta, block_id=block_id)]
            case _ if isinstance(event, _Standalone):
                return _notices(event, seq, attempt)
            case _:
                assert_never(event)

    def text_of_chunk(self, batch: Sequence[Entry]) -> str:
        """As `apply`, for a batch that is one more chunk of the message under way: its text. Empty, with nothing
        applied, for any other batch."""
        if len(batch) != 1 or (event := batch[0].event).__class__ is not events.MessageChunk or self._is_thinking:
            return ""
        self._text.add(event.text, batch[0].attempt)
        return event.text

    # ── texts ────────────────────────────────────────────────────────────────────────────────────────────────

    def _end_thought(self, seq: int, attempt: int) -> list[Change]:
        if not self._is_thinking:
            return []
        self._is_thinking = False
        return [ThoughtGrew(seq, attempt, "", ends=True)]

    def _end_texts(self, seq: int, attempt: int, *, final: bool) -> list[Change]:
        ended = self._end_thought(seq, attempt) if self._is_thinking else ()
        self._close_text()
        return [*ended, changes.TextGrew(seq, attempt, "", ends=True, final=final)]

    def _close_text(self) -> None:
        if self._text:
            self._text, self._has_text = AttemptText(), True

    def _whole_text(self, seq: int, attempt: int, text: str, *, commentary: bool = False) -> Change:
        self._close_text()
        self._has_text = True
        return changes.TextGrew(seq, attempt, text, ends=True, commentary=commentary)

    def _discard(self, seq: int, attempt: int, discarded: events.AttemptDiscarded) -> list[Change]:
        reason = discarded.reason
        if discarded.block_id:
            return [changes.TextWithdrawn(seq, attempt, reason=reason, block_id=discarded.block_id)]
        ended = self._end_thought(seq, attempt)
        shown = self._text.withdraw(attempt)
        kept = tuple(self._text.pieces()) if shown else ()
        calls = self.written.take_all()
        return [*ended, changes.TextWithdrawn(seq, attempt, True, reason, "", shown, kept, discarded.retry_at, calls)]

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, seq: int, attempt: int, name: str, index: int, text: str) -> list[Change]:
        begins = self.written.add(name, index, text, recorded=self._recorded)
        if begins is None:
            return []
        ended = self._end_thought(seq, attempt)
        return [*ended, changes.CallWritten(seq, attempt, index, name, text, begins)]

    def _progress(self, seq: int, attempt: int, name: str, preview: str | None, index: int) -> list[Change]:
        """What a running call reports. One that is made anew after a crash is announced again: nothing changed."""
        if not preview or preview == self._running[index]:
            return []
        about = {"tool_name": name, "index": index}
        if index in self._sub_runs:
            about["run_id"] = self._sub_runs[index]
        return [changes.UserNotice(seq, attempt, "tool_progress", preview, about)]

    def _break_off(self, seq: int, attempt: int) -> list[Change]:
        """The calls that the model was writing will never be whole."""
        calls = self.written.take_all()
        return [changes.TextWithdrawn(seq, attempt, discarded=False, calls=calls)] if calls else []

    def _record(self, seq: int, attempt: int, message: Message) -> list[Change]:
        """The answer is whole. Its texts came in chunks, unless the log no longer has those."""
        made: list[Change] = []
        if not (has_text := self._has_text or bool(self._text)) and not self._has_thought:
            thoughts = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
            made += [ThoughtGrew(seq, attempt, thoughts), ThoughtGrew(seq, attempt, "", ends=True)] if thoughts else []
        made += self._end_thought(seq, attempt) if self._is_thinking else ()
        if not has_text and message.text:
            made.append(self._whole_text(seq, attempt, message.text))
        self._text, self._has_text, self._has_thought = AttemptText(), False, False
        if not self.written.became(calls := message.tool_calls):
            made += self._break_off(seq, attempt)
        lengths = {call.index: len(call.text) for call in self.written.take_all()}
        for call in calls:
            index, self._recorded = self._recorded, self._recorded + 1
            self._calls[call.id] = index
            rest, begins = call.arguments[lengths.get(index, 0) :], index not in lengths
            made.append(changes.CallWritten(seq, attempt, index, call.name, rest, begins, call))
        return made

    # ── the run ──────────────────────────────────────────────────────────────────────────────────────────────

    def _finish(self, seq: int, attempt: int, finished: events.RunFinished) -> list[Change]:
        self.finished = finished
        self.questions.clear()
        made = self._end_texts(seq, attempt, final=True) if self._text else self._end_thought(seq, attempt)
        return [*made, *self._break_off(seq, attempt), changes.Ended(seq, attempt, finished)]

    def _restore(self, state: events.Snapshot) -> None:
        growing = [text for text in state.messages if not text.stopped]
        self._text = AttemptText(growing[-1].text, growing[-1].pieces or None) if growing else AttemptText()
        self._has_text, self._has_thought = False, bool(state.reasoning.text)
        self._is_thinking = False
        is_open = state.status == "running"
        waiting = [each.asked for each in state.approvals if is_open and each.decision is None]
        self.questions = {asked.approval_id: asked for asked in waiting}
        self._recorded = max((tool.index + 1 for tool in state.tools), default=0)
        self._running = {tool.index: tool.preview for tool in state.tools if tool.ok is None}
        self._sub_runs = {tool.index: tool.run_id for tool in state.tools if tool.run_id}
        self.written = WrittenCalls(state.calls)
        self.steers = Steers(state.steers)


def _notices(event: _Standalone, seq: int, attempt: int) -> list[Change]:  # noqa: C901, PLR0912 - one case per event
    match event:
        case events.GatewayNotice(kind, text, extra):
            return [changes.UserNotice(seq, attempt, kind, text, extra)]
        case events.LongToolHint(name, duration):
            return [changes.ToolRunsLong(seq, attempt, name, duration)]
        case events.RunStarted():
            return [changes.RunBegan(seq, attempt, event)]
        case events.RunForked(run_id, after):
            return [changes.ForkBegan(seq, attempt, run_id, after)]
        case events.HistoryCompressed(messages):
            return [changes.HistoryReplaced(seq, attempt, messages)]
        case events.UsageRecorded(usage, provider, model):
            return [changes.Spent(seq, attempt, usage, provider, model)]
        case events.ProviderEvents(dialect, relayed):
            return [changes.Relayed(seq, attempt, dialect, relayed)]
        case events.ProviderAnswer(dialect, body):
            return [changes.Relayed(seq, attempt, dialect, body=body)]
        case events.StateChanged(state):
            return [changes.InstanceMoved(seq, attempt, state)]
        case events.StepStarted(block_id, number, at):
            return [changes.StepMoved(seq, attempt, block_id, "started", number, at)]
        case events.StepFailed(block_id, error, number, retry_at):
            how: Literal["failed", "retrying"] = "failed" if retry_at is None else "retrying"
            return [changes.StepMoved(seq, attempt, block_id, how, number, error=error, retry_at=retry_at)]
        case events.StepFinished(block_id, output):
            return [changes.StepMoved(seq, attempt, block_id, "finished", output=output)]
        case events.StepCancelled(block_id):
            return [changes.StepMoved(seq, attempt, block_id, "cancelled")]
        case events.SignalReceived(_, name, payload, by):
            return [changes.SignalTaken(seq, attempt, name, payload, by)]
        case events.Delivered(key, delivered, message_id):
            return [changes.Delivery(seq, attempt, key, delivered, message_id)]
        case events.AnswerKept():
            return []  # for the process that goes on with the run
        case _:
            assert_never(event)
