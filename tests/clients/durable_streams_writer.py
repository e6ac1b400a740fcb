"""The writer that the Durable Streams conformance suite wants, before a server that has none.

The suite creates streams, appends to them and reads them back; `/streams/runs/{id}` is only read. Here a `PUT` begins
a run in the server's journal, a `POST` appends each message as the text of one event, and `Stream-Closed: true` ends
the run. What the suite reads is sent on to the server, and the answer comes back with its status, its headers and its
time; only two things are changed: the body is the texts that the suite has written, without the entries around them,
and the content type is the one that the suite gave the stream. So what the suite says of offsets, cursors, tags,
caching, waiting and closing it says of the server. What it says of the answers to its writes it says of this file.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from server.http_server import RunningServer
from tailrace.events import MessageChunk, RunFinished
from tailrace.ports import Lease, NewRun
from tailrace.wire.sse import SseDecoder, SseEvent

LEASE_S = 3600.0
HOP_BY_HOP = ("Content-Length", "Transfer-Encoding", "Connection", "Content-Encoding", "Date", "Server", "Content-Type")


@dataclass
class Written:
    """A stream of the suite: a run, and what was appended to it."""

    run_id: str
    lease: Lease
    content_type: str
    text: str = ""
    closed: bool = False

    def messages(self, body: bytes) -> list[str]:
        if self.content_type != "application/json":
            return [body.decode("utf-8" if self.content_type.startswith("text/") else "latin-1")] if body else []
        values = json.loads(body or b"[]")
        return [json.dumps(value) for value in (values if isinstance(values, list) else [values])]

    def body(self, items: list[dict[str, Any]]) -> bytes:
        texts = [item["text"] for item in items if item["type"] == "message_chunk"]
        if self.content_type == "application/json":
            return f"[{','.join(texts)}]".encode()
        return "".join(texts).encode("utf-8" if self.content_type.startswith("text/") else "latin-1")


class Writer:
    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._journal = server.app.journal
        self._streams: dict[str, Written] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        written = self._streams.get(request.path)
        match request.method, written:
            case "PUT", None:
                return await self._create(request)
            case "PUT", Written():
                same = request.content_type == written.content_type
                return await self._answer(written, 200 if same else 409)
            case "POST", Written():
                return await self._append(request, written)
            case "DELETE", Written():
                del self._streams[request.path]
                return web.Response(status=204)
            case _:
                return await self._read(request, written)

    async def _create(self, request: web.Request) -> web.Response:
        run, lease = await self._journal.start(NewRun("agent", {"text": "go"}), "the suite", lease_s=LEASE_S)
        assert lease is not None
        written = self._streams[request.path] = Written(run.id, lease, request.content_type)
        await self._write(written, await request.read(), close="Stream-Closed" in request.headers)
        return await self._answer(written, 201)

    async def _append(self, request: web.Request, written: Written) -> web.Response:
        if request.can_read_body and request.content_type != written.content_type:
            return web.Response(status=409)
        await self._write(written, await request.read(), close="Stream-Closed" in request.headers)
        return await self._answer(written, 204)

    async def _write(self, written: Written, body: bytes, *, close: bool) -> None:
        if messages := written.messages(body):
            self._journal.append(written.lease, [MessageChunk(message) for message in messages])
            await self._journal.commit(written.lease)
            written.text += "".join(messages)
        if close and not written.closed:
            await self._journal.seal(written.lease, RunFinished("completed", written.text))
            written.closed = True

    async def _answer(self, written: Written, status: int) -> web.Response:
        async with self._server.client.head(self._url(written)) as head:
            offset = head.headers["Stream-Next-Offset"]
        headers = {"Stream-Next-Offset": offset, "Content-Type": written.content_type}
        return web.Response(status=status, headers=headers)

    def _url(self, written: Written | None) -> str:
        return f"{self._server.url}/streams/runs/{written.run_id if written else 'none'}"

    async def _read(self, request: web.Request, written: Written | None) -> web.StreamResponse:
        url = self._url(written) + (f"?{request.query_string}" if request.query_string else "")
        kept = ("If-None-Match", "Access-Control-Request-Method", "Access-Control-Request-Headers")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        async with self._server.client.request(request.method, url, headers=headers) as answer:
            taken = {name: value for name, value in answer.headers.items() if name not in HOP_BY_HOP}
            if answer.content_type == "text/event-stream" and written is not None:
                return await self._events(request, answer, taken, written)
            body = await answer.read()
            if answer.status == 200 and written is not None:
                taken["Content-Type"] = written.content_type
                body = written.body(json.loads(body)) if request.method == "GET" else b""
            return web.Response(status=answer.status, headers=taken, body=body)

    async def _events(
        self, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str], written: Written
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers=headers | {"Content-Type": answer.headers["Content-Type"]})
        await stream.prepare(request)
        decoder = SseDecoder()
        async for chunk in answer.content.iter_any():
            await stream.write(b"".join(_event(written, event) for event in decoder.feed(chunk)))
        return stream


def _event(written: Written, event: SseEvent) -> bytes:
    data = event.text
    if event.event == "data":
        data = written.body(json.loads(data)).decode()
        if data in ("", "[]"):
            return b""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join([f"event: {event.event}", *(f"data:{line}" for line in lines), "\n"]).encode()


@asynccontextmanager
async def writer_before(server: RunningServer) -> AsyncGenerator[str, None]:
    """The address of a writer before this server."""
    application = web.Application(client_max_size=1 << 20)
    application.router.add_route("*", "/{path:.*}", Writer(server).handle)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
