"""A thread for a front end that has none of its messages yet: what was said, and the turn that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tailrace.agent.turn_spec import TurnSpec
from tailrace.events import Entry, HistoryCompressed, MessageRecorded
from tailrace.integrations.ag_ui.encoder import AgUiEncoder
from tailrace.integrations.ag_ui.messages import shown_messages
from tailrace.integrations.ag_ui.view import ClientView, Stretch
from tailrace.messages import JsonObject, Message
from tailrace.ports import ENDED, Journal, Run
from tailrace.server.frontends.client_thread import branch_turns, foreign_names, message_id, question_ids
from tailrace.server.frontends.conversations import approvals_in

_ALL: Final = Stretch(answered=1 << 62)


class OpenedThread(msgspec.Struct, frozen=True):
    """`messages` are those of the turns that have ended, and the question of the `active` one. The approvals of that
    one up to the entry `answered` are settled. `state` is the front end's, as it sent it last."""

    messages: list[JsonObject]
    active: Run | None = None
    answered: int = 0
    state: Any = None


async def open_thread(journal: Journal, session: str) -> OpenedThread:
    """The turns that lead to the session's newest one. A turn that replaced the history with the client's own is the
    first."""
    turns = await branch_turns(journal, session)
    first = max((place for place, run in enumerate(turns) if run.new.input.get("replaces_history")), default=0)
    turns = turns[first:]
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
            encoder = AgUiEncoder(run.id, ClientView("", ""), stretch=_ALL, foreign=foreign_names(run))
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
    seq = 0
    for approval in approvals_in(facts).values():
        if approval.is_open:
            break
        seq = approval.seq
    return seq
