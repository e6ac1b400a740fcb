"""The signals that the steps of a sequence wait for."""

from __future__ import annotations

from typing import Final

from tailrace.flows.definition.definition import Definition, Step, walk
from tailrace.flows.definition.spelling import no_such

WAIT_SIGNAL: Final = "wait_signal"
CONTROLS: Final = frozenset({"pause", "resume", "cancel"})  # they act on the instance, and reach no step
# Of these handlers it is known which signals they wait for. A program's own may wait for any.
_KNOWN: Final = frozenset({"llm_call", "agent", "tool", "http", "sleep", WAIT_SIGNAL})


def awaited_signals(definition: Definition) -> dict[str, str]:
    """By the id of the step; left out is a name that a template makes."""
    steps = (block for _, block in walk(definition.blocks) if isinstance(block, Step))
    names = {step.id: step.params.get("signal") for step in steps if step.handler == WAIT_SIGNAL}
    return {block: name for block, name in names.items() if isinstance(name, str) and "{{" not in name}


def unknown_signal(definition: Definition, name: str) -> str:
    """What to say of a signal that no step will ever take; empty for any other."""
    steps = [block for _, block in walk(definition.blocks) if isinstance(block, Step)]
    awaited = awaited_signals(definition)
    certain = all(step.handler in _KNOWN and (step.handler != WAIT_SIGNAL or step.id in awaited) for step in steps)
    if not certain or name in awaited.values():
        return ""
    return no_such("step that waits for the signal", name, set(awaited.values()))
