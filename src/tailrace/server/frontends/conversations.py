"""A front end's conversation, whatever its protocol: whose it is, how turns begin, how approvals are answered.

Knows no protocol: integrations read the requests and encode the answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from tailrace.agent.session import TURN_KIND
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App
from tailrace.app.models import AGENT
from tailrace.errors import RunSealed
from tailrace.events import ApprovalAnswered, ApprovalAsked, Decision, Entry
from tailrace.ports import Run
from tailrace.server.frontends.client_thread import began_by, requester
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.session_access import check_session
from tailrace.server.v1.model_target import require_model


class Approval(msgspec.Struct, frozen=True):
    """One question of a run. `seq` is the entry that asks it; `is_open`: the log has no answer to it."""

    id: str
    seq: int
    is_open: bool


def approvals_in(facts: Iterable[Entry]) -> dict[str, Approval]:
    """By id, in the order in which the run asked."""
    found: dict[str, Approval] = {}
    for entry in facts:
        match entry.event:
            case ApprovalAsked(approval_id=approval_id):
                found[approval_id] = Approval(approval_id, entry.seq, is_open=True)
            case ApprovalAnswered(approval_id=approval_id) if approval_id in found:
                found[approval_id] = msgspec.structs.replace(found[approval_id], is_open=False)
            case _:
                pass
    return found


def require_steering(app: App, run: Run, caller: Identity) -> None:
    """Raises `ApiError` 403 for a model, a platform's chat, or the turn of another requester, which is not the caller's
    to speak to: what that turn may do was allowed to its requester (J110)."""
    check_session(run.new.session, caller, "session")
    if run.new.kind == TURN_KIND:
        require_model(app, run.new.model or AGENT, caller)
        if not caller.may_answer(requester(run)):
            message = (
                "another requester started this run: only that key, or one with the scope 'approvals', may steer it"
            )
            raise ApiError(403, message, code="not_the_requester")


class Conversations:
    """The conversations of one front end's routes."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._app = pipeline.app

    async def newest_turn(self, session: str, caller: Identity, param: str) -> Run | None:
        """Raises `ApiError` 400 for a name that no session can have, 403 for the conversation of another key or of a
        platform's chat. A conversation belongs to the key that began it, also after an admin has asked in it."""
        check_session(session, caller, param)
        for run in await self._app.journal.runs(session=session, kind=TURN_KIND, limit=1):
            if not caller.owns(requester(run)) and await began_by(self._app.journal, session) != caller.name:
                message = f"{param}: this conversation belongs to another key; use another id"
                raise ApiError(403, message, code="not_the_owner", param=param)
            return run
        return None

    async def submit(self, spec: TurnSpec, session: str, idempotency_key: str = "") -> Run:
        """Begins a turn, also where the client leaves meanwhile. With `busy: steer`, the turn that is under way and has
        been given the message."""
        if spec.busy == "steer":
            steering = self._app.steering.steer_session(
                session, spec.message, by=spec.requester, idempotency_key=idempotency_key, of_requester=spec.requester
            )
            if (steered := await self._pipeline.run_to_end(steering)) is not None:
                return steered[0]
        durability = self._app.config.store.durability
        work = self._app.agents.submit(spec, session=session, idempotency_key=idempotency_key, durability=durability)
        return await self._pipeline.run_to_end(work)

    async def approvals(self, run: Run, caller: Identity) -> dict[str, Approval]:
        """The questions that the caller may answer. Raises `ApiError` 403 for those of another requester (J110)."""
        caller.require_answer(requester(run))
        return approvals_in(await self._app.journal.facts(run.id))

    async def answer(self, run: Run, approval_id: str, decision: Decision, caller: Identity, reason: str) -> None:
        """A no-op for a run that has ended meanwhile: its log says how. `reason` counts for a denial alone."""
        given = reason if decision == "deny" else ""
        with suppress(RunSealed):
            await self._app.agents.answer(
                run.id,
                approval_id,
                decision,
                by=caller.name,
                reason=given,
                authorised=caller.may_answer(requester(run)),
            )
