"""The port for observing turns and tools from beginning to end, as traces do. Knows no tracer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from tailrace.events import RunFinished
from tailrace.messages import ToolCall
from tailrace.ports import Run, Tool, ToolOutcome


def _ignore(_: object) -> None:
    pass


_NO_OP: AbstractContextManager[Callable[[object], None]] = nullcontext(_ignore)


class Observer:
    """A no-op; a tracer overrides it. Called on the loop, in the task that does the work; must return quickly and raise
    nothing. Each block yields a callback for how the work ended. Not called: the work was cancelled or raised."""

    def turn(self, _run: Run) -> AbstractContextManager[Callable[[RunFinished], None]]:
        return _NO_OP

    def tool(self, _call: ToolCall, _tool: Tool) -> AbstractContextManager[Callable[[ToolOutcome], None]]:
        return _NO_OP


UNOBSERVED = Observer()
