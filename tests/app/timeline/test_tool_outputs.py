"""Which call of a run an output belongs to."""

from __future__ import annotations

from tailrace.app.timeline.tool_outputs import tool_outputs
from tailrace.events import AnyEvent, Entry, MessageRecorded, ToolOutputRecorded
from tailrace.messages import Message, ToolCall


def asked(*ids: str) -> MessageRecorded:
    return MessageRecorded(Message("assistant", tuple(ToolCall(call_id, "look") for call_id in ids)))


def test_an_id_that_a_provider_uses_again_means_the_newest_call() -> None:
    first, second, third = (ToolOutputRecorded(call_id, "look", text) for call_id, text in ("a1", "b2", "a3"))
    events: list[AnyEvent] = [asked("a", "b"), second, first, asked("a"), third, ToolOutputRecorded("x", "look", "?")]
    facts = [Entry(seq, event) for seq, event in enumerate(events, 1)]
    assert tool_outputs(facts) == {1: second, 0: first, 2: third}
