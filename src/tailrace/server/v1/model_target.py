"""From a client's request to what is to be done: a raw model to call, or a turn for the agent.

Owns the decision who answers and that every parameter is honoured or refused. Speaks no dialect: requests come read.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from tailrace.agent.service import TurnSpec
from tailrace.app import App
from tailrace.app.models import named
from tailrace.config.sections import ModelChoice
from tailrace.messages import Completion, Dialect, JsonObject, Message, ModelRequest, NamedTool
from tailrace.ports import AnswerStream, Provider
from tailrace.providers.attempt import Route
from tailrace.server.http.api_errors import ApiError
from tailrace.server.v1.models import AGENT
from tailrace.wire.client_request import ClientRequest, InvalidRequest, extra_for, first_unsupported_param

# How chat front ends begin the requests that they make on their own account: titles, tags, follow-up questions.
_CHORE: Final = "### Task:"
_CHORE_MATERIAL: Final = "<chat_history>"


def is_agent(asked: ClientRequest) -> bool:
    return asked.model == AGENT


def refused(exc: InvalidRequest) -> ApiError:
    return ApiError(400, str(exc), code="invalid_request", param=exc.param)


def after(history: tuple[Message, ...], request: ModelRequest) -> ModelRequest:
    """The request, with what was said before it."""
    return msgspec.structs.replace(request, messages=(*history, *request.messages)) if history else request


# ── raw models ───────────────────────────────────────────────────────────────────────────────────────────────


class _VerbatimProvider:
    """A provider that is sent what the client wrote, where it speaks the client's dialect."""

    def __init__(self, provider: Provider, asked: ClientRequest) -> None:
        self.name = provider.name
        self.dialect: Dialect = provider.dialect
        self._provider = provider
        self._asked = asked

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AnswerStream]:
        return self._provider.stream(self._worded(request))

    async def complete(self, request: ModelRequest) -> Completion:
        return await self._provider.complete(self._worded(request))

    def _worded(self, request: ModelRequest) -> ModelRequest:
        extra = extra_for(self._asked, self.dialect, conversation=self._verbatim(request))
        return msgspec.structs.replace(request, extra=extra)

    def _verbatim(self, request: ModelRequest) -> bool:
        """The client's own words stand, unless there is more to say than it said: what came before its question, or
        the beginning of an answer that was cut."""
        return not request.prefill and len(request.messages) == len(self._asked.request.messages)


def raw_choice(app: App, name: str) -> ModelChoice:
    """The model of this name; the configured one brings its stand-ins along. Raises `ConfigError`."""
    choice = named(app.config, name)
    configured = app.config.model
    same = (choice.provider, choice.name) == (configured.provider, configured.name)
    return configured if same else choice


def raw_routes(app: App, asked: ClientRequest) -> tuple[Route, ...]:
    """Where the request can go. A stand-in that could not honour all of it is passed over. Raises `ApiError` 400 for
    what the model itself cannot be asked, `ConfigError` for a model that is not there."""
    first, *others = app.models.routes(raw_choice(app, asked.model))
    if (param := first_unsupported_param(asked, first.provider.dialect)) is not None:
        message = f"{param} cannot be said to {asked.model}, which speaks another dialect ({first.provider.dialect})"
        raise ApiError(400, message, code="unsupported_parameter", param=param)
    able = [route for route in others if first_unsupported_param(asked, route.provider.dialect) is None]
    return tuple(
        msgspec.structs.replace(route, provider=_VerbatimProvider(route.provider, asked)) for route in (first, *able)
    )


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
    param = next(iter(asked.beyond), None) or asked.opaque or None
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
            msgspec.structs.replace(asked, beyond=(), opaque=""), route.provider.dialect
        )
    if param is not None:
        raise ApiError(400, f"the agent cannot honour {param}", code="unsupported_parameter", param=param)


def _is_chore(request: ModelRequest) -> bool:
    """A front end's own request about a conversation: one plain call, nothing to be done with tools."""
    if len(request.messages) != 1 or request.tools:
        return False
    text = request.messages[0].text
    return text.lstrip().startswith(_CHORE) and _CHORE_MATERIAL in text
