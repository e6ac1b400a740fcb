"""A route as a value: what the router, the authoriser and `/openapi.json` are all made from. And what most handlers
return: a JSON response."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias

import msgspec
from aiohttp import web

from tailrace.messages import JsonObject
from tailrace.server.http.auth import Access

# What goes on with an answer once the handler has returned: while a stream waits for hours, the frames that have set
# it up are gone, and what they held.
Answering: TypeAlias = Coroutine[Any, Any, web.StreamResponse]
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse | Answering]]
# A msgspec type, or a JSON schema where the body is another dialect's.
Body: TypeAlias = Any
TEXT: Final[JsonObject] = {"type": "string"}
MESSAGE_LIST: Final[JsonObject] = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "object", "required": ["role"], "properties": {"role": {"type": "string"}}},
}
OBJECTS: Final[JsonObject] = {"type": "array", "items": {"type": "object"}}
_ENCODER: Final = msgspec.json.Encoder()


class Route(msgspec.Struct, frozen=True):
    """One method on one path. `path` is in aiohttp's form (`/runs/{id}`); its parameters are texts.

    A handler returns its response or the coroutine that makes it, or raises: `as_api_error` translates every exception
    into the error body of the route's API. The handler is cancelled when the client disconnects.
    """

    method: str
    path: str
    handler: Handler
    access: Access
    summary: str = ""  # where it is empty, the first paragraph of the handler's docstring
    status: int = 200
    query: type[msgspec.Struct] | None = None
    headers: dict[str, str] = {}  # request headers that it reads: name → description
    body: Body = None
    answer: Body = None  # of the JSON response
    error: JsonObject | None = None  # a further shape of an error's body: of the protocol that the route speaks
    media_type: str = "application/json"  # of what is not streamed
    streams: bool = False  # may answer with server-sent events
    socket: bool = False  # an upgrade to a web socket is taken
    while_draining: bool = False  # taken while the server ends too: what it brings is kept for the next process
    plain: bool = False  # takes the short way (`http.plain`): reads by `read_body`, streams by `RequestPipeline.stream`
    errors: tuple[int, ...] = ()  # statuses beyond those that every route may answer with

    @property
    def description(self) -> str:
        return self.summary or " ".join((inspect.getdoc(self.handler) or "").partition("\n\n")[0].split())


def nullable(kind: str) -> JsonObject:
    return {"type": [kind, "null"]}


def object_schema(required: JsonObject, optional: JsonObject | None = None, **keywords: object) -> JsonObject:
    """The JSON schema of an object with these properties, and further keywords of the schema."""
    return {"type": "object", "required": [*required], "properties": {**required, **(optional or {})}, **keywords}


def json_response(value: object, *, status: int = 200) -> web.Response:
    """Any msgspec value as the body."""
    return web.Response(status=status, body=_ENCODER.encode(value), content_type="application/json")
