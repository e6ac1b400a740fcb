"""What an editor that has seen nothing of a forked run is shown of the conversation before the fork. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace import events
from tailrace.events import Entry
from tailrace.messages import Message, Text


def with_inherited(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of a run, with what a fork was given of the conversation before it as texts: who said what, without
    the tools."""
    if not any(isinstance(entry.event, events.RunForked) for entry in entries):
        return [*entries]
    shown: list[Entry] = []
    for entry in entries:
        if isinstance(entry.event, events.HistoryCompressed) and not shown[1:]:  # right after `RunStarted`
            shown += [Entry(entry.seq, event) for message in entry.event.messages for event in _said(message)]
        else:
            shown.append(entry)
    return shown


def _said(message: Message) -> list[events.AnyEvent]:
    if message.role == "tool" or not message.text:
        return [events.MessageRecorded(message)] if message.role == "user" else []
    return [events.MessageRecorded(message if message.role == "user" else Message(message.role, (Text(message.text),)))]
