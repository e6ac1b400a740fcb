"""From a client's request to what is to be done: a raw model to call, or a turn for the agent.

Owns the decision who answers and that every parameter is honoured or refused. Speaks no dialect: requests come read.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tailrace.agent.service import TurnSpec
from tailrace.app import App
from tailrace.messages import Dialect, JsonObject, Message, ModelRequest, NamedTool
from tailrace.server.http.api_errors import ApiError
from tailrace.server.v1.models import AGENT
from tailrace.wire.client_request import ClientRequest, InvalidRequest, first_unsupported_param

# How chat front ends begin the requests that they make on their own account: titles, tags, follow-up questions.
_CHORE: Final = "### Task:"
_CHORE_MATERIAL: Final = "<chat_history>"


def is_agent(asked: ClientRequest) -> bool:
    return asked.model == AGENT


def refused(exc: InvalidRequest) -> ApiError:
    return ApiError(400, str(exc), code="invalid_request", param=exc.param)


# ── the agent ────────────────────────────────────────────────────────────────────────────────────────────────


def turn_spec(
    app: App,
    asked: ClientRequest,
    *,
    requester: str,
    history: tuple[Message, ...] = (),
    origin: JsonObject | None = None,
) -> TurnSpec:
    """The turn that answers this request: the client's tools are offered beside ours and are the client's to run.
    Raises `ApiError` 400 for what an agent cannot honour, `ConfigError` where no model is configured."""
    request = asked.request
    _refuse_what_no_turn_honours(app, asked)
    *before, last = (*history, *request.messages)
    if last.role == "assistant":
        raise ApiError(400, "the last message must be a question or a tool's result", param="messages")
    chore = _is_chore(request)
    return TurnSpec(
        message=last,
        request=msgspec.structs.replace(request, model="", messages=(), tools=()),
        history=tuple(before),
        foreign=request.tools,
        requester=requester,
        tools=() if chore else None,
        max_turns=1 if chore else None,
        origin=origin or {},
    )


def agent_dialect(app: App) -> Dialect:
    """The dialect of the model behind the agent: it says how tokens are counted."""
    return app.models.routes(app.config.model)[0].provider.dialect


def _refuse_what_no_turn_honours(app: App, asked: ClientRequest) -> None:
    request = asked.request
    if not request.messages:
        raise ApiError(400, "there is no message to answer", param="messages")
    param = next(iter(asked.dialect_only_fields), None) or asked.opaque_at or None
    if param is None and request.prefill:
        param = "prefill"
    match request.tool_choice:
        case "required":
            param = param or "tool_choice"  # the agent would have to go on calling tools for ever
        case NamedTool(name=name) if name not in {tool.name for tool in request.tools}:
            param = param or "tool_choice"
        case _:
            pass
    for route in app.models.routes(app.config.model):
        param = param or first_unsupported_param(
            msgspec.structs.replace(asked, dialect_only_fields=(), opaque_at=""), route.provider.dialect
        )
    if param is not None:
        raise ApiError(400, f"the agent cannot honour {param}", code="unsupported_parameter", param=param)


def _is_chore(request: ModelRequest) -> bool:
    """A front end's own request about a conversation: one plain call, nothing to be done with tools."""
    if len(request.messages) != 1 or request.tools:
        return False
    text = request.messages[0].text
    return text.lstrip().startswith(_CHORE) and _CHORE_MATERIAL in text
