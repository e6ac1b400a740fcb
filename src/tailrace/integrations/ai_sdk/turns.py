"""The turns of a chat of the AI SDK: which one a request begins, and which ones a message is made of.

The chat's id is the session, and the session in the journal is the truth: what pages repeat is not added again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tailrace.errors import RunNotFound
from tailrace.integrations.ai_sdk.encoder import ApprovalStyle
from tailrace.messages import JsonObject, Message, Value
from tailrace.ports import Journal, Run
from tailrace.server.frontends.client_thread import session_turns

_KEY: Final = "ui_chat"
_PREFIX: Final = "run_"


class UiTurn(Value):
    """What a turn keeps of the request that began it."""

    answer_id: str = ""  # of the message that it continues; empty: its own
    continues: str = ""  # the run whose calls of the page's tools it has results of
    reasoning: bool = True
    approvals: ApprovalStyle = "parts"

    def as_origin(self) -> JsonObject:
        return {_KEY: msgspec.to_builtins(self)}


def ui_turn_of(run: Run) -> UiTurn:
    """Of a turn that another surface began: as a page would have asked for it that says nothing."""
    kept = (run.new.input.get("origin") or {}).get(_KEY)
    return msgspec.convert(kept, UiTurn) if kept is not None else UiTurn()


def asked_in(run: Run) -> Message:
    """The question of this turn."""
    return msgspec.convert(run.new.input["message"], Message)


def answer_id(run: Run) -> str:
    """The id of the message that this turn writes, or goes on with."""
    return ui_turn_of(run).answer_id or f"msg_{run.id.removeprefix(_PREFIX)}"


async def message_runs(journal: Journal, run: Run) -> list[Run]:
    """The turns that the message of this one is made of, oldest first. This one is the last."""
    runs = [run]
    while continues := ui_turn_of(runs[0]).continues:
        try:
            runs.insert(0, await journal.get(continues))
        except RunNotFound:  # no longer kept
            break
    return runs


async def answering_turn(journal: Journal, newest: Run, message_id: str) -> Run:
    """The turn with the question that this message answers; that of the newest message where it is not known."""
    found = newest
    if message_id:
        async for run in session_turns(journal, newest.new.session):
            if answer_id(run) == message_id:
                found = run
                break
    return (await message_runs(journal, found))[0]
