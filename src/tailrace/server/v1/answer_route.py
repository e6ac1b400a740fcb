"""What the routes that answer with a model's message have in common: the choice of the answerer, the statuses."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from tailrace.app.models import AGENT
from tailrace.messages import JsonObject
from tailrace.server.http.request_body import IDENTITY
from tailrace.server.http.route import TEXT, Answering, Handler, Route, nullable, object_schema
from tailrace.server.v1.agent_answer import answer_turn
from tailrace.server.v1.client_call import ClientCall
from tailrace.server.v1.model_target import is_agent, require_model
from tailrace.server.v1.raw_answer import begin_raw
from tailrace.system.private_apis import request_values


def answer_call(call: ClientCall) -> Coroutine[Any, Any, web.StreamResponse | Answering]:
    """The agent's answer or the raw model's; raises what they raise, and `ApiError` 403 for a key that may not use the
    agent."""
    caller = request_values(call.request)[IDENTITY]
    if caller.models:
        require_model(call.pipeline.app, call.client_request.model, caller)
    if is_agent(call.pipeline.app, call.client_request):
        require_agent(call.request)
        return answer_turn(call)
    return begin_raw(call)


def require_agent(request: web.Request) -> None:
    """The agent runs tools on this machine: it needs the scope that `/runs` needs. Raises `ApiError` 403."""
    request[IDENTITY].require("runs", f"the model {AGENT!r}, which is the agent,")


def answer_route(
    path: str, handler: Handler, *, body: JsonObject, answer: JsonObject, headers: dict[str, str] | None = None
) -> Route:
    errors, headers = (404, 408, 409, 413, 422, 429, 502, 504), headers or {}
    return Route(
        "POST",
        path,
        handler,
        "models",
        headers=headers,
        body=body,
        answer=answer,
        streams=True,
        plain=True,
        errors=errors,
    )


def request_schema(vendor: str, required: JsonObject, **optional: JsonObject) -> JsonObject:
    """The body of a request: `model`, `stream` and these; any other field is the vendor's."""
    model = {**TEXT, "minLength": 1, "description": "`tailrace`, or `<provider>/<model>` for the raw model."}
    return object_schema(
        {"model": model, **required},
        {"stream": nullable("boolean"), **optional},
        additionalProperties=True,
        description=f"As {vendor}'s API documents it. A raw model of the same dialect is sent every field.",
    )
