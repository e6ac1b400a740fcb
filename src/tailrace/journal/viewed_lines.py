"""Entries of a log as viewers are shown them: as server-sent events, and without what the model thought.

Pure. An entry that needs no change is framed from the bytes in storage, without decoding it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tailrace import events
from tailrace.events import Entry, MessageRecorded, ProviderAnswer, ProviderEvents, ReasoningChunk, ToolArgumentsChunk
from tailrace.messages import Reasoning
from tailrace.ports import StoredLine


def sse_with_reasoning(line: StoredLine) -> bytes:
    """The entry as a server-sent event: `id` is the seq, `event` the type, `data` what `entry_to_json` returns."""
    seq, attempt, json = line
    return b'id: %d\nevent: %b\ndata: {"seq":%d,"attempt":%d,%b\n\n' % (seq, line.type, seq, attempt, json[1:])


def sse_without_reasoning(line: StoredLine) -> bytes:
    """The same for a viewer that did not ask what the model thought: empty for such an entry."""
    shown = line_without_reasoning(line)
    return b"" if shown is None else sse_with_reasoning(shown)


def line_with_reasoning(line: StoredLine) -> StoredLine | None:
    """The entry as it is stored."""
    return line


def line_without_reasoning(line: StoredLine) -> StoredLine | None:
    """The same without what the model thought: None for an entry that is nothing else."""
    kind = line.type
    if kind not in _WITH_REASONING or (kind == b"message_recorded" and b'"type":"reasoning"' not in line.json):
        return line
    shown = [StoredLine(line.seq, line.attempt, events.to_json(each.event)) for each in without_reasoning([line.entry])]
    return shown[0] if shown else None


_WITH_REASONING = frozenset(
    {b"reasoning_chunk", b"provider_events", b"provider_answer", b"message_recorded", b"snapshot"}
)


def without_reasoning(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The same entries for a viewer that did not ask for reasoning."""
    for entry in entries:
        event = entry.event
        if isinstance(event, ReasoningChunk | ProviderEvents | ProviderAnswer):
            continue
        if isinstance(event, events.Snapshot) and event.reasoning.text:
            yield Entry(entry.seq, msgspec.structs.replace(event, reasoning=events.TextSoFar()), entry.attempt)
        elif isinstance(event, MessageRecorded):
            yield Entry(entry.seq, _without_thoughts(event), entry.attempt)
        else:
            yield entry


def in_short(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The same without the pieces of calls that were being written too: the calls come whole."""
    return (entry for entry in without_reasoning(entries) if not isinstance(entry.event, ToolArgumentsChunk))


def _without_thoughts(recorded: MessageRecorded) -> MessageRecorded:
    message = recorded.message
    said = tuple(part for part in message.parts if not isinstance(part, Reasoning))
    return msgspec.structs.replace(recorded, message=msgspec.structs.replace(message, parts=said))
