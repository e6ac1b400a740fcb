"""`/v1/responses`: the agent, and every raw model, to whoever speaks OpenAI's second dialect.

A stored response is a run from its first event; one that is not is answered like any plain request. Whoever asked for
a response in the background may leave; anybody else who leaves ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from tailrace.agent.session import KIND as TURN
from tailrace.calls.service import CallSpec
from tailrace.messages import JsonObject, Message
from tailrace.ports import ENDED, Run
from tailrace.runs.recovery import ended
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import identity_of, query_of, read_object
from tailrace.server.http.route import Route, json_response
from tailrace.server.v1.agent_answer import answer_turn
from tailrace.server.v1.api_formats import RESPONSES, answer_id
from tailrace.server.v1.model_target import agent_dialect, is_agent, refused, turn_spec
from tailrace.server.v1.raw_answer import answer_raw
from tailrace.server.v1.responses_schemas import DELETED, INPUT_ITEMS, REQUEST, RESPONSE
from tailrace.server.v1.stored_response import Origin, StoredResponse, body_of, history_after, history_in, response_run
from tailrace.wire.client_request import ClientRequest, InvalidRequest, converted
from tailrace.wire.responses.client_request import items_of

_REPEATED: JsonObject = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}


class _Conversation(msgspec.Struct):
    id: str


class _Keeping(msgspec.Struct):
    """The fields of a request that are about the response as a thing."""

    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | _Conversation | None = None
    metadata: dict[str, str] | None = None

    @property
    def session(self) -> str:
        given = self.conversation
        return given.id if isinstance(given, _Conversation) else given or ""


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
    """The handlers; each says which exceptions it leaves to the frame."""

    def __init__(self, frame: RequestPipeline) -> None:
        self._frame = frame
        self._app = frame.app
        self._journal = frame.app.journal

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Raises `ApiError` 400 and 404, and the provider's own error where there is no answer."""
        body = await read_object(request)
        try:
            asked, keeping = RESPONSES.read({"input": [], **body}), converted(body, _Keeping)
        except InvalidRequest as exc:
            raise refused(exc) from exc
        history = await self._history(keeping)
        if not history and not asked.body.get("input"):
            raise ApiError(400, "there is nothing to answer", param="input")
        fields = _repeated(body, keeping)
        if keeping.store is False:
            if keeping.background:
                raise ApiError(400, "a background response is a stored one", param="store")
            return await self._answer_unstored(request, asked, history, fields)
        run = await self._begin(asked, keeping, history, fields, requester=identity_of(request).name)
        if keeping.background and not asked.stream:
            return json_response(await body_of(self._journal, run))
        return await self._answer(request, run, stream=asked.stream, background=bool(keeping.background))

    async def _history(self, keeping: _Keeping) -> tuple[Message, ...]:
        if keeping.previous_response_id and keeping.session:
            raise ApiError(400, "a response follows either another or a conversation", param="previous_response_id")
        if keeping.previous_response_id:
            run = await response_run(self._journal, keeping.previous_response_id)
            if run.state not in ENDED:
                raise ApiError(409, "the previous response has not ended", param="previous_response_id")
            return await history_after(self._journal, run)
        return await history_in(self._journal, keeping.session) if keeping.session else ()

    async def _answer_unstored(
        self, request: web.Request, asked: ClientRequest, history: tuple[Message, ...], fields: JsonObject
    ) -> web.StreamResponse:
        if is_agent(asked):
            return await answer_turn(self._frame, request, asked, RESPONSES, history=history, fields=fields)
        return await answer_raw(self._frame, request, asked, RESPONSES, history=history, fields=fields)

    async def _begin(
        self,
        asked: ClientRequest,
        keeping: _Keeping,
        history: tuple[Message, ...],
        fields: JsonObject,
        *,
        requester: str,
    ) -> Run:
        """The run, once it is on record; a client that leaves meanwhile takes nothing back that it did not ask to."""
        agent = is_agent(asked)
        source = agent_dialect(self._app) if agent else self._app.raw_routes(asked)[0].provider.dialect
        shows = asked.reasoning or self._app.config.agent.show_reasoning
        given = items_of(asked.body.get("input", []))
        background = bool(keeping.background)
        origin = msgspec.to_builtins(Origin(asked.model, source, fields, tuple(given), background, shows))
        durability = self._app.config.store.durability
        if agent:
            spec = turn_spec(self._app, asked, requester=requester, history=history, origin=origin)
            work = self._app.agents.submit(
                msgspec.structs.replace(spec, busy="queue"), session=keeping.session, durability=durability
            )
        else:
            call = CallSpec({"input": [], **asked.body}, history, origin)
            work = self._app.calls.submit(call, model=asked.model, session=keeping.session, durability=durability)
        return await self._frame.run_to_end(work)

    async def _answer(self, request: web.Request, run: Run, *, stream: bool, background: bool) -> web.StreamResponse:
        """The response to whoever asked for it, who ends it by leaving unless it is in the background."""
        try:
            return await self._streamed(request, run, patient=not background) if stream else await self._whole(run)
        except asyncio.CancelledError:
            if not background:
                await self._frame.run_to_end(self._stop(run))
            raise

    async def _whole(self, run: Run) -> web.Response:
        response = StoredResponse(run)
        async for batch in self._journal.tail(run.id):
            response.events(batch)
        if (error := response.failure) is not None:
            raise error
        return json_response(response.body)

    async def _streamed(
        self, request: web.Request, run: Run, *, after: int = -1, patient: bool = False
    ) -> web.StreamResponse:
        """From the first event, or from the one after the client's last, to the end. A number that no event has had
        is 409, events that are no longer kept 410 (H98). `patient`: nothing is sent before there is something of an
        answer, so that an error can still be a status (D52)."""
        response = StoredResponse(run, after=after)
        stream = self._frame.stream(request)
        held: list[bytes] = []
        async for batch in self._journal.tail(run.id):
            held.append(response.events(batch))
            if (response.said or stream.begun or not patient) and any(held):
                stream.send(b"".join(held))
                held.clear()
                if stream.behind:
                    await stream.caught_up()
        if response.ahead:
            raise ApiError(409, f"no event has the number {after}", code="cursor_ahead", param="starting_after")
        if (error := response.failure) is not None and (held or error.code == "server_stopping"):
            raise error
        return await stream.end()

    async def _stop(self, run: Run, by: str = "") -> None:
        service = self._app.agents if run.new.kind == TURN else self._app.calls
        await service.stop(run.id, by=by)

    # ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────

    async def show(self, request: web.Request) -> web.StreamResponse:
        query = query_of(request, ResponseQuery)
        run = await response_run(self._journal, request.match_info["id"])
        if not query.stream:
            if query.starting_after is not None:
                raise ApiError(400, "only a stream starts anywhere", param="starting_after")
            return json_response(await body_of(self._journal, run))
        after = -1 if query.starting_after is None else query.starting_after
        return await self._streamed(request, run, after=after)

    async def cancel(self, request: web.Request) -> web.Response:
        """Answers with the response once it has ended; one that had ended stays as it was."""
        run = await response_run(self._journal, request.match_info["id"])
        if not StoredResponse(run).origin.background:
            raise ApiError(400, "only a background response can be cancelled", param="response_id")
        if run.state not in ENDED:
            await self._frame.run_to_end(self._stop(run, by=identity_of(request).name))
            await ended(self._journal, run.id)
        return json_response(await body_of(self._journal, await self._journal.get(run.id)))

    async def input_items(self, request: web.Request) -> web.Response:
        query = query_of(request, ItemsQuery)
        run = await response_run(self._journal, request.match_info["id"])
        items = _with_ids(run, StoredResponse(run).origin.input)
        if query.order == "desc":
            items.reverse()
        ids = [item["id"] for item in items]
        if query.after and query.after not in ids:
            raise ApiError(400, "there is no such item", param="after")
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
        """Raises `RunOwned`, 409, for one that has not ended."""
        run = await response_run(self._journal, request.match_info["id"])
        await self._journal.delete(run.id)
        return json_response({"id": answer_id(RESPONSES, run.id), "object": "response", "deleted": True})


