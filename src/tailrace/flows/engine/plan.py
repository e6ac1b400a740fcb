"""An instance of a sequence as a pure fold of facts: `apply` what happened, ask what is `due`.

Owns every decision about what comes next. Never awaits, never reads a clock, never knows a handler. A live instance,
its recovery after a crash and its tests are the same thing: apply the facts, ask what is due.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeAlias, assert_never

import msgspec

from tailrace import events
from tailrace.flows.definition.definition import Definition, Step
from tailrace.flows.engine.nodes import Board, Failure, Leaf, Row
from tailrace.flows.language.scope import BlockScope
from tailrace.messages import Dialect, JsonObject, Usage

PAUSE, RESUME, CANCEL = "pause", "resume", "cancel"
_StepFact: TypeAlias = (
    events.StepStarted | events.StepFinished | events.StepFailed | events.AttemptStarted | events.AttemptDiscarded
)
# Events that decide nothing. A step is withdrawn by the fact that decides it, not by `StepCancelled`.
_Undecisive: TypeAlias = (
    events.RunStarted
    | events.RunForked
    | events.SubRunStarted
    | events.StepCancelled
    | events.AnswerKept
    | events.LlmDelta
    | events.ShownFact
    | events.StreamEvent
    | events.HistoryFact
    | events.ApprovalFact
    | events.SteerFact
    | events.Delivered
    | events.Snapshot
)


class RunStep(msgspec.Struct, frozen=True):
    """Run this try of this step. `interrupted`: it had begun before, at `started_at`, and how far it came is
    not known. `open_attempt` is the attempt of its model that was under way then, 0 where there was none."""

    block_id: str
    step: Step
    number: int
    started_at: float | None = None
    interrupted: bool = False
    attempts: int = 0
    open_attempt: int = 0


class Plan:
    """All an instance knows. `waiting` names the handlers that do nothing but wait."""

    attempt = 1  # of the instance's own events: attempts are counted by step

    def __init__(
        self, definition: Definition, given: JsonObject, *, dry_run: bool = False, waiting: Collection[str] = ()
    ) -> None:
        self._waiting = frozenset(waiting)
        self._board = Board(dry_run=dry_run)
        self._root = Row(self._board, None, definition.blocks, BlockScope(self._board.outputs, {"input": given}))
        self.step_outputs: dict[str, Any] = {}  # of the steps alone: what the instance is sealed with
        self.usage = Usage()
        self.dialects: dict[str, Dialect] = {}  # of the providers that were asked
        self.usage_by_model: dict[tuple[str, str], Usage] = {}  # by provider and model
        self.paused = False
        self.stopped = False  # by a `cancel` signal
        self.signals: list[events.SignalReceived] = []  # that no step has taken
        self.last_signal = 0
        self.known_state: events.InstanceState | None = None  # as the log says it
        self.finished: events.RunFinished | None = None
        self._root.begin()

    # ── what is to be done ───────────────────────────────────────────────────────────────────────────────────

    @property
    def settled(self) -> bool:
        """Nothing is left to do."""
        return self._root.settled

    @property
    def failure(self) -> Failure | None:
        return self._root.failure

    @property
    def outputs(self) -> dict[str, Any]:
        """What blocks gave, those that hold others included."""
        return dict(self._board.outputs)

    def due(self, now: float) -> list[RunStep]:
        """Steps to start now; none while the instance is paused."""
        if self.paused or self.stopped:
            return []
        return [
            RunStep(path, leaf.block, leaf.number, leaf.started_at, leaf.interrupted, leaf.attempts, leaf.open_attempt)
            for path, leaf in self._board.ready.items()
            if leaf.retry_at is None or leaf.retry_at <= now
        ]

    def next_at(self) -> float | None:
        """When the next step that waits for its time is due."""
        times = [leaf.retry_at for leaf in self._board.ready.values() if leaf.retry_at is not None]
        return min(times, default=None) if not self.paused else None

    def withdrawn(self) -> list[str]:
        """Steps under way that are no longer wanted; each is named once."""
        paths, self._board.withdrawn = self._board.withdrawn, []
        return paths

    def is_open(self, block_id: str) -> bool:
        """A result of this step is still wanted."""
        return block_id in self._board.started

    def scope(self, block_id: str) -> BlockScope:
        """What names stand for in an open step."""
        return self._leaf(block_id).frame

    def step(self, block_id: str) -> Step:
        return self._leaf(block_id).block

    def state(self) -> events.InstanceState:
        """What the instance is doing, as far as it has not ended."""
        if self.paused:
            return "paused"
        busy = any(leaf.block.handler not in self._waiting for leaf in self._board.started.values())
        busy = busy or any(leaf.retry_at is None for leaf in self._board.ready.values())
        return "running" if busy else "waiting"

    def interrupt(self, *block_ids: str) -> None:
        """These steps, or all without a name, are no longer executed: those that had begun are due again."""
        for path in block_ids or tuple(self._board.started):
            if (leaf := self._board.started.get(path)) is not None:
                leaf.interrupt()

    # ── the fold ─────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, entries: Iterable[events.Entry]) -> None:
        for entry in entries:
            self.apply(entry.event, entry.attempt)

    def apply(self, event: events.AnyEvent, attempt: int = 1) -> None:
        """Takes note of a fact. Facts that decide nothing are accepted and ignored."""
        match event:
            case (
                events.StepStarted()
                | events.StepFinished()
                | events.StepFailed()
                | events.AttemptStarted()
                | events.AttemptDiscarded()
            ):
                if (leaf := self._find(event.block_id)) is not None:
                    self._apply_to(leaf, event, attempt)
            case events.SignalReceived():
                self._hear(event)
            case events.StateChanged(state):
                self.known_state = state
            case events.UsageRecorded(usage, provider, model):
                self.usage += usage
                self.usage_by_model[provider, model] = self.usage_by_model.get((provider, model), Usage()) + usage
            case events.RunFinished():
                self.finished = event
            case _ if isinstance(event, _Undecisive):
                pass
            case _:
                assert_never(event)

    def _apply_to(self, leaf: Leaf, event: _StepFact, attempt: int) -> None:
        match event:
            case events.StepStarted(_, number, at):
                leaf.start(number, at)
            case events.StepFinished(_, output):
                self._finish(leaf, output)
            case events.StepFailed(block_id, error, _, retry_at):
                leaf.open_attempt = 0
                if retry_at is None:
                    leaf.fail(Failure(block_id, error))
                else:
                    leaf.again(retry_at)
            case events.AttemptStarted(provider, dialect=dialect):
                if dialect is not None:
                    self.dialects[provider] = dialect
                leaf.attempts = max(leaf.attempts, attempt)
                leaf.open_attempt = attempt
            case events.AttemptDiscarded():
                leaf.open_attempt = 0
            case _:
                assert_never(event)

    def _finish(self, leaf: Leaf, output: Any) -> None:
        self.step_outputs[leaf.path] = output
        if isinstance(output, dict) and isinstance(taken := output.get("signal_id"), int):
            self.signals = [signal for signal in self.signals if signal.signal_id != taken]
        leaf.settle(output)

    def _hear(self, signal: events.SignalReceived) -> None:
        self.last_signal = max(self.last_signal, signal.signal_id)
        match signal.name:
            case "pause":
                self.paused = True
            case "resume":
                self.paused = False
            case "cancel":
                self.stopped = True
            case _:
                self.signals.append(signal)

    def _find(self, block_id: str) -> Leaf | None:
        return self._board.started.get(block_id) or self._board.ready.get(block_id)

    def _leaf(self, block_id: str) -> Leaf:
        if (leaf := self._find(block_id)) is None:
            raise KeyError(block_id)
        return leaf


def facts_to_keep(definition: Definition, given: JsonObject, entries: Iterable[events.Entry]) -> list[events.AnyEvent]:
    """What a failed instance has achieved, for one that goes on from the step that failed: every output, every
    failure that was caught, every signal that no step has taken. The failure that ended it is left out."""
    facts = [entry.event for entry in entries]
    fatal = _fatal(definition, given, facts)
    kept: list[events.AnyEvent] = []
    for number, event in enumerate(facts):
        match event:
            case events.StepFinished():
                kept.append(event)
            case events.StepFailed(retry_at=None) if number != fatal:
                kept.append(event)
            case events.SignalReceived(name=name) if name not in (PAUSE, RESUME, CANCEL):
                kept.append(event)
            case _ if isinstance(event, events.SequenceFact | events.AttemptFact | events.RunFact | _Undecisive):
                pass
            case _:
                assert_never(event)
    return kept


def _fatal(definition: Definition, given: JsonObject, facts: list[events.AnyEvent]) -> int | None:
    plan = Plan(definition, given)
    for number, event in enumerate(facts):
        plan.apply(event)
        if plan.settled:
            return number
    return None
