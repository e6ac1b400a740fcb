"""The turns of a chat of the AI SDK: which one a request begins, and which ones a message is made of.

The chat's id is the session, and the session in the journal is the truth: what pages repeat is not added again. A turn
keeps the ids that its page gave it, so that a question that is edited and an answer that is regenerated are found.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from tailrace.agent.session import TURN_KIND
from tailrace.errors import RunNotFound
from tailrace.integrations.ai_sdk.encoder import ApprovalStyle
from tailrace.integrations.ai_sdk.request import Trigger
from tailrace.messages import JsonObject, Message, Value
from tailrace.ports import ENDED, Journal, Run
from tailrace.server.frontends.client_thread import began_by, requester, session_turns
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity
from tailrace.server.http.session_access import check_session

_KEY: Final = "ui_chat"
_PREFIX: Final = "run_"


class UiTurn(Value):
    """What a turn keeps of the request that began it."""

    question_id: str = ""  # the page's own id of the question
    digest: str = ""  # of the question
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


def is_sent_again(newest: Run, kept: UiTurn, trigger: Trigger, replaced: Run | None) -> bool:
    """Whether the page has sent one question twice. One that is edited may be asked in the same words once more, when
    it was answered."""
    turn = ui_turn_of(newest)
    same = bool(turn.question_id) and (turn.question_id, turn.digest) == (kept.question_id, kept.digest)
    return same and trigger == "submit-message" and (replaced is None or newest.state not in ENDED)


def asked_in(run: Run) -> Message:
    """The question of this turn."""
    return msgspec.convert(run.new.input["message"], Message)


def answer_id(run: Run) -> str:
    """The id of the message that this turn writes, or goes on with."""
    return ui_turn_of(run).answer_id or f"msg_{run.id.removeprefix(_PREFIX)}"


def foreign_names(run: Run) -> list[str]:
    return [tool["name"] for tool in run.new.input.get("foreign", ())]


def digest_of(question: Message) -> str:
    return hashlib.sha256(msgspec.json.encode(question)).hexdigest()[:32]


# ── a chat ───────────────────────────────────────────────────────────────────────────────────────────────────


async def newest_turn(journal: Journal, chat_id: str, caller: Identity) -> Run | None:
    """The chat's newest turn. Raises `ApiError` 403 for a chat that another key has begun, or a platform's user."""
    check_session(chat_id, caller, "id")
    for run in await journal.runs(session=chat_id, kind=TURN_KIND, limit=1):
        if not caller.owns(requester(run)) and await began_by(journal, chat_id) != caller.name:
            raise ApiError(403, "this chat belongs to another key; use another id", code="not_your_chat", param="id")
        return run
    return None


async def message_runs(journal: Journal, run: Run) -> list[Run]:
    """The turns that the message of this one is made of, oldest first. This one is the last."""
    runs = [run]
    while continues := ui_turn_of(runs[0]).continues:
        try:
            runs.insert(0, await journal.get(continues))
        except RunNotFound:  # no longer kept
            break
    return runs


async def replaced_turn(journal: Journal, chat_id: str, *, question_id: str, message_id: str) -> Run | None:
    """The turn that a page asks anew: the newest with this question, or that wrote this message. None: it is not
    known."""
    async for run in session_turns(journal, chat_id):
        if (question_id and ui_turn_of(run).question_id == question_id) or (
            message_id and answer_id(run) == message_id
        ):
            return (await message_runs(journal, run))[0]
    return None


async def turn_before(journal: Journal, run: Run) -> str:
    """The turn that this one follows in its chat; empty: it is the first."""
    previous_run = run.new.input.get("previous_run")
    if isinstance(previous_run, str):
        return previous_run
    before = await journal.runs(session=run.new.session, kind=TURN_KIND, before=run.id, limit=1)
    return before[0].id if before else ""