def _repeated(body: JsonObject, keeping: _Keeping) -> JsonObject:
    """The request's fields that stand in the response again."""
    fields = {name: body[name] if body.get(name) is not None else default for name, default in _REPEATED.items()}
    if keeping.session:
        fields["conversation"] = {"id": keeping.session}
    for name in ("prompt_cache_key", "safety_identifier", "service_tier"):
        if body.get(name) is not None:
            fields[name] = body[name]
    return fields


def _with_ids(run: Run, items: Sequence[JsonObject]) -> list[JsonObject]:
    key = run.id.removeprefix("run_")
    found: list[JsonObject] = []
    for index, item in enumerate(items):
        whole: dict[str, Any] = {"type": "message", **item}
        whole["id"] = item["id"] if isinstance(item.get("id"), str) else f"in_{key}_{index}"
        if isinstance(whole.get("content"), str):
            kind = "output_text" if whole.get("role") == "assistant" else "input_text"
            whole["content"] = [{"type": kind, "text": whole["content"]}]
        found.append(whole)
    return found


def routes(frame: RequestPipeline) -> Sequence[Route]:
    responses = Responses(frame)
    return (
        Route(
            method="POST",
            path="/v1/responses",
            handler=responses.create,
            access="models",
            summary="A response, streamed, whole or in the background.",
            body=REQUEST,
            answer=RESPONSE,
            streams=True,
            errors=(404, 408, 409, 413, 422, 429, 502, 504),
        ),
        Route(
            method="GET",
            path="/v1/responses/{id}",
            handler=responses.show,
            access="models",
            summary="A stored response; as a stream, its events from any number on.",
            query=ResponseQuery,
            answer=RESPONSE,
            streams=True,
            errors=(404, 409, 410),
        ),
        Route(
            method="POST",
            path="/v1/responses/{id}/cancel",
            handler=responses.cancel,
            access="models",
            summary="Ends a background response.",
            answer=RESPONSE,
            errors=(404,),
        ),
        Route(
            method="GET",
            path="/v1/responses/{id}/input_items",
            handler=responses.input_items,
            access="models",
            summary="What a stored response was asked.",
            query=ItemsQuery,
            answer=INPUT_ITEMS,
            errors=(404,),
        ),
        Route(
            method="DELETE",
            path="/v1/responses/{id}",
            handler=responses.delete,
            access="models",
            summary="Forgets a response that has ended.",
            answer=DELETED,
            errors=(404, 409),
        ),
    )
