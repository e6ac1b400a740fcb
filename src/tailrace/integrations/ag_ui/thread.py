"""A thread as a front end opens it that knows nothing of it yet: what was said, and the turn that goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec

from tailrace.agent.service import TurnSpec
from tailrace.agent.session import Branch
from tailrace.events import ApprovalAnswered, ApprovalAsked, Entry, HistoryCompressed, MessageRecorded
from tailrace.integrations.ag_ui.encoder import AgUiEncoder
from tailrace.integrations.ag_ui.messages import shown_messages
from tailrace.integrations.ag_ui.view import ClientView, Stretch
from tailrace.messages import JsonObject, Message
from tailrace.ports import ENDED, Journal, Run
from tailrace.server.frontends.client_thread import message_id, question_ids, session_turns

_ALL: Final = Stretch(answered=1 << 62)


class OpenedThread(msgspec.Struct, frozen=True):
    """`messages` are those of the turns that have ended, and the question of the `active` one. The approvals of that
    one up to the entry `answered` are settled. `state` is the front end's, as it sent it last."""

    messages: list[JsonObject]
    active: Run | None = None
    answered: int = 0
    state: Any = None


async def open_thread(journal: Journal, session: str) -> OpenedThread:
    """The turns that lead to the session's newest one: those that the user has replaced are left out."""
    turns = await _turns(journal, session)
    if not turns:
        return OpenedThread([])
    active = turns[-1] if turns[-1].state not in ENDED else None
    logs = await journal.facts_of_runs([run.id for run in turns])
    messages: list[JsonObject] = []
    call_ids: dict[str, str] = {}
    for run, facts in zip(turns, logs, strict=True):
        spec = msgspec.convert(run.new.input, TurnSpec)
        if run is turns[0] and (before := _before(facts) or spec.history):
            messages += shown_messages(before, [message_id(run.id, number, "h") for number in range(len(before))])
        messages += _with_call_ids(shown_messages([_question(spec, facts)], question_ids(run)), call_ids)
        if run is not active:
            foreign = [tool.name for tool in spec.foreign]
            encoder = AgUiEncoder(run.id, ClientView("", ""), stretch=_ALL, foreign=foreign)
            encoder.feed(facts)
            messages += encoder.messages
            call_ids |= encoder.call_ids
    newest = msgspec.convert(turns[-1].new.input, TurnSpec).client
    return OpenedThread(
        messages,
        active,
        _last_answered(logs[-1]) if active is not None else 0,
        newest.state if newest is not None else None,
    )


async def _turns(journal: Journal, session: str) -> list[Run]:
    """Oldest first. One that replaced the session's history with the client's own is the first."""
    found: deque[Run] = deque()
    branch = Branch()
    async with aclosing(session_turns(journal, session)) as turns:
        async for run in turns:
            if branch.takes(run):
                found.appendleft(run)
                if run.new.input.get("replaces_history") or branch.is_whole:
                    break
    return [*found]


def _before(facts: Sequence[Entry]) -> tuple[Message, ...]:
    """What the turn began with in place of the session's history: the client's own account, or a fork's inheritance."""
    for entry in facts:
        match entry.event:
            case HistoryCompressed(messages):
                return messages
            case MessageRecorded():
                break
            case _:
                pass
    return ()


def _question(spec: TurnSpec, facts: Sequence[Entry]) -> Message:
    recorded = (entry.event.message for entry in facts if isinstance(entry.event, MessageRecorded))
    first = next(recorded, None)
    return first if first is not None and first.role != "assistant" else spec.message


def _with_call_ids(messages: list[JsonObject], call_ids: dict[str, str]) -> list[JsonObject]:
    """Results under the ids by which the client knows their calls."""
    for message in messages:
        if message["role"] == "tool":
            message["toolCallId"] = call_ids.get(message["toolCallId"], message["toolCallId"])
    return messages


def _last_answered(facts: Sequence[Entry]) -> int:
    """The newest entry that asks for an approval which was given or denied, with all before it."""
    answered = {entry.event.approval_id for entry in facts if isinstance(entry.event, ApprovalAnswered)}
    seq = 0
    for entry in facts:
        if isinstance(entry.event, ApprovalAsked):
            if entry.event.approval_id not in answered:
                break
            seq = entry.seq
    return seq
