"""`/v1/messages`: the agent and every raw model, for clients of Anthropic's API."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import read_object
from tailrace.server.http.route import MESSAGE_LIST, OBJECTS, TEXT, Route, nullable, object_schema
from tailrace.server.v1.answer_route import answer_call, answer_route, request_schema
from tailrace.server.v1.api_formats import MESSAGES
from tailrace.server.v1.client_call import ClientCall

# Versions differ in what they refuse and in fields that we never send: our answers are valid in all of them. A version
# newer than this server must not lock its clients out.
_VERSION: Final = re.compile(r"20\d\d-\d\d-\d\d")
_VERSION_HEADER = {"anthropic-version": "A date, `2023-06-01` or `2026-10-21` for instance; may be left out."}
_REQUEST = request_schema("Anthropic", {"messages": MESSAGE_LIST, "max_tokens": {"type": "integer", "minimum": 1}})
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
    async def create(request: web.Request) -> web.StreamResponse:
        """A message, streamed or whole."""
        _check_version(request)
        client_request = MESSAGES.parse_request(await read_object(request))
        return await answer_call(ClientCall(pipeline, request, client_request, MESSAGES))

    async def count(_: web.Request) -> web.StreamResponse:
        """Not implemented: answers 501.

        Only the model's own provider knows how it counts, and the other dialects have no route for it."""
        raise ApiError(
            501, "counting tokens is not implemented; the usage of each answer has the count", code="not_implemented"
        )

    return (
        answer_route("/v1/messages", create, body=_REQUEST, answer=_ANSWER, headers=_VERSION_HEADER),
        Route("POST", "/v1/messages/count_tokens", count, "models", errors=(501,)),
    )


def _check_version(request: web.Request) -> None:
    version = request.headers.get("anthropic-version")
    if version is not None and not _VERSION.fullmatch(version):
        raise ApiError(400, f"anthropic-version is a date, not {version[:40]!r}", param="anthropic-version")
