"""`/v1/messages`: the agent and every raw model, for clients of Anthropic's API."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import read_object
from tailrace.server.http.route import Route
from tailrace.server.v1.agent_answer import answer_turn
from tailrace.server.v1.api_formats import MESSAGES
from tailrace.server.v1.model_target import bad_request, is_agent
from tailrace.server.v1.raw_answer import answer_raw
from tailrace.wire.client_request import InvalidRequest

# Versions differ in what they refuse and in fields that we never send: our answers are valid in all of them. A version
# newer than this server must not lock its clients out.
_VERSION: Final = re.compile(r"20\d\d-\d\d-\d\d")
_VERSION_HEADER = {"anthropic-version": "A date, `2023-06-01` or `2026-10-21` for instance; may be left out."}
_REQUEST = {
    "type": "object",
    "required": ["model", "messages", "max_tokens"],
    "properties": {
        "model": {"type": "string", "description": "`tailrace`, or `<provider>/<model>` for the raw model."},
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "max_tokens": {"type": "integer", "minimum": 1},
        "stream": {"type": ["boolean", "null"]},
    },
    "additionalProperties": True,
    "description": "As Anthropic's API documents it. A raw model of the same dialect is sent every field.",
}
_ANSWER = {
    "type": "object",
    "required": ["id", "type", "role", "model", "content", "stop_reason", "usage"],
    "properties": {
        "id": {"type": "string"},
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "model": {"type": "string"},
        "content": {"type": "array", "items": {"type": "object"}},
        "stop_reason": {"type": ["string", "null"]},
        "usage": {"type": "object"},
    },
    "additionalProperties": True,
}


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    async def create(request: web.Request) -> web.StreamResponse:
        _check_version(request)
        body = await read_object(request)
        try:
            client_request = MESSAGES.parse_request(body)
        except InvalidRequest as exc:
            raise bad_request(exc) from exc
        answer = answer_turn if is_agent(client_request) else answer_raw
        return await answer(pipeline, request, client_request, MESSAGES)

    async def count(_: web.Request) -> web.StreamResponse:
        """Only the model's own provider knows how it counts, and the other dialects have no route for it."""
        raise ApiError(
            501, "counting tokens is not implemented; the usage of each answer has the count", code="not_implemented"
        )

    return (
        Route(
            "POST",
            "/v1/messages",
            create,
            "models",
            "A message, streamed or whole.",
            headers=_VERSION_HEADER,
            body=_REQUEST,
            answer=_ANSWER,
            streams=True,
            errors=(404, 408, 409, 413, 422, 429, 502, 504),
        ),
        Route("POST", "/v1/messages/count_tokens", count, "models", "Not implemented: answers 501.", errors=(501,)),
    )


def _check_version(request: web.Request) -> None:
    version = request.headers.get("anthropic-version")
    if version is not None and not _VERSION.fullmatch(version):
        raise ApiError(400, f"anthropic-version is a date, not {version[:40]!r}", param="anthropic-version")
