"""Calls of the client's own tools: their ids name the turn that made them.

Such a call ends the turn, and its result begins another one, with the client's account of what was said before. That
account has one message for the whole turn: without the agent's own tools and what they gave, and mostly without the
model's reasoning, which providers want back beside the call (K131). The turn's log has all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import dropwhile
from typing import Final

from msgspec.structs import replace

from tailrace.agent.session import TURN_KIND
from tailrace.agent.turn import Turn
from tailrace.errors import RunNotFound
from tailrace.events import Entry, HistoryCompressed
from tailrace.messages import Message, Part, Reasoning, ToolCall, ToolResult, Value
from tailrace.ports import Journal, Run
from tailrace.wire.reasoning_seal import is_signed_item

_PREFIX: Final = "run_"
_OURS: Final = re.compile(r"call_([0-9a-f]{24})_[0-9]+")


def client_call_id(run_id: str, number: int) -> str:
    """The id that the client gets for the turn's call of that number, counted from 0."""
    return f"call_{run_id.removeprefix(_PREFIX)}_{number}"


def calling_run(call_id: str) -> str:
    """The run whose call has this id; empty where it is another's id."""
    return _PREFIX + made[1] if (made := _OURS.fullmatch(call_id)) else ""


class _RecordedTurn(Value):
    """What a turn added to its conversation; `calls` are those of the client's tools, by the ids that the client knows.
    `messages` is empty where the turn compressed what came before it."""

    calls: dict[str, ToolCall]
    reasoning: dict[str, tuple[Reasoning, ...]]  # to go before each of the calls, where it stands alone
    messages: tuple[Message, ...]


async def with_recorded_calls(
    journal: Journal, messages: tuple[Message, ...], is_readable: Callable[[Run], bool]
) -> tuple[Message, ...]:
    """The client's messages, with each turn that called the client's tools as its log has it. A turn that is not there
    any more, or may not be read, stays as the client wrote it."""
    keys = dict.fromkeys(key for message in messages for key in _turns_named_in(message))
    runs = [run for key in keys if (run := await _turn_run(journal, key)) and is_readable(run)]
    if not runs:
        return messages
    logs = await journal.facts_of_runs([run.id for run in runs])
    turns = {run.id.removeprefix(_PREFIX): _recorded_turn(run, facts) for run, facts in zip(runs, logs, strict=True)}
    restored: list[Message] = []
    for message in messages:
        for each in _restored(message, turns):
            if each.role == "tool" and restored and restored[-1].role == "tool":  # ours, and then the client's
                restored[-1] = Message("tool", (*restored[-1].parts, *each.parts))
            else:
                restored.append(each)
    return tuple(restored)


def _turns_named_in(message: Message) -> list[str]:
    return [made[1] for part in message.parts if (made := _OURS.fullmatch(_call_id(part)))]


def _call_id(part: Part) -> str:
    match part:
        case ToolCall(id=call_id) | ToolResult(call_id=call_id):
            return call_id
        case _:
            return ""


async def _turn_run(journal: Journal, key: str) -> Run | None:
    try:
        run = await journal.get(_PREFIX + key)
    except RunNotFound:
        return None
    return run if run.new.kind == TURN_KIND else None


def _recorded_turn(run: Run, facts: list[Entry]) -> _RecordedTurn:
    names = {tool["name"] for tool in run.new.input.get("foreign", ())}
    turn = Turn(foreign=names)
    turn.replay(facts)
    added = tuple(dropwhile(lambda message: message.role != "assistant", turn.messages))
    calls: dict[str, ToolCall] = {}
    reasoning: dict[str, tuple[Reasoning, ...]] = {}
    for message in added:
        thoughts = tuple(part for part in message.parts if isinstance(part, Reasoning))
        for call in message.tool_calls:
            if call.name in names:
                call_id = client_call_id(run.id, len(calls))
                calls[call_id], reasoning[call_id] = call, thoughts
                thoughts = tuple(part for part in thoughts if part.native and not is_signed_item(part))
    compressed = any(isinstance(entry.event, HistoryCompressed) for entry in facts)
    return _RecordedTurn(calls, reasoning, () if compressed else added)


def _restored(message: Message, turns: Mapping[str, _RecordedTurn]) -> Iterable[Message]:
    """The messages that stand for the client's one."""
    named = [turns[key] for key in dict.fromkeys(_turns_named_in(message)) if key in turns]
    if not named:
        return [message]
    is_whole = len(named) == 1 and {call.id for call in message.tool_calls} == set(named[0].calls)
    if is_whole and named[0].messages:
        return named[0].messages
    return [_with_own_ids(message, named)]


def _with_own_ids(message: Message, named: list[_RecordedTurn]) -> Message:
    """The client's message, with the ids of the provider's and, in an answer, the reasoning before its first call."""
    calls = {call_id: call for turn in named for call_id, call in turn.calls.items()}
    thoughts = {call_id: parts for turn in named for call_id, parts in turn.reasoning.items()}
    first = next((part.id for part in message.parts if isinstance(part, ToolCall) and thoughts.get(part.id)), "")
    parts: list[Part] = [*thoughts.get(first, ())]
    for part in message.parts:
        match part:
            case ToolCall(id=call_id) if call_id in calls:
                parts.append(replace(part, id=calls[call_id].id))
            case ToolResult(call_id=call_id) if call_id in calls:
                parts.append(replace(part, call_id=calls[call_id].id))
            case Reasoning() if first:
                pass  # the log has it whole
            case _:
                parts.append(part)
    return Message(message.role, tuple(parts))
