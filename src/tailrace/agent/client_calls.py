"""Calls of the client's own tools: their ids name the turn that made them.

Such a call ends the turn, and its result begins another one, with the client's account of what was said before. The
client may not have been shown the model's reasoning, or may have dropped it, yet providers want it back beside the call
(K131). The turn's log has it, and the provider's own id of the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from tailrace.agent.session import TURN_KIND
from tailrace.errors import RunNotFound
from tailrace.events import Entry, MessageRecorded
from tailrace.messages import Message, Part, Reasoning, ToolCall, ToolResult, Value
from tailrace.ports import Journal, Run

_PREFIX: Final = "run_"
_OURS: Final = re.compile(r"call_([0-9a-f]{24})_[0-9]+")


def client_call_id(run_id: str, number: int) -> str:
    """The id under which the client is told the turn's call of that number, counted from 0."""
    return f"call_{run_id.removeprefix(_PREFIX)}_{number}"


class _Recorded(Value):
    """A call as the model made it, and what it thought before."""

    call: ToolCall
    reasoning: tuple[Reasoning, ...]


async def with_recorded_calls(
    journal: Journal, messages: tuple[Message, ...], is_readable: Callable[[Run], bool]
) -> tuple[Message, ...]:
    """The client's messages, with the reasoning before each call of the agent and the provider's id of the call. A call
    whose turn is not there any more, or may not be read, stays as the client wrote it."""
    found: dict[str, _Recorded] = {}
    runs = [run for key in _turns_named_in(messages) if (run := await _turn(journal, key)) and is_readable(run)]
    for run, facts in zip(runs, await journal.facts_of_runs([run.id for run in runs]), strict=True):
        found |= _client_calls(run, facts)
    return tuple(_restored(message, found) for message in messages) if found else messages


def _turns_named_in(messages: Iterable[Message]) -> list[str]:
    ids = [_call_id(part) for message in messages for part in message.parts]
    named = [made[1] for call_id in ids if (made := _OURS.fullmatch(call_id))]
    return list(dict.fromkeys(named))


def _call_id(part: Part) -> str:
    match part:
        case ToolCall(id=call_id) | ToolResult(call_id=call_id):
            return call_id
        case _:
            return ""


async def _turn(journal: Journal, key: str) -> Run | None:
    try:
        run = await journal.get(_PREFIX + key)
    except RunNotFound:
        return None
    return run if run.new.kind == TURN_KIND else None


def _client_calls(run: Run, facts: Iterable[Entry]) -> dict[str, _Recorded]:
    """The calls of the client's tools in this turn by the ids that the client knows."""
    names = {tool["name"] for tool in run.new.input.get("foreign", ())}
    found: dict[str, _Recorded] = {}
    for entry in facts:
        if not isinstance(entry.event, MessageRecorded):
            continue
        message = entry.event.message
        reasoning = tuple(part for part in message.parts if isinstance(part, Reasoning))
        for call in message.tool_calls:
            if call.name in names:
                found[client_call_id(run.id, len(found))] = _Recorded(call, reasoning)
    return found


def _restored(message: Message, found: dict[str, _Recorded]) -> Message:
    known = [found[call_id] for part in message.parts if (call_id := _call_id(part)) in found]
    if not known:
        return message
    parts: list[Part] = []
    if message.role == "assistant":
        parts += known[0].reasoning
    for part in message.parts:
        match part:
            case ToolCall(id=call_id) if call_id in found:
                parts.append(replace(part, id=found[call_id].call.id))
            case ToolResult(call_id=call_id) if call_id in found:
                parts.append(replace(part, call_id=found[call_id].call.id))
            case Reasoning() if known[0].reasoning:
                pass  # the log has it whole
            case _:
                parts.append(part)
    return Message(message.role, tuple(parts))
