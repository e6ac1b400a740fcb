"""The agent's loop: does what is due in a turn, records it, applies it; and again, until nothing is due.

    record the question
    while what is due is not the end:
        if a model call is due:
            record that messages for the turn under way join its history
            summarise the older history where it fills most of the context
            stream the model's answer into the log, piece by piece (refused as too long: shorten, and begin again)
            record the answer, with the tools that it calls
        if tools are due:
            ask a person about those that need an approval
            record that they start, run them, record what they gave
        if a budget is used up:
            record an answer that says so
    record the end

`Turn` alone decides what is due (turn.py), from the facts on record and nothing else. So a run that a crash
interrupted goes on here with no code of its own: its facts are replayed and what is due is done. The model call is in
model_call.py, tools and approvals are in tool_runner.py.

This module owns the turn's order and its interruption. A `stop` signal cancels the step under way, and the turn is
sealed as `stopped`. A cancellation from outside, as when the process ends, records nothing: another process goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress

import msgspec

from tailrace.agent.model_call import ModelCall, ModelSettings
from tailrace.agent.safety.approval import ApprovalPolicy, Asker
from tailrace.agent.safety.redact import Redactor
from tailrace.agent.steering import facts_of
from tailrace.agent.tool_runner import OnWaiting, Snapshots, ToolRunner, ToolSettings
from tailrace.agent.turn import CallModel, Finish, GiveUp, Turn
from tailrace.events import (
    ApprovalAnswered,
    Entry,
    GatewayNotice,
    HistoryCompressed,
    MessageRecorded,
    MessageStop,
    RunFailure,
    RunFinished,
    RunStatus,
    UsageRecorded,
)
from tailrace.messages import Message
from tailrace.ports import Journal, Lease, Signal, Tool
from tailrace.providers.call import Caller
from tailrace.providers.open_attempt import ResumableAnswer
from tailrace.runs.failures import is_too_long
from tailrace.runs.record import RecordedFold
from tailrace.runs.signals import NEWER_MESSAGE, STOP, Stopped, run_signalled, stop_failure
from tailrace.system.steady_time import clock_offset, steady_time

log = logging.getLogger("tailrace.agent")
MAX_SHORTENED = 3  # times in a row, each to less than half, that a request is too long


class TurnSettings(msgspec.Struct, frozen=True):
    """What one turn has at its disposal."""

    model: ModelSettings
    tools: Mapping[str, Tool]
    tool_settings: ToolSettings
    policy: ApprovalPolicy
    asker: Asker
    redactor: Redactor
    snapshots: Snapshots | None = None
    price: Callable[[UsageRecorded], float] = lambda _: 0.0  # in dollars
    deadline_at: float | None = None  # wall clock, seconds since the epoch
    missing_tools: str = ""  # what its user is told of tools that are not there


class TurnRunner:
    """One turn, from its facts so far to its sealed end."""

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        turn: Turn,
        caller: Caller,
        settings: TurnSettings,
        on_waiting: OnWaiting = lambda _: None,
        resumed: ResumableAnswer | None = None,
    ) -> None:
        """`on_waiting` is called with True when the turn has nothing under way but questions to a person, and with
        False when that is over. `resumed`: the last answer that an earlier process asked for, if its provider keeps
        it."""
        self._journal = journal
        self._lease = lease
        self.turn = turn
        self._settings = settings
        self._record = RecordedFold(journal, lease, turn, due=turn.due, log=log)
        self._model = ModelCall(self._record, caller, settings.model, settings.redactor, resumed)
        self._tools = ToolRunner(
            self._record,
            settings.tools,
            settings.policy,
            settings.asker,
            settings.redactor,
            settings.tool_settings,
            settings.snapshots,
            on_waiting,
        )
        self._clock_offset = clock_offset()
        self._begun = False  # the question is on record
        self._shortened = 0  # times in a row that a request was found too long
        self._replaced: tuple[Message, ...] | None = None  # what stands for the session's history from the question on

    async def inherit(self, entries: Iterable[Entry]) -> None:
        """Records what the turn has from the run that it was forked from, then the messages that came while it waited:
        its first model call has them. Comes before `run`."""
        for entry in entries:
            self._record.add(entry.event, attempt=entry.attempt)
        for signal in await self._journal.kept_signals(self._lease):
            self._record.add(*facts_of(signal, self.turn.steers))

    async def run(
        self,
        message: Message | None = None,
        *,
        fetch: Callable[[], Coroutine[None, None, Message]] | None = None,
        stopped: RunFailure | None = None,
        replaced: tuple[Message, ...] | None = None,
    ) -> RunFinished:
        """Runs the turn to its end and seals it. `message` is the question that begins a new one; `fetch` gives it with
        its files, and a turn that a person stops before that has it without them; called again, it waits for the same
        download. `stopped`: a signal stopped the turn before it began; the failure of its end. `replaced`: from this
        question on, these messages stand for all earlier ones of the session.

        A `stop` signal ends it as `stopped`. Cancelled from outside it leaves the run as it is, unfinished and with all
        that happened on record. Raises `StaleEpoch` where the lease is lost, `JournalError` where storage fails."""
        self._replaced = replaced
        if message is not None and fetch is None:
            self._begin(message)
        finish: RunFinished | None = None
        if stopped is None:
            try:
                work = self._drive(fetch if message is not None else None)
                finish = await run_signalled(work, self._journal, self._lease, self._on_signal)
            except Stopped as exc:
                stopped = exc.failure
        if finish is None:
            if message is not None and not self._begun:
                self._begin(await self._question(message, fetch, stopped))
            await self._model.abandon_resumed()
            self._record.add(*self._tools.with_durations(self.turn.last_words()))
            finish = self._end("stopped", stopped)
        if not self.turn.stopped:
            self._record.add(MessageStop(final=True))
        await self._journal.seal(self._lease, finish)
        await self._settings.asker.take_down()  # what was asked when the turn was stopped
        return finish

    # ── what is due ──────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, message: Message) -> None:
        if not self._begun:
            self._begun = True
            if self._replaced is not None:
                self._record.add(HistoryCompressed(self._replaced))
            self._record.add(MessageRecorded(message))
            if missing := self._settings.missing_tools:
                self._record.add(GatewayNotice("missing_tools", missing))

    async def _question(
        self, message: Message, fetch: Callable[[], Coroutine[None, None, Message]] | None, stopped: RunFailure | None
    ) -> Message:
        """The question of a turn that is stopped before it is on record. A newer message is often about the files of
        the one before it, so they are fetched all the same, unless a person stops the turn meanwhile."""
        if fetch is not None and stopped is not None and stopped.code == NEWER_MESSAGE:
            with suppress(Stopped):
                return await run_signalled(fetch(), self._journal, self._lease, _stop_of_a_person)
        return message

    async def _drive(self, fetch: Callable[[], Coroutine[None, None, Message]] | None) -> RunFinished:
        if fetch is not None:
            self._begin(await fetch())
        while True:
            self.turn.is_late = self._is_late()
            match self.turn.due():
                case [Finish(status="stopped", reason=reason)]:  # by a process that died before it had sealed the run
                    return self._end("stopped", await self._kept_stop() or RunFailure("stopped", reason))
                case [Finish(status=status, reason=reason)]:
                    return self._end(status, RunFailure(status, reason) if reason else None)
                case [CallModel(shown)]:
                    if failure := await self._call_model(shown):
                        return self._end("failed", failure)
                case [GiveUp(reason)]:
                    self._model.give_up(reason)
                case _:
                    await self._tools.run_all(self.turn.open_calls())

    async def _kept_stop(self) -> RunFailure | None:
        """The failure that names who stopped the turn: the signal, which is stored until the seal, has the name."""
        signals = await self._journal.kept_signals(self._lease)
        return next((stop_failure(signal) for signal in signals if signal.name == STOP), None)

    async def _call_model(self, shown: str) -> RunFailure | None:
        """Returns why the run has failed, where it has. A request that was refused as too long and is shorter now is
        due once more."""
        if not shown and self._model.resumed is None and not self._is_late():
            asked = await self._model.compress_if_full(budget_s=self._left_s())
            if asked and not self._is_model_due():  # the summary has used up the turn's tokens
                return None
            self._record.add(*self.turn.commit_steers())
        if self._is_late():
            self._model.give_up("ran out of time")
            return None
        failure = await self._model.answer(shown, budget_s=self._left_s())
        if failure is None or not is_too_long(failure):
            self._shortened = 0
            return failure
        has_said = bool(shown) or not self._is_model_due()
        if has_said or self._shortened >= MAX_SHORTENED or self._is_late():
            return failure
        self._shortened += 1
        return None if await self._model.compress_refused(budget_s=self._left_s()) else failure

    def _is_model_due(self) -> bool:
        return isinstance(self.turn.due()[0], CallModel)

    def _left_s(self) -> float | None:
        deadline_at = self._settings.deadline_at
        return None if deadline_at is None else deadline_at - steady_time(self._clock_offset)

    def _is_late(self) -> bool:
        deadline_at = self._settings.deadline_at
        return deadline_at is not None and deadline_at <= steady_time(self._clock_offset)

    def _end(self, status: RunStatus, error: RunFailure | None) -> RunFinished:
        return RunFinished(
            status,
            self.turn.output,
            self.turn.usage,
            error,
            steady_time(self._clock_offset),
            not_executed=self.turn.not_executed or msgspec.UNSET,
        )

    def _on_signal(self, signal: Signal) -> None:
        if signal.name == STOP:
            self._model.is_stopped = self._tools.is_stopped = True
            raise Stopped(stop_failure(signal))
        self._record.add(*facts_of(signal, self.turn.steers))
        if signal.name == "approval":
            decision = signal.payload.get("decision")
            if decision in ("once", "session", "always", "deny"):
                approval_id, reason = (str(signal.payload.get(name, "")) for name in ("approval_id", "reason"))
                answered = ApprovalAnswered(approval_id, decision, signal.by, reason)
                self._settings.asker.answer(answered, authorised=signal.payload.get("authorised") is True)


def _stop_of_a_person(signal: Signal) -> None:
    """Raises `Stopped` for a stop that is no newer message's."""
    if signal.name == STOP and signal.payload.get("code") != NEWER_MESSAGE:
        raise Stopped(stop_failure(signal))
