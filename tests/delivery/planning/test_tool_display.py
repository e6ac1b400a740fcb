"""How much a chat shows of tools."""

from __future__ import annotations

from delivery.planning.played_plans import EDITING, Stage, answer
from tailrace.events import (
    AnyEvent,
    RunStarted,
    ToolCallChunk,
    ToolCallFinished,
)


def test_a_tool_that_was_denied_or_interrupted_has_no_duration() -> None:
    stage = Stage(EDITING)
    ended: list[AnyEvent] = [
        ToolCallChunk("terminal", "rm -rf build", index=0),
        ToolCallFinished("terminal", 0.0, ok=False, index=0),
    ]
    stage.stream([RunStarted("agent"), *ended, *answer("Done.")[1:]], every_s=0.0)
    assert stage.chat.texts == ("✗ **terminal** `rm -rf build`", "Done.")
