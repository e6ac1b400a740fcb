"""A turn of the agent as a pure fold of facts: `apply` what happened, ask what is `due`.

Owns every decision about what comes next. Never awaits, never reads a clock, never knows a provider or a tool. A live
turn, its recovery after a crash and its tests are the same thing: apply the facts, ask what is due.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias, assert_never

import msgspec

from tailrace import events
from tailrace.events import AnyEvent, Entry
from tailrace.events.attempt_text import AttemptText
from tailrace.events.steers import Steers
from tailrace.messages import ENDED_BY_PROVIDER, READABLE_IMAGES, Image, Message, Text, ToolCall, ToolResult, Usage
from tailrace.ports import Budget

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


ENDED_WITH_PROCESS = (
    "This call was interrupted; it may or may not have taken effect. It was not run again: check before you repeat it."
)
INTERRUPTED = "The user interrupted this call; it may or may not have taken effect."
NEVER_RAN = "The user stopped the run before this call was made; it was not executed."
_INCOMPLETE = {"cut": "the answer broke off", "limit": "a budget of the turn was used up", **ENDED_BY_PROVIDER}


# Facts and events that decide nothing.
_Undecisive: TypeAlias = (
    events.RunStarted
    | events.SubRunStarted
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
    max_usd: float | None = None


class Turn:
    """All a turn knows. `history` is what the session said before it."""

    def __init__(
        self,
        history: Iterable[Message] = (),
        *,
        limits: TurnLimits | None = None,
        foreign: Collection[str] = (),
        price: Callable[[events.UsageRecorded], float] = lambda _: 0.0,
    ) -> None:
        """`price` says in dollars what an attempt has cost."""
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
        self._left_out: list[events.NotExecuted] = []
        self._price = price
        self._spent_usd = 0.0
        self.rejected = 0  # answers that were not of the form that was asked for
        self._ended_with_process = 0  # calls on record, since a person let the turn go on
        self.usage = Usage()
        self.steers = Steers()
        self.is_late = False  # the turn's time is up: no call is made for a steer
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
    def shown_attempts(self) -> list[int]:
        """The attempts that wrote it."""
        return [attempt for attempt, _ in self._shown.pieces()]

    @property
    def has_shown(self) -> bool:
        """Whether they have seen a chunk of it, be it an empty one."""
        return bool(self._shown)

    @property
    def is_first_answer(self) -> bool:
        """Whether the model has answered nothing in this turn yet."""
        return self._answers == 0

    @property
    def not_executed(self) -> tuple[events.NotExecuted, ...]:
        """What the model wanted to do and was not done, in order; what it tried again is named once."""
        return tuple(dict.fromkeys(self._left_out))

    @property
    def call_count(self) -> int:
        """How many tool calls the model has made."""
        return len(self._calls)

    @property
    def tokens_left(self) -> int | None:
        """Of the turn's budget; None where there is none."""
        limit = self._limits.max_tokens
        return None if limit is None else max(0, limit - self.usage.input_tokens - self.usage.output_tokens)

    def budget_of_call(self) -> Budget:
        """The share of each open call in what the turn may still use."""
        sharing, limits, tokens = max(1, len(self.open_calls())), self._limits, self.tokens_left
        return Budget(
            max(0, limits.max_calls - self._answers),
            tokens // sharing if tokens is not None else None,
            max(0.0, limits.max_usd - self._spent_usd) / sharing if limits.max_usd is not None else None,
        )

    @property
    def output(self) -> str:
        """What a non-streaming call would return if the turn ended now: the text since the last tool boundary."""
        return self._said.text + self._shown.text

    def open_calls(self) -> list[RunTool | SettleTool]:
        """Calls without a result, in order."""
        if not (calls := self._calls[self._unfinished :]):
            return []
        return [
            SettleTool(c.index, c.call) if c.started else RunTool(c.index, c.call, c.asked, c.answered)
            for c in calls
            if c.result is None and c.call.name not in self._foreign
        ]

    @property
    def ended_with_process(self) -> int:
        """How many calls in a row ended with their process, the last of them just now; 0 where none did just now.
        Progress in between does not count: a command of the turn's own may be what ends the process (N159)."""
        is_cut = any(isinstance(command, SettleTool) for command in self.open_calls())
        return self._ended_with_process + 1 if is_cut else 0

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
            settled.append(events.MessageRecorded(Message("assistant", (Text(self.shown),)), "stopped"))
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
        open_calls = self._calls[self._unfinished :]
        if open_calls and (foreign := tuple(c.call for c in open_calls if c.result is None)):
            return [Finish("completed", self.output, calls=foreign)]
        if self._result_messages():
            return [self._call_or_give_up()]
        return [CallModel()] if self._goes_on_for_steer() else [self._finish()]

    def _goes_on_for_steer(self) -> bool:
        """A turn that is over makes one more call for what is accepted, unless it was stopped, failed or is at a limit
        (N165)."""
        ends = self._final_stop or self.is_late or self._stop in ("cut", "limit", "stopped")
        return bool(self.steers.pending) and not ends and isinstance(self._call_or_give_up(), CallModel)

    def commit_steers(self) -> list[AnyEvent]:
        """What goes into the log before a model call that begins a new message: each accepted message joins the history
        (N164). An answer that ended the turn until now is closed first."""
        if not (pending := self.steers.pending):
            return []
        closed = [events.MessageStop(final=False)] if self.output else []
        return [*closed, *(events.SteerCommitted(each.steer_id) for each in pending)]

    def _call_or_give_up(self) -> TurnCommand:
        if self._answers >= self._limits.max_calls:
            calls = "1 model call" if self._answers == 1 else f"{self._answers} model calls"
            return GiveUp(f"stopped after {calls} (agent.max_turns)")
        if self.tokens_left == 0:
            spent = self.usage.input_tokens + self.usage.output_tokens
            return GiveUp(f"stopped after {spent} tokens (agent.max_tokens)")
        if self._limits.max_usd is not None and self._spent_usd >= self._limits.max_usd:
            return GiveUp(f"stopped after ${self._spent_usd:.4g} (max_usd)")
        return CallModel(self.shown)

    def _finish(self) -> Finish:
        output = self.output
        if self._stop == "stopped":
            return Finish("stopped", output, "interrupted")
        if reason := _INCOMPLETE.get(self._stop):
            return Finish("incomplete", output, reason)
        if not output.strip():
            return Finish("incomplete", output, "the model gave no answer")  # C46
        return Finish("completed", output)

    # ── the fold ─────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.apply(entry.event, entry.attempt)

    def apply(self, event: AnyEvent, attempt: int = 0) -> None:  # noqa: C901, PLR0912 - one case per kind of fact
        """Takes note of a fact. Facts that decide nothing are accepted and ignored."""
        if event.__class__ is events.MessageChunk:  # nearly every event: ahead of the match for speed alone
            self._shown.add(event.text, attempt)
            return
        match event:
            case events.MessageChunk(text):
                self._shown.add(text, attempt)
            case events.AttemptStarted():
                self.attempt = max(self.attempt, attempt)
            case events.AttemptDiscarded():
                self._shown.withdraw(attempt)
                self._said.withdraw(attempt)
            case events.MessageRecorded(message, stop, not_executed=lost):
                self._record(message, stop)
                self._left_out += lost or ()
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
                self._spent_usd += 0.0 if self._limits.max_usd is None else self._price(event)
            case events.SteerAccepted() | events.SteerReturned() | events.SteerCommitted():
                self._apply_steer(event)
            case events.RunForked() | events.RunFinished():
                self._apply_run_fact(event, attempt)
            case events.GatewayNotice(kind="parked"):
                self._ended_with_process = 0
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
            self.rejected += stop == events.REJECTED
            for call in message.tool_calls:
                self._calls.append(_ToolCallState(len(self._calls), call))

    def _apply_steer(self, fact: events.SteerFact) -> None:
        known = self.steers.get(fact.steer_id)
        if isinstance(fact, events.SteerCommitted) and known is not None and known.state == "accepted":
            self._record(known.accepted.message, self._stop)
        self.steers.apply(fact)

    def _end_message(self) -> None:
        if self._shown:
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
            case events.ToolOutputRecorded(call_id=call_id, not_executed=refused):
                self._call_with(call_id).result = _result(event)
                self._ended_with_process += event.output == ENDED_WITH_PROCESS
                self._left_out += [refused] if refused is not None else []
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
        if not (calls := self._calls[self._unfinished :]):
            return []
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
