"""The pool: connections are used again, die unnoticed by nobody, and leave no descriptor."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from providers.transport.raw_servers import OK, client, post, raw_server, read_all, read_request
from tailrace.config.sections import TransportSettings
from tailrace.errors import Unavailable
from tailrace.providers.transport.http1_transport import Http1Transport, open_transport
from tailrace.providers.transport.port import KEEPALIVE_S
from tailrace.testing.clock import driven

HI = OK + b"content-length: 2\r\n\r\nhi"


class Counting:
    """Says hi to every request, `per_connection` times on each connection."""

    def __init__(self, per_connection: int = 1 << 30) -> None:
        self.per_connection = per_connection
        self.connections = self.requests = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for _ in range(self.per_connection):
            await read_request(reader)
            self.requests += 1
            writer.write(HI)
        await writer.drain()


async def hi(url: str, *, times: int = 1) -> int:
    async with client() as transport:
        for _ in range(times):
            reply = await post(transport, url)
            assert await read_all(reply) == b"hi"
            reply.close()
    return times


async def test_ten_thousand_requests_leave_no_descriptor() -> None:
    open_before = _descriptors()
    server = Counting()
    async with raw_server(server) as url:
        await hi(url, times=10_000)
    assert (server.requests, server.connections) == (10_000, 1)
    await asyncio.sleep(0)
    assert _descriptors() <= open_before


async def test_many_at_once_leave_no_descriptor() -> None:
    open_before = _descriptors()
    server = Counting()
    async with raw_server(server) as url, client() as transport:

        async def ask() -> None:
            reply = await post(transport, url)
            assert await read_all(reply) == b"hi"
            reply.close()

        for _ in range(5):
            await asyncio.gather(*(ask() for _ in range(50)))
    assert server.requests == 250
    assert server.connections <= 50
    await asyncio.sleep(0)
    assert _descriptors() <= open_before


async def test_E67_a_connection_that_the_server_closes_after_its_answer_is_not_used_again() -> None:
    server = Counting(per_connection=1)
    async with raw_server(server) as url:
        await hi(url, times=20)
    assert (server.requests, server.connections) == (20, 20)


async def test_E67_a_dead_connection_is_tried_once_more_on_a_new_one() -> None:
    """The server takes the second request of a connection and closes without a word."""

    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await read_request(reader)
        requests += 1
        writer.write(HI)
        await read_request(reader)
        requests += 1

    async with raw_server(answer) as url:
        await hi(url, times=3)
    assert requests == 5


async def test_E67_but_not_where_a_byte_of_an_answer_came() -> None:
    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await read_request(reader)
        writer.write(HI)
        await read_request(reader)
        requests += 1
        writer.write(b"HTTP/1.1 2")

    async with raw_server(answer) as url:
        with pytest.raises(Unavailable):
            await hi(url, times=2)
    assert requests == 1


async def test_hosts_and_sockets_do_not_share_connections(tmp_path: Path) -> None:
    server = Counting()
    path = str(tmp_path / "s")
    async with (
        raw_server(server) as url,
        await asyncio.start_unix_server(_closing(server), path),
        client() as transport,
    ):
        for socket_path in ("", path, "", path):
            reply = await transport.post(url, headers={}, body=b"", connect_timeout_s=5, socket_path=socket_path)
            assert await read_all(reply) == b"hi"
            reply.close()
    assert (server.requests, server.connections) == (4, 2)


def _closing(server: Counting) -> Counting:
    class Closing(Counting):
        async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await server(reader, writer)
            except asyncio.IncompleteReadError:
                writer.close()

    return Closing()


async def test_a_name_with_several_addresses_is_reached_by_the_one_that_answers() -> None:
    """`localhost` is ::1 and 127.0.0.1 where there is IPv6; the server has the second."""
    server = Counting()
    async with raw_server(server) as url:
        await hi(url.replace("127.0.0.1", "localhost"), times=2)
    assert server.connections == 1


async def test_a_name_that_does_not_exist() -> None:
    async with client() as transport:
        with pytest.raises(Unavailable, match=r"cannot connect to no-such-host\.invalid") as caught:
            await post(transport, "http://no-such-host.invalid/v1")
    assert caught.value.code == "cannot_connect"


def test_an_idle_connection_is_closed_after_a_minute() -> None:
    closed_at: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await read_request(reader)
                writer.write(HI)
        except asyncio.IncompleteReadError:
            closed_at.append(asyncio.get_running_loop().time())

    @driven
    async def scenario() -> None:
        async with raw_server(answer) as url, open_transport(TransportSettings(proxy="none")) as transport:
            assert isinstance(transport, Http1Transport)
            started_at = asyncio.get_running_loop().time()
            for wait_s, count in ((0.0, 2), (10.0, 1)):
                await asyncio.sleep(wait_s)
                replies = await asyncio.gather(*(post(transport, url) for _ in range(count)))
                for reply in replies:
                    await read_all(reply)
                    reply.close()
            assert len(transport._open) == 2
            await asyncio.sleep(3 * KEEPALIVE_S)
            assert not transport._idle
            assert not transport._open
            assert transport._sweep is None
            assert [round(at - started_at) for at in closed_at] == [KEEPALIVE_S, KEEPALIVE_S + 10]

    scenario()


async def test_closing_drops_what_is_under_way() -> None:
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK + b"content-length: 100\r\n\r\nhi")
        await reader.read()
        gone.set()

    async with raw_server(answer) as url:
        async with client() as transport:
            reply = await post(transport, url)
            assert await reply.read() == b"hi"
        await asyncio.wait_for(gone.wait(), 10)
        reply.close()


def _descriptors() -> int:
    """Sockets of this process."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += str(entry.readlink()).startswith("socket:")
        except OSError:
            continue
    return count


def test_this_machine_has_the_sockets_that_are_counted() -> None:
    before = _descriptors()
    with socket.socket():
        assert _descriptors() == before + 1
