"""`/v1/chat/completions`: the agent, and every raw model, to whoever speaks OpenAI's first dialect."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import read_object
from tailrace.server.http.route import Route
from tailrace.server.v1.agent_answer import answer_turn
from tailrace.server.v1.api_formats import CHAT
from tailrace.server.v1.model_target import is_agent, refused
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


def routes(frame: RequestPipeline) -> Sequence[Route]:
    async def complete(request: web.Request) -> web.StreamResponse:
        """`stream` left out means one JSON body (H96)."""
        body = await read_object(request)
        try:
            asked = CHAT.read(body)
        except InvalidRequest as exc:
            raise refused(exc) from exc
        answer = answer_turn if is_agent(asked) else answer_raw
        return await answer(frame, request, asked, CHAT)

    return (
        Route(
            method="POST",
            path="/v1/chat/completions",
            handler=complete,
            access="models",
            summary="A chat completion, streamed or whole.",
            body=_REQUEST,
            answer=_ANSWER,
            streams=True,
            errors=(404, 408, 409, 413, 422, 429, 502, 504),
        ),
    )
