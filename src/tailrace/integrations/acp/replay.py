"""What a session's log says to an editor that has seen none of it: pure changes of entries before they are encoded.

A turn that has ended is shown from its facts, which are kept for as long as the run is: each text whole, without what
was withdrawn on the way. A turn under way is shown from its log so far, without the attempts that were withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.events import (
    AnyEvent,
    AttemptDiscarded,
    Entry,
    HistoryCompressed,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunForked,
    ToolCallChunk,
    ToolOutputRecorded,
)
from tailrace.messages import Message, Reasoning, ToolCall


def with_inherited(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of a run, with what a fork was given of the conversation before it as texts: who said what, without
    the tools."""
    if not any(isinstance(entry.event, RunForked) for entry in entries):
        return [*entries]
    told: list[Entry] = []
    for entry in entries:
        if isinstance(entry.event, HistoryCompressed) and not told[1:]:  # right after `RunStarted`
            told += [Entry(entry.seq, event) for message in entry.event.messages for event in _said(message)]
        else:
            told.append(entry)
    return told


def _said(message: Message) -> list[AnyEvent]:
    if message.role == "user":
        return [MessageRecorded(message)]
    if message.role == "assistant" and message.text:
        return [MessageChunk(message.text), MessageStop()]
    return []


def whole_messages(facts: Iterable[Entry]) -> list[Entry]:
    """The entries of an ended turn, with each recorded text in one chunk and each call announced before its output."""
    entries: list[Entry] = []
    calls: list[ToolCall] = []
    for entry in facts:
        event = entry.event
        if isinstance(event, ReasoningChunk):
            continue  # the message has it whole
        if isinstance(event, MessageRecorded) and event.message.role == "assistant":
            thoughts = "".join(part.text for part in event.message.parts if isinstance(part, Reasoning))
            said: list[AnyEvent] = [ReasoningChunk(thoughts)] if thoughts else []
            said += [MessageChunk(event.message.text)] if event.message.text else []
            entries += [Entry(entry.seq, each) for each in (*said, event, MessageStop())]
            calls += event.message.tool_calls
            continue
        if isinstance(event, ToolOutputRecorded):
            index = next((i for i in reversed(range(len(calls))) if calls[i].id == event.call_id), None)
            if index is not None:
                entries.append(Entry(entry.seq, ToolCallChunk(event.tool_name, None, calls[index].parsed(), index)))
        entries.append(entry)
    return entries


def without_withdrawn(entries: Sequence[Entry]) -> list[Entry]:
    """The entries without the texts of attempts that were withdrawn since."""
    withdrawn = {entry.attempt for entry in entries if isinstance(entry.event, AttemptDiscarded)}
    return [
        entry
        for entry in entries
        if entry.attempt not in withdrawn
        or not isinstance(entry.event, MessageChunk | ReasoningChunk | AttemptDiscarded)
    ]
