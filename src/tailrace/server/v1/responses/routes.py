"""`/v1/responses`: the agent and every raw model, for clients of OpenAI's Responses API.

A stored response is a run from its first event; any other is answered like a plain request. A background response goes
on when its client disconnects; every other one is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec
from aiohttp import web

from tailrace.messages import JsonObject
from tailrace.ports import ENDED, Batch, Run
from tailrace.runs.recovery import ended, follow
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline, is_upgrade, upgrade_required
from tailrace.server.http.request_body import IDENTITY, query_of, read_object
from tailrace.server.http.route import OBJECTS, TEXT, Answering, Route, json_response, nullable, object_schema
from tailrace.server.v1.answer_route import answer_call, answer_route, request_schema
from tailrace.server.v1.client_call import ClientCall, answer_id
from tailrace.server.v1.model_target import require_model
from tailrace.server.v1.responses.begin_response import ResponseRuns
from tailrace.server.v1.responses.socket_connection import SocketConnection
from tailrace.server.v1.responses.stored_response import (
    ItemsQuery,
    StoredResponse,
    input_items_of,
    item_page,
    response_body,
    response_run,
)
from tailrace.server.v1.token_count import count_input_tokens
from tailrace.wire.dialects import RESPONSES

_COUNT_ERRORS = (404, 408, 409, 413, 422, 429, 502, 504)
# The bodies for `/openapi.json`: the fields that we read and promise; the rest is OpenAI's.
_REQUEST_BODY: JsonObject = request_schema(
    "OpenAI",
    {},
    input={
        "oneOf": [{**TEXT, "minLength": 1}, {**OBJECTS, "minItems": 1}],
        "description": "`tailrace` needs it; a raw model goes on from what came before without it.",
    },
    store=nullable("boolean"),
    background=nullable("boolean"),
    previous_response_id=nullable("string"),
    conversation={"oneOf": [TEXT, object_schema({"id": TEXT}), {"type": "null"}]},
)
_NEEDED = ("input", "previous_response_id", "conversation")  # one of them: there is something to answer
_REQUEST: JsonObject = {**_REQUEST_BODY, "anyOf": [{"required": [name]} for name in _NEEDED]}
_RESPONSE: JsonObject = object_schema(
    {
        "id": TEXT,
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": ["in_progress", "completed", "incomplete", "failed", "cancelled"]},
        "model": TEXT,
        "output": OBJECTS,
    },
    {"usage": nullable("object")},
    additionalProperties=True,
)
_INPUT_ITEMS: JsonObject = object_schema(
    {
        "object": {"const": "list"},
        "data": OBJECTS,
        "first_id": nullable("string"),
        "last_id": nullable("string"),
        "has_more": {"type": "boolean"},
    }
)
_COUNT: JsonObject = object_schema(
    {"object": {"const": "response.input_tokens"}, "input_tokens": {"type": "integer", "minimum": 0}}
)
_DELETED: JsonObject = object_schema({"id": TEXT, "object": {"const": "response"}, "deleted": {"const": True}})


class ResponseQuery(msgspec.Struct):
    """`starting_after`: the number of the last event that the client has."""

    stream: bool = False
    starting_after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    include_obfuscation: bool = False


class Responses:
    """The handlers."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._app = pipeline.app
        self._journal = pipeline.app.journal
        self._runs = ResponseRuns(pipeline)

    async def create(self, request: web.Request) -> web.StreamResponse | Answering:
        """A response, streamed, whole or in the background."""
        asked = await self._runs.parse(request, await read_object(request))
        history = await self._runs.history(request, asked)
        if not asked.is_stored:
            call = ClientCall(
                self._pipeline, request, asked.client_request, RESPONSES, history, asked.echoed, asked.state
            )
            return await answer_call(call)
        run = await self._runs.begin(request, asked, history)
        if asked.background and not asked.stream:
            return json_response(await response_body(self._journal, run))
        return await self._answer(request, run, stream=asked.stream, background=asked.background)

    async def count(self, request: web.Request) -> web.Response:
        """How many tokens a response's input is, with what was said before it.

        The provider's own count where its API has one, an estimate elsewhere."""
        asked = await self._runs.parse(request, await read_object(request))
        history = await self._runs.said_before(asked, request[IDENTITY])
        require_model(self._app, asked.model, request[IDENTITY])
        counted = await count_input_tokens(self._app, asked.client_request, history)
        return json_response({"object": "response.input_tokens", "input_tokens": counted})

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Responses over a web socket."""
        if not is_upgrade(request):
            raise upgrade_required("this route is a web socket; POST asks for a response", "websocket")
        return await SocketConnection(self._pipeline, self._runs, request).serve()

    async def _answer(self, request: web.Request, run: Run, *, stream: bool, background: bool) -> web.StreamResponse:
        """The response to the client that created it. A disconnect stops the run unless it is in the background."""
        if not background:
            self._runs.service_of(run).pin(run.id)
        try:
            await asyncio.sleep(0)  # its provider is asked before its viewer is made
            return await self._streamed(request, run, patient=not background) if stream else await self._whole(run)
        except asyncio.CancelledError:
            if not background:
                await self._pipeline.run_to_end(self._runs.stop(run))
            raise

    async def _whole(self, run: Run) -> web.Response:
        response = StoredResponse(run)
        async for batch in follow(self._journal, run.id, run=run):
            response.events(batch)
        response.raise_failure()
        return json_response(response.body)

    async def _streamed(
        self, request: web.Request, run: Run, *, after: int = -1, patient: bool = False, response_id: str = ""
    ) -> web.StreamResponse:
        """The events after `after`, to the end. A number that no event has had is 409, compacted events are 410 (H98).
        `patient`: nothing is sent before the first output, so that an error can still be a status (D52); the run ends
        with its client, which cannot come back for the rest."""
        response = StoredResponse(run, after=after, response_id=response_id)
        stream = self._pipeline.stream(request, run_id="" if patient else run.id)
        held: list[bytes] = []

        def take(batch: Batch) -> bool:
            if held or not batch.stored or not stream.takes(len(batch.stored)):
                return False
            stream.send(response.events(batch))
            return True

        async for batch in follow(self._journal, run.id, take=take, run=run):
            held.append(response.events(batch))
            if (response.has_output or stream.begun or not patient) and any(held):
                await stream.send_pieces(b"".join(held))
                held.clear()
                await stream.caught_up()
        if response.ahead:
            raise ApiError(409, f"no event has the number {after}", code="cursor_ahead", param="starting_after")
        if (held or not response.has_ended) and not (patient and response.fails_in_stream(request)):
            response.raise_failure()
        return await stream.end(b"".join(held))

    # ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────

    async def show(self, request: web.Request) -> web.StreamResponse:
        """A stored response; as a stream, its events from any number on."""
        query = query_of(request, ResponseQuery)
        run = await response_run(self._journal, request.match_info["id"], request[IDENTITY])
        if not query.stream:
            if query.starting_after is not None:
                raise ApiError(400, "starting_after needs stream=true", param="starting_after")
            return json_response(await response_body(self._journal, run, request.match_info["id"]))
        after = -1 if query.starting_after is None else query.starting_after
        return await self._streamed(request, run, after=after, response_id=request.match_info["id"])

    async def cancel(self, request: web.Request) -> web.Response:
        """Ends a background response.

        Answers with the response once it has ended; a no-op for an ended one."""
        run = await response_run(self._journal, request.match_info["id"], request[IDENTITY])
        if not StoredResponse(run).origin.background:
            raise ApiError(400, "only a background response can be cancelled", param="response_id")
        if run.state not in ENDED:
            await self._pipeline.run_to_end(self._runs.stop(run, by=request[IDENTITY].name))
            await ended(self._journal, run.id)
        return json_response(await response_body(self._journal, await self._journal.get(run.id)))

    async def input_items(self, request: web.Request) -> web.Response:
        """The input of a stored response."""
        query = query_of(request, ItemsQuery)
        run = await response_run(self._journal, request.match_info["id"], request[IDENTITY])
        return json_response(item_page(input_items_of(run), query))

    async def delete(self, request: web.Request) -> web.Response:
        """Deletes a response that has ended."""
        run = await response_run(self._journal, request.match_info["id"], request[IDENTITY])
        await self._journal.delete(run.id)
        return json_response({"id": answer_id(RESPONSES, run.id), "object": "response", "deleted": True})


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, route, path = Responses(pipeline), partial(Route, access="models"), "/v1/responses/{id}"
    return (
        answer_route("/v1/responses", api.create, body=_REQUEST, answer=_RESPONSE),
        route("GET", "/v1/responses", api.connect, status=101, socket=True, errors=(404, 426)),
        route("POST", "/v1/responses/input_tokens", api.count, body=_REQUEST, answer=_COUNT, errors=_COUNT_ERRORS),
        route("GET", path, api.show, query=ResponseQuery, answer=_RESPONSE, streams=True, errors=(404, 409, 410)),
        route("POST", f"{path}/cancel", api.cancel, answer=_RESPONSE, errors=(404,)),
        route("GET", f"{path}/input_items", api.input_items, query=ItemsQuery, answer=_INPUT_ITEMS, errors=(404,)),
        route("DELETE", path, api.delete, answer=_DELETED, errors=(404, 409)),
    )
