"""`/v1/chat/completions`: the agent and every raw model, for clients of OpenAI's Chat Completions API."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import read_object
from tailrace.server.http.route import Route
from tailrace.server.v1.agent_answer import answer_turn
from tailrace.server.v1.api_formats import CHAT
from tailrace.server.v1.model_target import bad_request, is_agent
from tailrace.server.v1.raw_answer import answer_raw
from tailrace.wire.client_request import InvalidRequest

_REQUEST = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        "model": {"type": "string", "description": "`tailrace`, or `<provider>/<model>` for the raw model."},
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "stream": {"type": ["boolean", "null"]},
    },
    "additionalProperties": True,
    "description": "As OpenAI's API documents it. A raw model of the same dialect is sent every field.",
}
_ANSWER = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "chat.completion"},
        "created": {"type": "integer"},
        "model": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "object"}},
        "usage": {"type": ["object", "null"]},
    },
    "additionalProperties": True,
}


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    async def complete(request: web.Request) -> web.StreamResponse:
        """`stream` left out means one JSON body (H96)."""
        body = await read_object(request)
        try:
            client_request = CHAT.parse_request(body)
        except InvalidRequest as exc:
            raise bad_request(exc) from exc
        answer = answer_turn if is_agent(client_request) else answer_raw
        return await answer(pipeline, request, client_request, CHAT)

    return (
        Route(
            "POST",
            "/v1/chat/completions",
            complete,
            "models",
            "A chat completion, streamed or whole.",
            body=_REQUEST,
            answer=_ANSWER,
            streams=True,
            errors=(404, 408, 409, 413, 422, 429, 502, 504),
        ),
    )
