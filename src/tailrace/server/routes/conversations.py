"""`/v1/conversations`: OpenAI's conversations. A conversation is a session by its id, and its items are those of its
responses; items that a client adds are a response without an answer. Kept beside the runs: when, and the metadata.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from aiohttp import web

from tailrace.agent.session import TURN_KIND
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app.housekeeping import CONVERSATIONS
from tailrace.calls.call_log import CALL_KIND
from tailrace.calls.service import CallSpec
from tailrace.events import RunFinished
from tailrace.journal.key_values import KeyValues
from tailrace.messages import JsonObject, Usage
from tailrace.ports import ENDED, RUNS_LIMIT, NewRun, Run
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, query_of, read_as
from tailrace.server.http.route import OBJECTS, TEXT, Route, json_response, object_schema
from tailrace.server.http.session_access import check_session
from tailrace.server.routes.sessions import Sessions, begun_conversation
from tailrace.server.routes.sessions_schemas import Conversation
from tailrace.server.v1.responses.begin_response import ResponseRuns
from tailrace.server.v1.responses.responses_request import ResponsesRequest
from tailrace.server.v1.responses.stored_response import (
    ItemsQuery,
    Origin,
    history_in,
    input_items_of,
    item_page,
    response_body,
)
from tailrace.system.random_hex import random_hex
from tailrace.wire.dialects import RESPONSES

MAX_ITEMS: Final = 20  # at once, as OpenAI has it, and as the limits of metadata
_Key: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]
_Metadata: TypeAlias = Annotated[dict[_Key, Annotated[str, msgspec.Meta(max_length=512)]], msgspec.Meta(max_length=16)]
_NO_MODEL: Final = "-"  # of items that no model has answered
_CONVERSATION: Final = object_schema(
    {"id": TEXT, "object": {"const": "conversation"}, "created_at": {"type": "integer"}, "metadata": {"type": "object"}}
)
_ITEMS: Final = object_schema({"object": {"const": "list"}, "data": OBJECTS, "has_more": {"type": "boolean"}})
_ITEM: Final = object_schema({"id": TEXT, "type": TEXT}, additionalProperties=True)
_DELETED: Final = object_schema({"id": TEXT, "object": {"const": "conversation.deleted"}, "deleted": {"const": True}})


class CreateBody(msgspec.Struct):
    metadata: _Metadata | None = None
    items: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MAX_ITEMS)] | None = None


class UpdateBody(msgspec.Struct):
    metadata: _Metadata | None


class ItemsBody(msgspec.Struct):
    items: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=MAX_ITEMS)]


class Conversations:
    """The handlers."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._journal = pipeline.app.journal
        self._kept = KeyValues(self._journal, CONVERSATIONS, Conversation)
        self._runs = ResponseRuns(pipeline)
        self._sessions = Sessions(pipeline)

    async def create(self, request: web.Request) -> web.Response:
        """A new conversation."""
        body = await read_as(request, CreateBody)
        name, caller = f"conv_{random_hex(24)}", request[IDENTITY]
        kept = Conversation(caller.name, int(time.time()), body.metadata or {})
        if body.items:
            await self._add(request, name, body.items)
        await self._kept.set_default(name, kept)
        return json_response(_shown(name, kept))

    async def show(self, request: web.Request) -> web.Response:
        """A conversation."""
        name, kept = await self._found(request)
        return json_response(_shown(name, kept))

    async def update(self, request: web.Request) -> web.Response:
        """Replaces its metadata."""
        body = await read_as(request, UpdateBody)
        name, found = await self._found(request, changes=True)
        kept = await self._kept.update(
            name, lambda old: msgspec.structs.replace(old or found, metadata=body.metadata or {})
        )
        return json_response(_shown(name, kept or found))

    async def delete(self, request: web.Request) -> web.Response:
        """Deletes it with its runs."""
        name, _ = await self._found(request, changes=True)
        await self._sessions.delete(request)
        return json_response({"id": name, "object": "conversation.deleted", "deleted": True})

    async def add_items(self, request: web.Request) -> web.Response:
        """Adds items."""
        body = await read_as(request, ItemsBody)
        name, _ = await self._found(request)
        run = await self._add(request, name, body.items)
        return json_response(item_page(input_items_of(run), ItemsQuery(limit=100, order="asc")))

    async def items(self, request: web.Request) -> web.Response:
        """Its items."""
        query = query_of(request, ItemsQuery)
        name, _ = await self._found(request)
        return json_response(item_page(await self._items(name), query))

    async def item(self, request: web.Request) -> web.Response:
        """One item."""
        name, _ = await self._found(request)
        wanted = request.match_info["item_id"]
        for item in await self._items(name):
            if item.get("id") == wanted:
                return json_response(item)
        raise _no_such_item(wanted)

    async def delete_item(self, request: web.Request) -> web.Response:
        """Deletes one item: no later response has it. What is left is recorded anew; 409 while a response is made."""
        name, kept = await self._found(request, changes=True)
        await self._sessions.check_idle(name)
        for run in await self._journal.runs(session=name, kind=TURN_KIND):
            if not run.new.input.get("origin"):
                raise ApiError(400, "the agent's own session loses no single item; delete the conversation")
        items, wanted = await self._items(name), request.match_info["item_id"]
        left = [item for item in items if item["id"] != wanted]
        if len(left) == len(items):
            raise _no_such_item(wanted)
        await self._add(request, name, left, replaces=True)
        return json_response(_shown(name, kept))

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _found(self, request: web.Request, *, changes: bool = False) -> tuple[str, Conversation]:
        """The conversation that the path names: one that was created here, or any session of the caller's. `changes`:
        the request is for its owner alone. Raises `ApiError` 404, also for another key's, and 403."""
        name, caller = request.match_info["id"], request[IDENTITY]
        check_session(name, caller, "conversation_id")
        kept = await begun_conversation(self._journal, name)
        if kept is None or not (caller.may("runs") or caller.owns(kept.owner)):
            raise ApiError(404, f"Conversation with id '{name[:80]}' not found.", param="conversation_id")
        if changes and not caller.owns(kept.owner):
            message = "another key has begun this conversation"
            raise ApiError(403, message, code="not_the_owner", param="conversation_id")
        return name, kept

    async def _add(self, request: web.Request, name: str, items: list[JsonObject], *, replaces: bool = False) -> Run:
        """A call that no model is asked: it has the items as its input, and ends at once."""
        asked: ResponsesRequest = await self._runs.parse(request, {"model": _NO_MODEL, "input": items})
        caller = request[IDENTITY]
        history = () if replaces else await history_in(self._journal, name, caller)
        origin = Origin(_NO_MODEL, RESPONSES.name, {}, tuple(asked.items), owner=caller.name, replaces=replaces)
        spec = CallSpec(asked.body, history, msgspec.to_builtins(origin))
        new = NewRun(CALL_KIND, msgspec.to_builtins(spec), session=name)

        async def record() -> Run:
            run, lease = await self._journal.start(new, self._pipeline.app.owner)
            if lease is not None:
                await self._journal.seal(lease, RunFinished("completed", "", Usage(), None, time.time()))
            return run

        return await self._pipeline.begin_run(record())

    async def _items(self, name: str) -> list[JsonObject]:
        """All items, oldest first."""
        runs: list[Run] = []
        before: str | None = None
        while page := await self._journal.runs(session=name, before=before, limit=RUNS_LIMIT):
            begins = next((at for at, run in enumerate(page) if _replaces(run)), None)
            runs += page if begins is None else page[: begins + 1]
            before = page[-1].id
            if begins is not None:
                break
        return [item for run in reversed(runs) for item in await self._items_of(run)]

    async def _items_of(self, run: Run) -> list[JsonObject]:
        if run.new.input.get("origin"):
            output = (await response_body(self._journal, run))["output"] if run.state in ENDED else []
            return [*input_items_of(run), *output]
        if run.new.kind != TURN_KIND:
            return []
        asked, said = msgspec.convert(run.new.input, TurnSpec), run.finished.output if run.finished is not None else ""
        key = run.id.removeprefix("run_")
        question = _message(f"in_{key}_0", "user", "input_text", asked.shown or asked.message.text)
        return [question, _message(f"msg_{key}_0", "assistant", "output_text", said)] if said else [question]


