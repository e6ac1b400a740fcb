"""A turn of the agent as a pure fold of facts: `apply` what happened, ask what is `due`.

Owns every decision about what comes next. Never awaits, never reads a clock, never knows a provider or a tool. A live
turn, its recovery after a crash and its tests are the same thing: apply the facts, ask what is due.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable
from typing import TypeAlias, assert_never

import msgspec

from tailrace import events
from tailrace.events import AnyEvent, Entry
from tailrace.events.attempt_text import AttemptText
from tailrace.messages import ENDED_BY_PROVIDER, READABLE_IMAGES, Image, Message, Text, ToolCall, ToolResult, Usage

# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model. `shown` is text of this very message that viewers have seen already: go on from it."""

    shown: str = ""


class RunTool(msgspec.Struct, frozen=True):
    """Run this call. `asked` is the question that was put before a crash, if one was, and `answered` its answer."""

    index: int
    call: ToolCall
    asked: events.ApprovalAsked | None = None
    answered: events.ApprovalAnswered | None = None


class SettleTool(msgspec.Struct, frozen=True):
    """This call was running when the process died: repeat it if it is safe to repeat, else say it was interrupted."""

    index: int
    call: ToolCall


class GiveUp(msgspec.Struct, frozen=True):
    """A budget is used up before the model was done: say so in the answer."""

    reason: str


class Finish(msgspec.Struct, frozen=True):
    """Nothing is left to do. `calls` are those of the client's own tools, which the client runs."""

    status: events.RunStatus
    output: str
    reason: str = ""
    calls: tuple[ToolCall, ...] = ()


TurnCommand: TypeAlias = CallModel | RunTool | SettleTool | GiveUp | Finish


INTERRUPTED = "The user interrupted this call; it may or may not have taken effect."
NEVER_RAN = "The user stopped the run before this call was made; it was not executed."
_INCOMPLETE = {
    "cut": "the stream broke off",
    "limit": "a budget of the turn was used up",
    **ENDED_BY_PROVIDER,
}


# Facts and events that decide nothing.
_Undecisive: TypeAlias = (
    events.RunStarted
    | events.AnswerKept
    | events.ShownFact
    | events.Commentary
    | events.LongToolHint
    | events.GatewayNotice
    | events.Snapshot
    | events.SequenceFact
    | events.Delivered
)


class _ToolCallState(msgspec.Struct):
    """How far one tool call has come."""

    index: int
    call: ToolCall
    started: bool = False
    finished: bool = False
    result: ToolResult | None = None
    asked: events.ApprovalAsked | None = None
    answered: events.ApprovalAnswered | None = None


class TurnLimits(msgspec.Struct, frozen=True):
    """Budgets of one turn; None where there is none."""

    max_calls: int = 50
    max_tokens: int | None = None


