"""Who may watch turns and tools from their beginning to their end: traces, for instance. The port alone; it knows no
tracer. Whatever is entered here is entered in the task that does the work, so what runs inside inherits its context.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from tailrace.events import RunFinished
from tailrace.messages import ToolCall
from tailrace.ports import Run, Tool, ToolOutcome


class Observer(Protocol):
    """Told on the loop; must return quickly and raise nothing. What a block yields is told how the work ended; a block
    that is left without that was cancelled, or raised what it is left with."""

    def turn(self, run: Run) -> AbstractContextManager[Callable[[RunFinished], None]]: ...

    def tool(self, call: ToolCall, tool: Tool) -> AbstractContextManager[Callable[[ToolOutcome], None]]: ...


def _unheard(_: object) -> None:
    pass


_NOBODY: AbstractContextManager[Callable[[object], None]] = nullcontext(_unheard)


class Unobserved:
    """Nobody watches: costs a call and a return."""

    def turn(self, _run: Run) -> AbstractContextManager[Callable[[RunFinished], None]]:
        return _NOBODY

    def tool(self, _call: ToolCall, _tool: Tool) -> AbstractContextManager[Callable[[ToolOutcome], None]]:
        return _NOBODY


UNOBSERVED = Unobserved()
