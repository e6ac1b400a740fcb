"""`/v1/chat/completions`: the agent and every raw model, for clients of OpenAI's Chat Completions API."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import read_object
from tailrace.server.http.route import MESSAGE_LIST, OBJECTS, TEXT, Answering, Route, nullable, object_schema
from tailrace.server.v1.answer_route import answer_call, answer_route, request_schema
from tailrace.server.v1.client_call import ClientCall, read_client_request
from tailrace.wire.dialects import CHAT

_REQUEST = request_schema("OpenAI", {"messages": MESSAGE_LIST})
_ANSWER = object_schema(
    {
        "id": TEXT,
        "object": {"const": "chat.completion"},
        "created": {"type": "integer"},
        "model": TEXT,
        "choices": OBJECTS,
    },
    {"usage": nullable("object")},
    additionalProperties=True,
)


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    async def complete(request: web.Request) -> web.StreamResponse | Answering:
        """A chat completion, streamed or whole.

        `stream` left out means one JSON body (H96)."""
        client_request = read_client_request(request, CHAT, await read_object(request))
        return await answer_call(ClientCall(pipeline, request, client_request, CHAT))

    return (answer_route("/v1/chat/completions", complete, body=_REQUEST, answer=_ANSWER),)