def _replaces(run: Run) -> bool:
    """Whether the conversation begins anew with this run's items."""
    return bool((run.new.input.get("origin") or {}).get("replaces"))


def _no_such_item(item_id: str) -> ApiError:
    return ApiError(404, f"Item with id '{item_id[:80]}' not found.", param="item_id")


def _message(item_id: str, role: Literal["user", "assistant"], kind: str, text: str) -> JsonObject:
    part = {"type": kind, "text": text, **({"annotations": []} if role == "assistant" else {})}
    return {"id": item_id, "type": "message", "role": role, "status": "completed", "content": [part]}


def _shown(name: str, kept: Conversation) -> JsonObject:
    return {"id": name, "object": "conversation", "created_at": kept.created_at, "metadata": kept.metadata}


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, path = Conversations(pipeline), "/v1/conversations"
    route = partial(Route, access="models")
    one, items = f"{path}/{{id}}", f"{path}/{{id}}/items"
    return (
        route("POST", path, api.create, body=CreateBody, answer=_CONVERSATION, errors=(408, 413)),
        route("GET", one, api.show, answer=_CONVERSATION, errors=(404,)),
        route("POST", one, api.update, body=UpdateBody, answer=_CONVERSATION, errors=(403, 404, 408, 413)),
        route("DELETE", one, api.delete, answer=_DELETED, errors=(403, 404, 409)),
        route("GET", items, api.items, query=ItemsQuery, answer=_ITEMS, errors=(404,)),
        route("POST", items, api.add_items, body=ItemsBody, answer=_ITEMS, errors=(404, 408, 409, 413)),
        route("GET", f"{items}/{{item_id}}", api.item, answer=_ITEM, errors=(404,)),
        route("DELETE", f"{items}/{{item_id}}", api.delete_item, answer=_CONVERSATION, errors=(404, 409)),
    )
