"""`/v1/responses`: the agent and every raw model, for clients of OpenAI's Responses API.

A stored response is a run from its first event; any other is answered like a plain request. A background response goes
on when its client disconnects; every other one is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import msgspec
from aiohttp import web

from tailrace.agent.service import AgentService
from tailrace.agent.session import TURN_KIND
from tailrace.calls.raw_model import params_left_out
from tailrace.calls.service import CallService, CallSpec
from tailrace.messages import JsonObject, Message
from tailrace.ports import ENDED, Batch, Run
from tailrace.runs.recovery import ended, follow
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, query_of, read_object
from tailrace.server.http.route import OBJECTS, TEXT, Answering, Route, json_response, nullable, object_schema
from tailrace.server.http.session_access import check_session
from tailrace.server.v1.answer_route import answer_call, answer_route, request_schema, require_agent
from tailrace.server.v1.client_call import ClientCall, answer_id, forwarded_headers, set_ignored_header
from tailrace.server.v1.model_target import (
    agent_dialect,
    is_agent,
    provider_dialect,
    require_model,
    turn_spec,
    with_turns_own_calls,
)
from tailrace.server.v1.responses.responses_request import ResponsesRequest, refers_to_items
from tailrace.server.v1.responses.stored_response import (
    Origin,
    StoredResponse,
    history_after,
    history_in,
    input_items_of,
    response_body,
    response_run,
    with_referenced_items,
)
from tailrace.server.v1.token_count import count_input_tokens
from tailrace.wire.dialects import RESPONSES

_COUNT_ERRORS = (404, 408, 409, 413, 422, 429, 502, 504)
# The bodies for `/openapi.json`: the fields that we read and promise; the rest is OpenAI's.
_REQUEST_BODY: JsonObject = request_schema(
    "OpenAI",
    {},
    input={"oneOf": [{**TEXT, "minLength": 1}, {**OBJECTS, "minItems": 1}]},
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


class ItemsQuery(msgspec.Struct):
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str = ""


class Responses:
    """The handlers; each says which exceptions it leaves to the pipeline."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._app = pipeline.app
        self._journal = pipeline.app.journal

    async def create(self, request: web.Request) -> web.StreamResponse | Answering:
        """A response, streamed, whole or in the background.

        Raises `ApiError` 400 and 404, and the provider's own error where there is no answer."""
        asked = await self._read(request)
        if is_agent(self._app, asked.client_request):
            require_agent(request)
        require_model(self._app, asked.model, request[IDENTITY])
        history = await self._history(asked, request[IDENTITY])
        if not history and not asked.body["input"]:
            raise ApiError(400, "input is empty", param="input")
        if not asked.is_stored:
            call = ClientCall(
                self._pipeline, request, asked.client_request, RESPONSES, history, asked.echoed, asked.state
            )
            return await answer_call(call)
        run = await self._begin(request, asked, history)
        if asked.background and not asked.stream:
            return json_response(await response_body(self._journal, run))
        return await self._answer(request, run, stream=asked.stream, background=asked.background)

    async def compact(self, _request: web.Request) -> web.Response:
        """Not offered: always 404.

        What it gives is sealed for its provider alone, and an answer of ours may come from several."""
        raise ApiError(
            404,
            "/v1/responses/compact is not offered: send the conversation as it is, or go on with "
            "`previous_response_id`; the agent shortens its own context when it must",
            code="unsupported_route",
        )

    async def count(self, request: web.Request) -> web.Response:
        """How many tokens a response's input is, with what was said before it.

        The provider's own count where its API has one, an estimate elsewhere."""
        asked = await self._read(request)
        history = await self._history(asked, request[IDENTITY])
        require_model(self._app, asked.model, request[IDENTITY])
        counted = await count_input_tokens(self._app, asked.client_request, history)
        return json_response({"object": "response.input_tokens", "input_tokens": counted})

    async def _read(self, request: web.Request) -> ResponsesRequest:
        """The request, with the stored items that it refers to."""
        body = {"input": [], **await read_object(request)}
        if refers_to_items(body):
            knows = provider_dialect(self._app, body.get("model")) == RESPONSES.name
            items = await with_referenced_items(self._journal, body["input"], request[IDENTITY], provider_knows=knows)
            body = {**body, "input": items}
        asked = ResponsesRequest.of(body, forwarded_headers(request, RESPONSES))
        check_session(asked.session, request[IDENTITY], "conversation")
        return asked

    async def _history(self, asked: ResponsesRequest, caller: Identity) -> tuple[Message, ...]:
        if asked.previous_response_id:
            run = await response_run(self._journal, asked.previous_response_id, caller, param="previous_response_id")
            if run.state not in ENDED:
                raise ApiError(409, "the previous response has not ended", param="previous_response_id")
            return await history_after(self._journal, run)
        return await history_in(self._journal, asked.session, caller) if asked.session else ()

    async def _begin(self, request: web.Request, asked: ResponsesRequest, history: tuple[Message, ...]) -> Run:
        """The run, once it is recorded (shielded: a disconnect does not undo it)."""
        client_request, requester = asked.client_request, request[IDENTITY].name
        first = None if is_agent(self._app, client_request) else self._app.raw_routes(client_request)[0]
        origin = msgspec.to_builtins(
            Origin(
                model=asked.model,
                source=agent_dialect(self._app).name if first is None else first.provider.dialect,
                fields=asked.echoed,
                input=tuple(asked.items),
                background=asked.background,
                reasoning=client_request.reasoning or self._app.config.agent.show_reasoning,
                owner=requester,
                state=asked.state,
            )
        )
        durability = self._app.config.store.durability
        if first is None:
            client_request = await with_turns_own_calls(self._app, client_request, request[IDENTITY])
            spec = turn_spec(self._app, client_request, requester=requester, history=history, origin=origin)
            set_ignored_header(request, spec.ignored)
            spec = msgspec.structs.replace(spec, busy="queue")
            work = self._app.agents.submit(spec, session=asked.session, durability=durability)
        else:
            ignored = params_left_out(first, client_request)
            set_ignored_header(request, ignored)
            call = CallSpec(asked.body, history, origin, client_request.headers, ignored)
            work = self._app.calls.submit(call, model=asked.model, session=asked.session, durability=durability)
        return await self._pipeline.run_to_end(work)

    async def _answer(self, request: web.Request, run: Run, *, stream: bool, background: bool) -> web.StreamResponse:
        """The response to the client that created it. A disconnect stops the run unless it is in the background."""
        if not background:
            self._service_of(run).pin(run.id)
        try:
            return await self._streamed(request, run, patient=not background) if stream else await self._whole(run)
        except asyncio.CancelledError:
            if not background:
                await self._pipeline.run_to_end(self._stop(run))
            raise

    async def _whole(self, run: Run) -> web.Response:
        response = StoredResponse(run)
        async for batch in follow(self._journal, run.id, run=run):
            response.events(batch)
        response.raise_failure()
        return json_response(response.body)

    async def _streamed(
        self, request: web.Request, run: Run, *, after: int = -1, patient: bool = False
    ) -> web.StreamResponse:
        """The events after `after`, to the end. A number that no event has had is 409, compacted events are 410 (H98).
        `patient`: nothing is sent before the first output, so that an error can still be a status (D52); the run ends
        with its client, which cannot come back for the rest."""
        response = StoredResponse(run, after=after)
        stream = self._pipeline.stream(request, run_id="" if patient else run.id)
        held: list[bytes] = []
        at_once = self._app.config.streaming.api_server is False

        def take(batch: Batch) -> bool:
            if held or not batch.stored or not stream.takes(len(batch.stored)):
                return False
            stream.send(response.events(batch))
            return True

        async for batch in follow(self._journal, run.id, take=None if at_once else take, run=run):
            held.append(response.events(batch))
            if (response.has_output or stream.begun or not patient) and any(held) and not at_once:
                await stream.send_pieces(b"".join(held))
                held.clear()
                await stream.caught_up()
        if response.ahead:
            raise ApiError(409, f"no event has the number {after}", code="cursor_ahead", param="starting_after")
        if (held or not response.has_ended) and not (patient and response.fails_in_stream(request)):
            response.raise_failure()
        return await stream.end(b"".join(held))

    async def _stop(self, run: Run, by: str = "") -> None:
        await self._service_of(run).stop(run.id, by=by)

    def _service_of(self, run: Run) -> AgentService | CallService:
        return self._app.agents if run.new.kind == TURN_KIND else self._app.calls

    # ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────

    async def show(self, request: web.Request) -> web.StreamResponse:
        """A stored response; as a stream, its events from any number on."""
        query = query_of(request, ResponseQuery)
        run = await response_run(self._journal, request.match_info["id"], request[IDENTITY])
        if not query.stream:
            if query.starting_after is not None:
                raise ApiError(400, "starting_after needs stream=true", param="starting_after")
            return json_response(await response_body(self._journal, run))
        after = -1 if query.starting_after is None else query.starting_after
        return await self._streamed(request, run, after=after)

    async def cancel(self, request: web.Request) -> web.Response:
        """Ends a background response.

        Answers with the response once it has ended; a no-op for an ended one."""
        run = await response_run(self._journal, request.match_info["id"], request[IDENTITY])
        if not StoredResponse(run).origin.background:
            raise ApiError(400, "only a background response can be cancelled", param="response_id")
        if run.state not in ENDED:
            await self._pipeline.run_to_end(self._stop(run, by=request[IDENTITY].name))
            await ended(self._journal, run.id)
        return json_response(await response_body(self._journal, await self._journal.get(run.id)))

    async def input_items(self, request: web.Request) -> web.Response:
        """The input of a stored response."""
        query = query_of(request, ItemsQuery)
        run = await response_run(self._journal, request.match_info["id"], request[IDENTITY])
        items = input_items_of(run)
        if query.order == "desc":
            items.reverse()
        ids = [item["id"] for item in items]
        if query.after and query.after not in ids:
            raise ApiError(400, "no such item", param="after")
        start = ids.index(query.after) + 1 if query.after else 0
        page = items[start : start + query.limit]
        return json_response(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": start + query.limit < len(items),
            }
        )

    async def delete(self, request: web.Request) -> web.Response:
        """Deletes a response that has ended.

        Raises `RunOwned` (409) for any other."""
        run = await response_run(self._journal, request.match_info["id"], request[IDENTITY])
        await self._journal.delete(run.id)
        return json_response({"id": answer_id(RESPONSES, run.id), "object": "response", "deleted": True})


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, route, path = Responses(pipeline), partial(Route, access="models"), "/v1/responses/{id}"
    return (
        answer_route("/v1/responses", api.create, body=_REQUEST, answer=_RESPONSE),
        route("POST", "/v1/responses/input_tokens", api.count, body=_REQUEST, answer=_COUNT, errors=_COUNT_ERRORS),
        route("POST", "/v1/responses/compact", api.compact, errors=(404,)),
        route("GET", path, api.show, query=ResponseQuery, answer=_RESPONSE, streams=True, errors=(404, 409, 410)),
        route("POST", f"{path}/cancel", api.cancel, answer=_RESPONSE, errors=(404,)),
        route("GET", f"{path}/input_items", api.input_items, query=ItemsQuery, answer=_INPUT_ITEMS, errors=(404,)),
        route("DELETE", path, api.delete, answer=_DELETED, errors=(404, 409)),
    )
