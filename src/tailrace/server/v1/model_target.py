"""From a client's request to its target: a raw model to call, or a turn of the agent.

Owns the choice of the target, and the rule that every parameter is honoured, left out by name or refused. Knows no
dialect: requests come parsed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App
from tailrace.app.models import AGENT, named, unaliased
from tailrace.app.timeline.question import asked_of_model
from tailrace.messages import Dialect, JsonObject, Message, ModelRequest, NamedTool, Text
from tailrace.ports import FieldRefuser
from tailrace.providers.attempt import Route
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity
from tailrace.server.v1.client_tool_calls import with_recorded_calls
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.dialect import WireDialect
from tailrace.wire.dialects import DIALECTS

# How front ends begin the requests that they make by themselves: titles, tags, follow-up questions.
_TASK_HEADING: Final = "### Task:"
_TASK_MATERIAL: Final = "<chat_history>"
_TITLE_PROMPT: Final = re.compile(  # at the beginning, or after one line that says who the client is
    r"\s*(?:[^\n]{0,200}\n\n)?(you are an? \w* ?title generator|generate (a|an|the)\b[^.\n]{0,60}\btitle\b)",
    re.IGNORECASE,
)


def is_agent(app: App, client_request: ClientRequest) -> bool:
    """Whether the agent answers: it is asked for by its name, or by a name that `server.aliases` gives it."""
    model = client_request.request.model
    return AGENT in (model, unaliased(app.config, model))


def require_model(app: App, model: str, caller: Identity) -> None:
    """Raises `ApiError` 403 for a model that is not the caller's to use, by whichever name it is asked for."""
    if not caller.models:
        return
    if AGENT in (model, unaliased(app.config, model)):
        caller.require_model(AGENT, model)
    else:
        choice = named(app.config, model)
        caller.require_model(f"{choice.provider}/{choice.name}", model)


def turn_model(app: App, model: str, caller: Identity) -> str:
    """The model that a turn is asked to use, as `TurnSpec` has it: empty where the configured one is meant. Raises
    `ConfigError` for one that is not there, `ApiError` 403 for one that is not the caller's to use."""
    require_model(app, model or AGENT, caller)
    chosen = "" if AGENT in (model, unaliased(app.config, model)) else model
    app.models.routes(named(app.config, chosen))
    return chosen


def provider_dialect(app: App, model: object) -> Dialect | None:
    """The dialect of the provider that a client's request to this raw model reaches; None where the agent answers.
    Raises `ConfigError` for a model that is not there."""
    if not isinstance(model, str) or AGENT in (model, unaliased(app.config, model)):
        return None
    return app.models.routes(named(app.config, model))[0].provider.dialect


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
    `ApiError` 400 for a parameter that the agent does not support, and where nothing is asked, `ConfigError` where no
    model is configured."""
    request, routes = client_request.request, app.models.routes(app.config.model)
    dialect = DIALECTS[routes[0].provider.dialect]
    ignored = (*dialect.ignored_params(client_request, verbatim=False), *_refused(routes[0], client_request))
    _refuse_unsupported(routes, client_request, ignored if app.config.server.strict else ())
    asked_in, prefill = _without_prefill(request.messages)
    *before, last = (*history, *asked_in)
    if last.role == "assistant":
        param = client_request.word("messages")
        raise ApiError(400, "the last message must have the role user or tool", param=param)
    if last.role == "user" and last.is_blank:
        raise ApiError(400, "nothing was asked: the last message is empty", param=client_request.word("messages"))
    frontend_task = _is_frontend_task(request)
    asked = asked_of_model(client_request.body)
    own_tools = not frontend_task and request.tool_choice != "required"  # the client's tools end the turn, ours do not
    return TurnSpec(
        message=last,
        request=msgspec.structs.replace(request, model="", messages=(), tools=(), web_search=None, prefill=prefill),
        history=tuple(before),
        foreign=request.tools,
        requester=requester,
        reachable=app.config.approvals.api == "wait",
        tools=None if own_tools else (),
        max_turns=1 if frontend_task else None,
        origin=origin or {},
        ignored=ignored,
        shown=asked if asked != last.text else "",
    )


def _without_prefill(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], str]:
    """The conversation, and the beginning of the answer where the client has written it: a last message of the
    assistant's that is nothing but text."""
    *before, last = messages
    is_prefill = last.role == "assistant" and all(isinstance(part, Text) for part in last.parts)
    return (tuple(before), last.text) if before and is_prefill else (messages, "")


async def with_turns_own_calls(app: App, client_request: ClientRequest, caller: Identity) -> ClientRequest:
    """The request to the agent, in which the calls that earlier turns made are as those turns recorded them."""
    request = client_request.request
    messages = await with_recorded_calls(
        app.journal, request.messages, lambda run: caller.owns(run.new.input.get("requester", ""))
    )
    if messages is request.messages:
        return client_request
    return msgspec.structs.replace(client_request, request=msgspec.structs.replace(request, messages=messages))


def agent_dialect(app: App) -> WireDialect:
    """The dialect of the model behind the agent: it defines how tokens are counted."""
    return DIALECTS[app.models.routes(app.config.model)[0].provider.dialect]


def _refused(route: Route, client_request: ClientRequest) -> tuple[str, ...]:
    """The client's parameters that the model behind the agent was found to refuse."""
    if not isinstance(route.provider, FieldRefuser):
        return ()
    fields = route.provider.left_out(msgspec.structs.replace(client_request.request, model=route.model))
    return tuple(map(client_request.word, fields))


def _refuse_unsupported(routes: Sequence[Route], client_request: ClientRequest, ignored: tuple[str, ...]) -> None:
    request = client_request.request
    if not request.messages:
        field = client_request.word("messages")
        raise ApiError(400, f"{field} is empty", param=field)
    param = next(iter((*client_request.dialect_only_fields, *ignored)), None) or client_request.opaque_at or None
    match request.tool_choice:
        case "required" if not request.tools:
            param = param or "tool_choice"  # the agent would never stop calling tools
        case NamedTool(name=name) if name not in {tool.name for tool in request.tools}:
            param = param or "tool_choice"
        case _:
            pass
    for route in routes:
        param = param or DIALECTS[route.provider.dialect].first_unsupported_param(
            msgspec.structs.replace(client_request, dialect_only_fields=(), opaque_at="")
        )
    if param is not None:
        raise ApiError(
            400, f"the agent does not support `{param}`; remove it", code="unsupported_parameter", param=param
        )


def _is_frontend_task(request: ModelRequest) -> bool:
    """A front end's own request about a conversation: one call without tools."""
    if request.tools:
        return False
    first = request.messages[0]
    if _TITLE_PROMPT.match(request.system or (first.text if first.role == "system" else "")):
        return True
    text = first.text
    return len(request.messages) == 1 and text.lstrip().startswith(_TASK_HEADING) and _TASK_MATERIAL in text
