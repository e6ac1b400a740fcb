"""From a client's request to its target: a raw model to call, or a turn of the agent.

Owns the choice of the target, and the rule that every parameter is honoured or refused. Knows no dialect: requests
come parsed.
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
from tailrace.ports import Answer, Provider
from tailrace.providers.attempt import Route
from tailrace.server.http.api_errors import ApiError
from tailrace.server.v1.models import AGENT
from tailrace.wire.client_request import ClientRequest, InvalidRequest, extra_for, first_unsupported_param

# How chat front ends begin the requests that they make by themselves: titles, tags, follow-up questions.
_TASK_HEADING: Final = "### Task:"
_TASK_MATERIAL: Final = "<chat_history>"


def is_agent(client_request: ClientRequest) -> bool:
    return client_request.model == AGENT


def bad_request(exc: InvalidRequest) -> ApiError:
    return ApiError(400, str(exc), code="invalid_request", param=exc.param)


def with_history(history: tuple[Message, ...], request: ModelRequest) -> ModelRequest:
    """The request, preceded by the earlier messages."""
    return msgspec.structs.replace(request, messages=(*history, *request.messages)) if history else request


# ── raw models ───────────────────────────────────────────────────────────────────────────────────────────────


class _VerbatimProvider:
    """A provider that gets the client's own fields unchanged where it speaks the client's dialect."""

    def __init__(self, provider: Provider, client_request: ClientRequest) -> None:
        self.name = provider.name
        self.dialect: Dialect = provider.dialect
        self._provider = provider
        self._client_request = client_request

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[Answer]:
        return self._provider.stream(self._with_client_fields(request))

    async def complete(self, request: ModelRequest) -> Completion:
        return await self._provider.complete(self._with_client_fields(request))

    def _with_client_fields(self, request: ModelRequest) -> ModelRequest:
        extra = extra_for(self._client_request, self.dialect, conversation=self._verbatim(request))
        return msgspec.structs.replace(request, extra=extra)

    def _verbatim(self, request: ModelRequest) -> bool:
        """Whether the client's messages can be sent as they are: false with a stored history before them, and with the
        beginning of an answer that was cut."""
        return not request.prefill and len(request.messages) == len(self._client_request.request.messages)


def raw_choice(app: App, name: str) -> ModelChoice:
    """The model of this name; the configured model keeps its fallbacks. Raises `ConfigError`."""
    choice = named(app.config, name)
    configured = app.config.model
    same = (choice.provider, choice.name) == (configured.provider, configured.name)
    return configured if same else choice


def raw_routes(app: App, client_request: ClientRequest) -> tuple[Route, ...]:
    """The model and its fallbacks, without fallbacks that do not support every parameter. Raises `ApiError` 400 for a
    parameter that the model's API does not have, `ConfigError` for an unknown model."""
    first, *others = app.models.routes(raw_choice(app, client_request.model))
    if (param := first_unsupported_param(client_request, first.provider.dialect)) is not None:
        message = f"{client_request.model}'s API ({first.provider.dialect}) has no `{param}`; remove it"
        raise ApiError(400, message, code="unsupported_parameter", param=param)
    able = [route for route in others if first_unsupported_param(client_request, route.provider.dialect) is None]
    return tuple(
        msgspec.structs.replace(route, provider=_VerbatimProvider(route.provider, client_request))
        for route in (first, *able)
    )


# ── the agent ────────────────────────────────────────────────────────────────────────────────────────────────


def turn_spec(
    app: App,
    client_request: ClientRequest,
    *,
    requester: str,
    history: tuple[Message, ...] = (),
    origin: JsonObject | None = None,
) -> TurnSpec:
    """The turn that answers this request. The client's tools are offered beside ours; the client runs them. Raises
    `ApiError` 400 for a parameter that the agent does not support, `ConfigError` where no model is configured."""
    request = client_request.request
    _refuse_unsupported(app, client_request)
    *before, last = (*history, *request.messages)
    if last.role == "assistant":
        raise ApiError(400, "the last message must have the role user or tool", param="messages")
    frontend_task = _is_frontend_task(request)
    return TurnSpec(
        message=last,
        request=msgspec.structs.replace(request, model="", messages=(), tools=()),
        history=tuple(before),
        foreign=request.tools,
        requester=requester,
        tools=() if frontend_task else None,
        max_turns=1 if frontend_task else None,
        origin=origin or {},
    )


def agent_dialect(app: App) -> Dialect:
    """The dialect of the model behind the agent: it defines how tokens are counted."""
    return app.models.routes(app.config.model)[0].provider.dialect


def _refuse_unsupported(app: App, client_request: ClientRequest) -> None:
    request = client_request.request
    if not request.messages:
        raise ApiError(400, "messages is empty", param="messages")
    param = next(iter(client_request.beyond), None) or client_request.opaque or None
    if param is None and request.prefill:
        param = "prefill"
    match request.tool_choice:
        case "required":
            param = param or "tool_choice"  # the agent would never stop calling tools
        case NamedTool(name=name) if name not in {tool.name for tool in request.tools}:
            param = param or "tool_choice"
        case _:
            pass
    for route in app.models.routes(app.config.model):
        param = param or first_unsupported_param(
            msgspec.structs.replace(client_request, beyond=(), opaque=""), route.provider.dialect
        )
    if param is not None:
        raise ApiError(
            400, f"the agent does not support `{param}`; remove it", code="unsupported_parameter", param=param
        )


def _is_frontend_task(request: ModelRequest) -> bool:
    """A front end's own request about a conversation: one call without tools."""
    if len(request.messages) != 1 or request.tools:
        return False
    text = request.messages[0].text
    return text.lstrip().startswith(_TASK_HEADING) and _TASK_MATERIAL in text
