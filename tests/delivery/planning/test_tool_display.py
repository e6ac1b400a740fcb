"""How much a chat shows of tools."""

from __future__ import annotations

import pytest

from delivery.planning.played_plans import EDITING, NATIVE, Stage, answer, numbered
from tailrace.delivery.port import Capabilities, Window
from tailrace.delivery.text.split import units
from tailrace.events import AnyEvent, MessageRecorded, RunStarted, ToolCallChunk, ToolCallFinished, ToolOutputRecorded
from tailrace.messages import Message, ToolCall


def test_a_tool_that_was_denied_or_interrupted_has_no_duration() -> None:
    stage = Stage(EDITING)
    ended: list[AnyEvent] = [
        ToolCallChunk("terminal", "rm -rf build", index=0),
        ToolCallFinished("terminal", 0.0, ok=False, index=0),
    ]
    stage.stream([RunStarted("agent"), *ended, *answer("Done.")[1:]], every_s=0.0)
    assert stage.chat.texts == ("✗ **terminal** `rm -rf build`", "Done.")


@pytest.mark.parametrize("platform", [EDITING, NATIVE], ids=["edits", "a stream with cards"])
def test_tools_are_shown_with_arguments_progress_and_output_where_the_chat_wants_it(platform: Capabilities) -> None:
    stage = Stage(platform, chrome="verbose")
    begun = ToolCallChunk("terminal", "make", {"command": "make\nmake test", "timeout_s": 3}, index=0)
    progress = ToolCallChunk("terminal", "half done", index=0)
    called = MessageRecorded(Message("assistant", (ToolCall("c", "terminal"),)))
    stage.feed(numbered([RunStarted("agent"), called, begun, progress]))
    stage.run_until(stage.now + 3)
    arguments = "```\ncommand: make\nmake test\ntimeout_s: 3\n```"
    assert stage.chat.texts == (f"⏳ **terminal**\n{arguments}\n```\nhalf done\n```",)
    output = "x" * 1500 + "\nall good"
    ended: list[AnyEvent] = [ToolOutputRecorded("c", "terminal", output), ToolCallFinished("terminal", 0.1)]
    stage.feed(numbered([*ended, *answer("Done.")[1:]], first=5))
    stage.run_until(stage.now + 10)
    shown = f"✓ **terminal** (0.1 s)\n{arguments}\n```\n{output[-1000:]}\n```"
    assert list(stage.chat.texts) == [shown, "Done."]


@pytest.mark.parametrize("output", ["🙂" * 1500, "`" * 1500], ids=["two units a character", "a long fence"])
def test_a_tool_that_is_shown_in_full_fits_the_platforms_message(output: str) -> None:
    platform = Capabilities(mode="edit", edits=True, limit=2000, unit="utf16", windows=(Window(1, 1.0),))
    stage = Stage(platform, chrome="verbose")
    called = MessageRecorded(Message("assistant", (ToolCall("c", "terminal"),)))
    ended: list[AnyEvent] = [
        ToolCallChunk("terminal", "make", {"command": output}, index=0),
        ToolOutputRecorded("c", "terminal", output + "end"),
        ToolCallFinished("terminal", 0.1, index=0),
    ]
    stage.stream([RunStarted("agent"), called, *ended, *answer("Done.")[1:]], every_s=0.0)
    shown = stage.chat.texts[0]
    assert units(shown, "utf16") <= platform.limit
    assert "**terminal** (0.1 s)" in shown
    assert output[:20] + "end" in shown
