"""`/mcp`: the run tools for MCP hosts over HTTP. A host may do there what its key may do at `/runs`.

Stateless, in both eras of the protocol: each request stands alone, so that any worker or node may answer it. A host of
2026-07-28 comes again with the answers to questions; an older one gets them in the report, for `answer_approval`. A
closed connection stops no run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, MutableMapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from aiohttp import hdrs, web

from tailrace.agent.turn_spec import TurnSpec
from tailrace.messages import user
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, read_body
from tailrace.server.http.route import Route, object_schema
from tailrace.server.http.sse_stream import EventStream
from tailrace.system.extras import install_command

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH: Final = "/mcp"
EVENTS: Final = "text/event-stream"
_MESSAGE: Final = object_schema({"jsonrpc": {"const": "2.0"}}, additionalProperties=True)


class McpEndpoint:
    """The handler."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One message of an MCP host: the run tools, as `tailrace mcp` has them."""
        if find_spec("mcp") is None:
            raise ApiError(501, f"/mcp needs an extra: {install_command('mcp')}")
        body = await read_body(request, as_json=False)
        manager = await asyncio.to_thread(self._manager, request)  # the first one imports the library
        answer = _Answer(self._pipeline, request, body)
        async with manager.run():
            await manager.handle_request(answer.scope, answer.receive, answer.send)
        return await answer.ended()

    def _manager(self, request: web.Request) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager, logger

        from tailrace.integrations.mcp_server.run_tools import RunTools
        from tailrace.integrations.mcp_server.server import mcp_server
        from tailrace.integrations.mcp_server.stdio import Cancelled

        logger.setLevel(logging.WARNING)  # it has two lines for each manager, and each request has its own
        app, caller, admit = self._pipeline.app, request[IDENTITY], partial(self._pipeline.charge_call, request)
        tools = RunTools(app, caller, TurnSpec(user("")), Cancelled(), self._start, admit)
        server = mcp_server(app, tools, caller)
        limit = self._pipeline.max_body_bytes
        return StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=limit)

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._pipeline.track(task)
        return task


class _Answer:
    """One request to the library's ASGI application, and its answer: a body, or a stream of events."""

    def __init__(self, pipeline: RequestPipeline, request: web.Request, body: bytes) -> None:
        self._pipeline = pipeline
        self._request = request
        self._given: bytes | None = body
        self._status, self._headers = 500, dict[str, str]()
        self._body = bytearray()
        self._stream: EventStream | None = None
        headers = [(name.lower(), value) for name, value in request.raw_headers]
        path = request.path
        self.scope = {"type": "http", "method": request.method, "path": path, "query_string": b"", "headers": headers}

    async def receive(self) -> MutableMapping[str, Any]:
        """The body, once. That the client has left cancels the handler: it is not said here."""
        if self._given is None:
            await asyncio.get_running_loop().create_future()
        body, self._given = self._given, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {name.decode().lower(): value.decode() for name, value in message.get("headers", ())}
            if self._headers.get("content-type", "").startswith(EVENTS):
                self._stream = self._pipeline.stream(self._request)
                self._stream.begin()
        elif self._stream is None:
            self._body += message.get("body", b"")
        else:
            await self._stream.send_pieces(message.get("body", b""))
            await self._stream.caught_up()

    async def ended(self) -> web.StreamResponse:
        if self._stream is not None:
            return await self._stream.end()
        kind = self._headers.get("content-type", "application/json")
        return web.Response(status=self._status, body=bytes(self._body), headers={hdrs.CONTENT_TYPE: kind})


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    serve = McpEndpoint(pipeline).serve
    route = partial(Route, "POST", PATH, serve, "runs", body=_MESSAGE, answer=_MESSAGE, error=_MESSAGE)
    return (route(errors=(404, 406, 413, 501)),)
