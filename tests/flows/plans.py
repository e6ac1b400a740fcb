"""What the tests of plans share: blocks in few words, and a driver that executes a plan without any I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.events import AnyEvent, RunFailure, StepFailed, StepFinished, StepStarted
from tailrace.flows.definition.definition import Definition, parsed
from tailrace.flows.engine.plan import Plan, RunStep
from tailrace.flows.language.templates import resolved
from tailrace.messages import JsonObject

Do = Callable[[str, Any], Any]  # the step's place and its parameters → its output, or a `RunFailure`


def step(name: str, params: Any = None, **fields: Any) -> JsonObject:
    return {
        "type": "step",
        "id": name,
        "handler": "do",
        "params": {"say": params} if params is not None else {},
        **fields,
    }


def sequence(*blocks: JsonObject, **fields: Any) -> Definition:
    return parsed({"name": "test", "blocks": list(blocks), **fields})


class Driver:
    """Executes one step at a time, in the order in which `pick` chooses; `facts` is the log it writes."""

    def __init__(self, definition: Definition, do: Do | None = None, given: JsonObject | None = None) -> None:
        self.definition = definition
        self.given = given or {}
        self.plan = Plan(definition, self.given)
        self.facts: list[AnyEvent] = []
        self.calls: list[str] = []
        self._do = do or (lambda path, params: params.get("say", path))

    def record(self, event: AnyEvent) -> None:
        self.facts.append(event)
        self.plan.apply(event)

    def start(self, block_id: str) -> RunStep:
        command = next(due for due in self.plan.due(0.0) if due.block_id == block_id)
        self.record(StepStarted(block_id, command.number, 1.0))
        return command

    def end(self, command: RunStep) -> None:
        params = resolved(command.step.params, self.plan.scope(command.block_id))
        self.calls.append(command.block_id)
        outcome = self._do(command.block_id, params)
        if isinstance(outcome, RunFailure):
            self.record(StepFailed(command.block_id, outcome, command.number))
        else:
            self.record(StepFinished(command.block_id, outcome))

    def run(self, pick: Callable[[int], int] = lambda _: 0) -> Driver:
        """Everything that is due is started; then `pick(n)` says which of the n steps under way ends next."""
        under_way: list[RunStep] = []
        while True:
            under_way = [command for command in under_way if self.plan.is_open(command.block_id)]
            for command in self.plan.due(0.0):
                self.record(StepStarted(command.block_id, command.number, 1.0))
                under_way.append(command)
            if not under_way:
                return self
            self.end(under_way.pop(pick(len(under_way)) % len(under_way)))

    def after_crash(self, facts: int) -> Driver:
        """Another process that finds so many of the facts."""
        other = Driver(self.definition, self._do, self.given)
        for event in self.facts[:facts]:
            other.record(event)
        other.plan.interrupt()
        return other
