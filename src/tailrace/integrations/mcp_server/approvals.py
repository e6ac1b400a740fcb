"""Approvals of a run, asked of the person in front of the host: by elicitation, where the host offers it.

Protocol versions to 2025-11-25 let a server ask in the middle of a call; 2026-07-28 has the call return the questions
and come again with the answers. A host with neither gets the questions in the report, for `answer_approval`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from mcp.server.context import ServerRequestContext
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult, InputResponses

from tailrace.errors import TailraceError
from tailrace.events import ApprovalAsked, Decision
from tailrace.messages import JsonObject

REQUESTER: Final = "mcp"  # who answers the approvals of these runs: the person at the host
MAX_ROUNDS: Final = 8  # of questions in one call; hosts give up after ten
_DECISIONS: Final[Mapping[Decision, str]] = {
    "once": "Approve once",
    "session": "Approve for session",
    "always": "Always",
    "deny": "Deny",
}


class CannotAsk(TailraceError):
    """The host would not show the question."""


def has_elicitation(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the host shows forms to a person. One that names no mode means forms."""
    offered = context.session.client_capabilities
    elicitation = offered.elicitation if offered is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def question_text(asked: ApprovalAsked) -> str:
    """All that the decision is bound to: what will run, where, for whom, and why it is asked."""
    reason = f"\nReason: {asked.reason}" if asked.reason else ""
    scope = f"\n({asked.scope})" if asked.scope else ""
    return f"Tailrace's agent wants to run {asked.tool_name}:\n{asked.command}{reason}{scope}"


def form() -> JsonObject:
    """The shape that every protocol version with elicitation takes."""
    decision = {"type": "string", "title": "Decision", "enum": list(_DECISIONS), "enumNames": list(_DECISIONS.values())}
    return {"type": "object", "properties": {"decision": decision}, "required": ["decision"]}


def decision_of(answer: ElicitResult) -> Decision:
    """A form that was declined or closed, or says something else, is a no."""
    given = (answer.content or {}).get("decision") if answer.action == "accept" else None
    for decision in _DECISIONS:
        if decision == given:
            return decision
    return "deny"


async def asked_by_request(context: ServerRequestContext[Any, Any], asked: ApprovalAsked) -> Decision:
    """The person's decision. Raises `CannotAsk` where the host refuses the question."""
    from mcp import MCPError
    from pydantic import ValidationError

    try:
        answer = await context.session.elicit_form(question_text(asked), form(), context.request_id)
    except (MCPError, ValidationError) as exc:
        raise CannotAsk(f"the host did not ask the user: {exc}") from exc
    return decision_of(answer)


# ── by a second call ─────────────────────────────────────────────────────────────────────────────────────────


def questions(run_id: str, waiting: Mapping[str, ApprovalAsked], rounds: int) -> InputRequiredResult:
    requests = {
        approval_id: ElicitRequest(
            params=ElicitRequestFormParams(message=question_text(asked), requested_schema=form())
        )
        for approval_id, asked in waiting.items()
    }
    return InputRequiredResult(input_requests={**requests}, request_state=f"{run_id} {rounds + 1}")


def run_in(request_state: str) -> tuple[str, int]:
    """The run that a call goes on with, and how many rounds of questions it has had."""
    run_id, _, rounds = request_state.partition(" ")
    return run_id, int(rounds) if rounds.isdecimal() and len(rounds) < 10 else MAX_ROUNDS


def answers_in(responses: InputResponses | None) -> dict[str, Decision]:
    """The decisions by approval id."""
    found = (responses or {}).items()
    return {key: decision_of(answer) for key, answer in found if isinstance(answer, ElicitResult)}


assert set(_DECISIONS) == set(get_args(Decision))  # noqa: S101 - at import: one label for each
