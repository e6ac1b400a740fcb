"""The outputs of a turn's tool calls by the calls' places in the run, which is how viewers know a call.

Pure: read from the facts of the log. Providers use the ids of calls again from one answer to the next.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.events import Entry, MessageRecorded, ToolOutputRecorded


def tool_outputs(facts: Iterable[Entry]) -> dict[int, ToolOutputRecorded]:
    """What is recorded of each call that has ended."""
    places: dict[str, int] = {}  # of the newest call with an id
    calls = 0
    outputs: dict[int, ToolOutputRecorded] = {}
    for entry in facts:
        match entry.event:
            case MessageRecorded(message=message) if message.role == "assistant":
                for call in message.tool_calls:
                    places[call.id] = calls
                    calls += 1
            case ToolOutputRecorded(call_id=call_id) as output if call_id in places:
                outputs[places[call_id]] = output
            case _:
                pass
    return outputs