class Turn:
    """All a turn knows. `history` is what the session said before it."""

    def __init__(
        self, history: Iterable[Message] = (), *, limits: TurnLimits | None = None, foreign: Collection[str] = ()
    ) -> None:
        self._limits = limits or TurnLimits()
        self._foreign = frozenset(foreign)  # names of tools that the client runs
        self._messages = list(history)
        self._calls: list[_ToolCallState] = []  # every call of the turn; its place here is its index
        self._unfinished = 0  # calls before this place have their results in `_messages`
        self._shown = AttemptText()  # of the message not yet recorded, as viewers saw it
        self._said = AttemptText()  # the recorded messages since the last tool boundary
        self._answers = 0
        self._stop = ""  # how the last answer ended
        self._final_stop = False
        self._finished = False
        self.usage = Usage()
        self.attempt = 0  # the newest attempt's number

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history as the next request should carry it, results of finished tools included."""
        return (*self._messages, *self._result_messages())

    @property
    def stopped(self) -> bool:
        """The final `MessageStop` is on record."""
        return self._final_stop

    @property
    def shown(self) -> str:
        """What viewers have seen of the message that is not yet recorded."""
        return self._shown.text

    @property
    def has_shown(self) -> bool:
        """Whether they have seen a chunk of it, be it an empty one."""
        return bool(self._shown)

    @property
    def call_count(self) -> int:
        """How many tool calls the model has made."""
        return len(self._calls)

    @property
    def tokens_left(self) -> int | None:
        """Of the turn's budget; None where there is none."""
        limit = self._limits.max_tokens
        return None if limit is None else max(0, limit - self.usage.input_tokens - self.usage.output_tokens)

    @property
    def output(self) -> str:
        """What a non-streaming call would return if the turn ended now: the text since the last tool boundary."""
        return self._said.text + self._shown.text

    def open_calls(self) -> list[RunTool | SettleTool]:
        """Calls without a result, in order."""
        return [
            SettleTool(c.index, c.call) if c.started else RunTool(c.index, c.call, c.asked, c.answered)
            for c in self._calls[self._unfinished :]
            if c.result is None and c.call.name not in self._foreign
        ]

    def unsettled(self) -> list[events.ToolCallFinished]:
        """Tool lines that viewers still see running although the result is on record."""
        return [
            events.ToolCallFinished(c.call.name, 0.0, c.result.ok, c.index)
            for c in self._calls
            if c.started and not c.finished and c.result is not None
        ]

    def last_words(self) -> list[AnyEvent]:
        """What goes into the log of a turn that is stopped here: each call gets a result that says what did and did not
        happen, and the text so far becomes a message, so that the history is whole."""
        settled: list[AnyEvent] = [*self.unsettled()]
        for command in self.open_calls():
            call, begun = command.call, isinstance(command, SettleTool)
            settled.append(events.ToolOutputRecorded(call.id, call.name, INTERRUPTED if begun else NEVER_RAN, ok=False))
            if begun:
                settled.append(events.ToolCallFinished(call.name, ok=False, index=command.index))
        if self.shown:
            settled.append(events.MessageRecorded(text_message(self.shown), "stopped"))
        return settled

    def due(self) -> list[TurnCommand]:
        """What to do next. Empty when the turn is over; tools of one answer come together."""
        if self._finished:
            return []
        if calls := self.open_calls():
            return [*calls]
        last = self._messages[-1] if self._messages else None
        if last is None or last.role != "assistant":
            return [self._call_or_give_up()]
        if foreign := tuple(c.call for c in self._calls[self._unfinished :] if c.result is None):
            return [Finish("completed", self.output, calls=foreign)]
        if self._result_messages():
            return [self._call_or_give_up()]
        return [self._finish()]

    def _call_or_give_up(self) -> TurnCommand:
        if self._answers >= self._limits.max_calls:
            return GiveUp(f"stopped after {self._answers} model calls (agent.max_turns)")
        if self.tokens_left == 0:
            spent = self.usage.input_tokens + self.usage.output_tokens
            return GiveUp(f"stopped after {spent} tokens (agent.max_tokens)")
        return CallModel(self.shown)

    def _finish(self) -> Finish:
        if self._stop == "stopped":
            return Finish("stopped", self.output, "interrupted")
        if reason := _INCOMPLETE.get(self._stop):
            return Finish("incomplete", self.output, reason)
        if not self.output.strip():
            return Finish("incomplete", self.output, "the model gave no answer")  # C46
        return Finish("completed", self.output)

    # ── the fold ─────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.apply(entry.event, entry.attempt)

    def apply(self, event: AnyEvent, attempt: int = 0) -> None:
        """Takes note of a fact. Facts that decide nothing are accepted and ignored."""
        if event.__class__ is events.MessageChunk:  # nearly every event: ahead of the match for speed alone
            self._shown.add(event.text, attempt)
        else:
            self._apply(event, attempt)

    def _apply(self, event: AnyEvent, attempt: int) -> None:
        match event:
            case events.MessageChunk(text):
                self._shown.add(text, attempt)
            case events.AttemptStarted():
                self.attempt = max(self.attempt, attempt)
            case events.AttemptDiscarded():
                self._shown.withdraw(attempt)
                self._said.withdraw(attempt)
            case events.MessageRecorded(message, stop):
                self._record(message, stop)
            case events.MessageStop(final):
                self._end_message()
                self._final_stop |= final
                if not final:
                    self._said = AttemptText()
            case (
                events.ToolCallChunk()
                | events.ToolCallFinished()
                | events.ToolOutputRecorded()
                | events.ApprovalAsked()
                | events.ApprovalAnswered()
            ):
                self._apply_tool(event)
            case events.HistoryCompressed(messages):
                self._compress(messages)
            case events.UsageRecorded(usage):
                self.usage += usage
            case events.RunForked() | events.RunFinished():
                self._apply_run_fact(event, attempt)
            case _ if isinstance(event, _Undecisive):
                pass
            case _:
                assert_never(event)

    def _record(self, message: Message, stop: str) -> None:
        self._messages += self._result_messages()
        self._unfinished = len(self._calls)
        self._messages.append(message)
        self._end_message()
        if message.role == "assistant":
            self._answers += 1
            self._stop = stop
            for call in message.tool_calls:
                self._calls.append(_ToolCallState(len(self._calls), call))

    def _end_message(self) -> None:
        self._said.extend(self._shown)
        self._shown = AttemptText()

    def _apply_tool(
        self,
        event: events.ToolCallChunk
        | events.ToolCallFinished
        | events.ToolOutputRecorded
        | events.ApprovalAsked
        | events.ApprovalAnswered,
    ) -> None:
        match event:
            case events.ToolCallChunk(index=index):
                if index < len(self._calls):
                    self._calls[index].started = True
            case events.ToolCallFinished(index=index):
                if index < len(self._calls):
                    self._calls[index].finished = True
            case events.ToolOutputRecorded(call_id=call_id):
                self._call_with(call_id).result = _result(event)
            case events.ApprovalAsked(call_id=call_id):
                self._call_with(call_id).asked = event
            case events.ApprovalAnswered(approval_id=approval_id):
                for call in self._calls[self._unfinished :]:
                    if call.asked is not None and call.asked.approval_id == approval_id:
                        call.answered = event
            case _:
                assert_never(event)

    def _call_with(self, call_id: str) -> _ToolCallState:
        """The newest call with this id: providers have been seen to reuse ids from one answer to the next."""
        for call in reversed(self._calls):
            if call.call.id == call_id:
                return call
        return _ToolCallState(-1, ToolCall(call_id, ""))  # no call has this id: the result is dropped

    def _result_messages(self) -> list[Message]:
        """Results of the open calls, once the model may see them: when none of ours is missing."""
        calls = self._calls[self._unfinished :]
        if any(c.result is None and c.call.name not in self._foreign for c in calls):
            return []
        results = tuple(c.result for c in calls if c.result is not None)
        return [Message("tool", results)] if results else []

    def _apply_run_fact(self, event: events.RunForked | events.RunFinished, attempt: int) -> None:
        """After a fork, the other run may have made the calls that have no result here: they count as begun."""
        if isinstance(event, events.RunFinished):
            self._finished = True
            return
        self._answers = 0
        if self._said or self._shown or self._calls:
            self.attempt = max(self.attempt, attempt)
        for call in self._calls[self._unfinished :]:
            call.started = True

    def _compress(self, messages: tuple[Message, ...]) -> None:
        """Happens between calls: the results of finished tools are among these messages."""
        self._messages = list(messages)
        self._unfinished = len(self._calls)


def _result(recorded: events.ToolOutputRecorded) -> ToolResult:
    """What the model is given of a tool's output: the text, and the images that models read."""
    images = tuple(
        Image(data=base64.b64encode(file.data).decode(), media_type=file.media_type)
        for file in recorded.files
        if file.media_type in READABLE_IMAGES
    )
    if not images:
        return ToolResult(recorded.call_id, recorded.output, recorded.ok)
    return ToolResult(recorded.call_id, (Text(recorded.output), *images), recorded.ok)


def text_message(text: str, calls: tuple[ToolCall, ...] = ()) -> Message:
    """An assistant's message of plain text and calls."""
    return Message("assistant", (Text(text), *calls) if text else calls)
