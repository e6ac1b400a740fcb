"""`/v1/messages`: the agent and every raw model, for clients of Anthropic's API."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from aiohttp import web

from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, read_object
from tailrace.server.http.route import (
    MESSAGE_LIST,
    OBJECTS,
    TEXT,
    Answering,
    Route,
    json_response,
    nullable,
    object_schema,
)
from tailrace.server.v1.answer_route import answer_call, answer_route, request_schema
from tailrace.server.v1.client_call import ClientCall, read_client_request
from tailrace.server.v1.model_target import require_model
from tailrace.server.v1.token_count import count_input_tokens
from tailrace.wire.dialects import ANTHROPIC

_HEADERS = {
    "anthropic-version": "A date, `2023-06-01` or `2026-10-21` for instance; may be left out.",
    "anthropic-beta": "Features that a raw model of Anthropic's dialect is asked for, separated by commas.",
}
_REQUEST = request_schema("Anthropic", {"messages": MESSAGE_LIST, "max_tokens": {"type": "integer", "minimum": 0}})
_COUNTED = object_schema({"model": TEXT, "messages": MESSAGE_LIST}, additionalProperties=True)
_COUNT = object_schema({"input_tokens": {"type": "integer", "minimum": 0}})
_ANSWER = object_schema(
    {
        "id": TEXT,
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "model": TEXT,
        "content": OBJECTS,
        "stop_reason": nullable("string"),
        "usage": {"type": "object"},
    },
    additionalProperties=True,
)


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    async def create(request: web.Request) -> web.StreamResponse | Answering:
        """A message, streamed or whole."""
        client_request = read_client_request(request, ANTHROPIC, await read_object(request))
        return await answer_call(ClientCall(pipeline, request, client_request, ANTHROPIC))

    async def count(request: web.Request) -> web.StreamResponse:
        """How many tokens a message's input is.

        The provider's own count where its API has one, an estimate elsewhere."""
        body = await read_object(request)
        client_request = read_client_request(request, ANTHROPIC, {"max_tokens": 1, **body})
        written = {name: value for name, value in client_request.body.items() if name in body}  # without our limit
        client_request = msgspec.structs.replace(client_request, body=written)
        require_model(pipeline.app, client_request.model, request[IDENTITY])
        return json_response({"input_tokens": await count_input_tokens(pipeline.app, client_request)})

    return (
        answer_route("/v1/messages", create, body=_REQUEST, answer=_ANSWER, headers=_HEADERS),
        Route(
            "POST",
            "/v1/messages/count_tokens",
            count,
            "models",
            headers=_HEADERS,
            body=_COUNTED,
            answer=_COUNT,
            errors=(404, 408, 413, 422, 429, 502, 504),
        ),
    )
