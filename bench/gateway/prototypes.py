"""Two bare gateways, chat in and chat out: what Python costs before it does anything.

    python -m bench.gateway.prototypes aiohttp|own PROVIDER_PORT PORT

Both decode every chunk and build every chunk anew, and do nothing else: no attempts, no deadlines, no journal, no keys,
no keep-alive events. `aiohttp` is aiohttp on both sides; `own` has aiohttp's server and a client of thirty lines on
asyncio's protocol with the C parser of httptools.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import Any, cast

import aiohttp
import msgspec
import uvloop
from aiohttp import web

PATH = "/v1/chat/completions"
Ask = Callable[[bytes], AbstractAsyncContextManager[AsyncIterator[bytes]]]


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta
    index: int = 0
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    id: str
    choices: list[Choice]
    created: int = 0
    model: str = ""


DECODE = msgspec.json.Decoder(Chunk).decode
ENCODE = msgspec.json.Encoder().encode


def rebuilt(event: bytes) -> bytes:
    data = event[6:]
    if data == b"[DONE]":
        return b"data: [DONE]\n\n"
    chunk = DECODE(data)
    said = [
        {"index": c.index, "delta": {"content": c.delta.content}, "finish_reason": c.finish_reason}
        for c in chunk.choices
    ]
    head = {"id": chunk.id, "object": "chat.completion.chunk", "created": chunk.created, "model": chunk.model}
    return b"data: %b\n\n" % ENCODE({**head, "choices": said})


def application(ask: Ask) -> web.Application:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        body["model"] = body["model"].partition("/")[2]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        async with ask(ENCODE(body)) as pieces:
            await response.prepare(request)
            rest = b""
            async for data in pieces:
                *events, rest = (rest + data).split(b"\n\n")
                if events:
                    await response.write(b"".join([rebuilt(event) for event in events]))
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_post(PATH, handle)
    return app


class Exchange(asyncio.Protocol):
    """One connection to the provider, one request on it at a time. `pieces` are what has come of the body."""

    def __init__(self, idle: list[Exchange]) -> None:
        self._idle = idle
        self._new_parser: Callable[[Exchange], Any] = import_module("httptools").HttpResponseParser
        self._pieces: list[bytes] = []
        self._over = False
        self._more: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        self._wake()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._over = True
        if self in self._idle:
            self._idle.remove(self)
        self._wake()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._over = True

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def send(self, request: bytes) -> None:
        self._parser = self._new_parser(self)
        self._over = False
        self.transport.write(request)

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            if self._pieces:
                data, self._pieces = b"".join(self._pieces), []
                yield data
            elif self._over:
                return
            else:
                self._more = asyncio.get_running_loop().create_future()
                await self._more


def own_client(port: int) -> Ask:
    idle: list[Exchange] = []
    head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

    @asynccontextmanager
    async def ask(body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        if idle:
            exchange = idle.pop()
        else:
            loop = asyncio.get_running_loop()
            _, exchange = await loop.create_connection(lambda: Exchange(idle), "127.0.0.1", port)
        exchange.send(head % (PATH.encode(), len(body)) + body)
        try:
            yield exchange.pieces()
        except BaseException:
            exchange.transport.abort()
            raise
        if not exchange.transport.is_closing():
            idle.append(exchange)

    return ask


def aiohttp_client(session: aiohttp.ClientSession, port: int) -> Ask:
    url = f"http://127.0.0.1:{port}{PATH}"

    @asynccontextmanager
    async def ask(body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        async with session.post(url, data=body) as response:
            yield response.content.iter_any()

    return ask


async def serve(kind: str, provider: int, port: int) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        app = application(own_client(provider) if kind == "own" else aiohttp_client(session, provider))
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
