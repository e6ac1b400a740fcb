"""The port for observing turns and tools from beginning to end, as traces do. Knows no tracer.

Each block is entered in the task that does the work, so what runs inside inherits its context.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from tailrace.events import RunFinished
from tailrace.messages import ToolCall
from tailrace.ports import Run, Tool, ToolOutcome


class Observer(Protocol):
    """Called on the loop; must return quickly and raise nothing. Each block yields a callback for how the work ended.
    If the callback was not called, the work was cancelled or raised."""

    def turn(self, run: Run) -> AbstractContextManager[Callable[[RunFinished], None]]: ...

    def tool(self, call: ToolCall, tool: Tool) -> AbstractContextManager[Callable[[ToolOutcome], None]]: ...


def _ignore(_: object) -> None:
    pass


_NO_OP: AbstractContextManager[Callable[[object], None]] = nullcontext(_ignore)


class Unobserved:
    """No-op observer."""

    def turn(self, _run: Run) -> AbstractContextManager[Callable[[RunFinished], None]]:
        return _NO_OP

    def tool(self, _call: ToolCall, _tool: Tool) -> AbstractContextManager[Callable[[ToolOutcome], None]]:
        return _NO_OP


UNOBSERVED = Unobserved()
