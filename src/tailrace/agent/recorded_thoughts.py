"""What the agent thought before it called a tool of the client's, for a client that returns the call alone.

Some chat providers refuse a conversation whose calls come without the reasoning before them (K131). A client is shown
the agent's reasoning only where it asks for it, and many drop it. The turn that made the call is on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeGuard

import msgspec

from tailrace.agent.session import TURN_KIND
from tailrace.events import Entry, MessageRecorded
from tailrace.messages import Message, Part, Reasoning, ToolCall
from tailrace.ports import ENDED, Journal

SEARCHED_TURNS = 200  # the newest ones: a conversation has its calls in these
_PAGE = 25

_CallKey: TypeAlias = tuple[str, str, str]  # an id alone is not enough: some providers count from 0 in every answer


async def with_recorded_thoughts(
    journal: Journal, messages: Sequence[Message], *, requester: str
) -> tuple[Message, ...]:
    """The client's account of the conversation, with a chat provider's recorded reasoning before each call that has
    none. Only turns of the same requester are looked at, newest first, until every call is found."""
    missing = {key for message in messages if not _has_thoughts(message) for key in _calls_of(message)}
    thoughts: dict[_CallKey, tuple[Reasoning, ...]] = {}
    cursor, searched = None, 0
    while missing and searched < SEARCHED_TURNS:
        runs = await journal.runs(kind=TURN_KIND, states=ENDED, before=cursor, limit=_PAGE)
        own = [run.id for run in runs if run.new.input.get("requester", "") == requester]
        for message in _answers(await journal.facts_of_runs(own)):
            for key in missing.intersection(_calls_of(message)):
                thoughts[key] = tuple(filter(_is_chat_reasoning, message.parts))
        missing.difference_update(thoughts)
        if len(runs) < _PAGE:
            break
        cursor, searched = runs[-1].id, searched + len(runs)
    return tuple(_with_thoughts(message, thoughts) for message in messages)


def _answers(logs: Iterable[list[Entry]]) -> Iterable[Message]:
    return (
        entry.event.message
        for facts in logs
        for entry in facts
        if isinstance(entry.event, MessageRecorded) and entry.event.message.role == "assistant"
    )


def _with_thoughts(message: Message, thoughts: dict[_CallKey, tuple[Reasoning, ...]]) -> Message:
    if _has_thoughts(message):
        return message
    found = next((thoughts[key] for key in _calls_of(message) if key in thoughts), ())
    return msgspec.structs.replace(message, parts=(*found, *message.parts)) if found else message


def _is_chat_reasoning(part: Part) -> TypeGuard[Reasoning]:
    return isinstance(part, Reasoning) and part.dialect == "chat"


def _has_thoughts(message: Message) -> bool:
    return any(isinstance(part, Reasoning) and part.native is not None for part in message.parts)


def _calls_of(message: Message) -> list[_CallKey]:
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    return [(call.id, call.name, _same_text(call)) for call in calls]


def _same_text(call: ToolCall) -> str:
    """Arguments that clients may have written anew: the keys in another order, other blanks."""
    parsed = call.parsed()
    return call.arguments if parsed is None else msgspec.json.encode(parsed, order="sorted").decode()
