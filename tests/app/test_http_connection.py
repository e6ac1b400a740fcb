"""Bodies that arrive together: a few connections read on in each turn of the loop, and in the end all do (L143)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web

from tailrace.app.http_connection import READING_AT_ONCE, HttpConnection, connection_factory
from tailrace.system.private_apis import reading_is_paused

CONNECTIONS = 3 * READING_AT_ONCE
BODY = b"x" * 2**20


@asynccontextmanager
async def paused_connections() -> AsyncIterator[list[HttpConnection]]:
    """Real ones, whose peers have sent more than has been read."""
    connections: list[HttpConnection] = []

    async def read_nothing(request: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    runner = web.ServerRunner(web.Server(read_nothing, handler_cancellation=True))
    await runner.setup()
    new_connection = connection_factory(runner)

    def recorded() -> HttpConnection:
        connections.append(new_connection())
        return connections[-1]

    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(recorded, "127.0.0.1", 0)
        stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        for _ in range(CONNECTIONS):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            peer.setblocking(False)  # it sends what there is room for
            peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY))
        while len(connections) < CONNECTIONS or not all(reading_is_paused(each) for each in connections):
            await turns_of_the_loop(1)
        yield connections
        for connection in connections:
            connection.force_close()
        await turns_of_the_loop(3)


async def turns_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[HttpConnection]:
    """Who has been told to read on, in this order."""
    told: list[HttpConnection] = []
    monkeypatch.setattr(web.RequestHandler, "resume_reading", told.append)
    return told


async def test_a_few_read_on_in_a_turn_of_the_loop(told: list[HttpConnection]) -> None:
    async with paused_connections() as connections:
        for connection in connections:
            connection.resume_reading()
            connection.resume_reading()  # the library does so for every body
        counted = []
        for _ in range(3):
            await turns_of_the_loop(1)
            counted.append(len(told))
        assert told == connections
    assert counted == [READING_AT_ONCE, 2 * READING_AT_ONCE, CONNECTIONS]


async def test_one_that_has_no_room_stays_paused(told: list[HttpConnection]) -> None:
    async with paused_connections() as connections:
        for connection in connections:
            connection.resume_reading()
        connections[1].stay_paused()
        await turns_of_the_loop(CONNECTIONS)
        assert told == [connections[0], *connections[2:]]


async def test_one_that_fails_keeps_no_other_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    told, failures = list[HttpConnection](), list[object]()

    def fails_once(connection: HttpConnection) -> None:
        told.append(connection)
        if len(told) == 2:
            raise RuntimeError("the socket is gone")

    monkeypatch.setattr(web.RequestHandler, "resume_reading", fails_once)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    async with paused_connections() as connections:
        for connection in connections:
            connection.resume_reading()
        await turns_of_the_loop(CONNECTIONS)
        assert set(told) == set(connections)
    assert [str(failure) for failure in failures] == ["the socket is gone"]
