"""`/v1/completions` and `/v1/embeddings`: passed on to a provider that has them, for editors and for search.

Owns what is ours of them: the model's name on the way in and out, and the error for a model that has no such route.
Nothing is translated and nothing is recorded: there is no run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final

import msgspec
from aiohttp import web

from tailrace.app.models import AGENT, named, unaliased
from tailrace.errors import Rejected
from tailrace.messages import JsonObject, ModelRequest
from tailrace.providers.call_listener import CallListener
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, read_object
from tailrace.server.http.route import OBJECTS, TEXT, Route, json_response, nullable, object_schema
from tailrace.server.v1.answer_route import request_schema
from tailrace.server.v1.client_call import forwarded_headers
from tailrace.server.v1.model_target import require_model
from tailrace.server.v1.relayed_call import Relay, RelayedCall
from tailrace.wire.client_request import InvalidRequest
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.peer_json import encode_object

_DONE: Final = b"data: [DONE]\n\n"
_ERRORS: Final = (404, 408, 413, 422, 429, 502, 504)
_COMPLETION: Final = object_schema(
    {"model": TEXT, "choices": OBJECTS}, {"usage": nullable("object")}, additionalProperties=True
)
_EMBEDDINGS: Final = object_schema(
    {"model": TEXT, "data": OBJECTS}, {"usage": nullable("object")}, additionalProperties=True
)


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    async def complete(request: web.Request) -> web.StreamResponse:
        """A completion of a text, by a provider that has this route.

        With `suffix` it is the text in between, where the model can do that."""
        return await _relayed(pipeline, request, "/completions", "completions")

    async def embed(request: web.Request) -> web.StreamResponse:
        """The embeddings of texts, by a provider that has this route."""
        return await _relayed(pipeline, request, "/embeddings", "embeddings")

    completion = request_schema("OpenAI", {}, prompt={"type": ["string", "array"]})
    embedding = request_schema("OpenAI", {"input": {"type": ["string", "array"]}})
    return (
        Route(
            "POST",
            "/v1/completions",
            complete,
            "models",
            body=completion,
            answer=_COMPLETION,
            streams=True,
            errors=_ERRORS,
        ),
        Route("POST", "/v1/embeddings", embed, "models", body=embedding, answer=_EMBEDDINGS, errors=_ERRORS),
    )


async def _relayed(pipeline: RequestPipeline, request: web.Request, path: str, noun: str) -> web.StreamResponse:
    """Raises `ApiError` 404 where the model has no such route, and the provider's own error."""
    body = await read_object(request)
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise InvalidRequest("expected the name of a model", "model")
    if AGENT in (name, unaliased(pipeline.app.config, name)):
        raise _no_route(f"the agent has no {noun}; name a model as <provider>/<model>")
    require_model(pipeline.app, name, request[IDENTITY])
    route = pipeline.app.models.routes(named(pipeline.app.config, name))[0]
    provider = route.provider
    dialect = DIALECTS[provider.dialect]
    if not dialect.has_openai_routes or not isinstance(provider, Relay):
        raise _no_route(f"{provider.name} has no {noun}: its API ({provider.dialect}) has no such route")
    stream = pipeline.stream(request) if body.get("stream") and path == "/completions" else None

    def send(events: list[JsonObject]) -> None:
        if stream is not None:
            stream.send(b"".join(b"data: %b\n\n" % encode_object({**event, "model": name}) for event in events))

    headers = forwarded_headers(request, dialect)
    caller, asked = pipeline.app.caller, ModelRequest(route.model, ())
    call = RelayedCall(
        route, provider, {**body, "model": route.model}, caller.watched(asked, (route,), CallListener()), send
    )
    try:
        async with caller.entrance(asked, (route,)) or nullcontext():
            fields = await call.run(path, headers)
    except Rejected as exc:
        if exc.status != 404:
            raise
        message = f"{provider.name} answers 404: {exc}"  # this server has the route
        raise ApiError(404, message, code=exc.code, asked=True) from exc
    if fields is not None:
        fields["model"] = msgspec.Raw(msgspec.json.encode(name))
    if stream is not None:  # it may come whole although a stream was asked for
        return await stream.end((b"data: %b\n\n" % msgspec.json.encode(fields) if fields is not None else b"") + _DONE)
    if fields is None:
        raise ApiError(502, f"{provider.name} streamed an answer that was asked for whole")
    return json_response(fields)


def _no_route(message: str) -> ApiError:
    return ApiError(404, message, code="unsupported_route", param="model")
