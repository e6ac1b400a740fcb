"""At the limit of open files a new connection is told so: a real server, with few files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from cli.commands.serve_process import served
from server.http_server import RunningServer, config_for, raw, running_server
from tailrace.server.http.listener import ConnectionLimits
from tailrace.server.http.plain.file_limit import MIN_RESERVED, FileLimit
from tailrace.testing.provider import FaultyProvider

FEW = 200


def with_files(count: int) -> tuple[str, ...]:
    """The program that starts a command which may have so many files open."""
    return ("sh", "-c", f'ulimit -n {count}; exec "$@"', "sh")


async def test_a_server_without_files_left_says_503_to_new_connections_and_serves_the_others(tmp_path: Path) -> None:
    async with asyncio.timeout(60), FaultyProvider() as provider, AsyncExitStack() as stack:
        config_for(provider, tmp_path, store="sqlite:///runs.db")
        process = await stack.enter_async_context(served(tmp_path, under=with_files(FEW)))
        clients: list[aiohttp.ClientSession] = []
        statuses: list[int] = []
        for _ in range(FEW + 50):  # each with a connection of its own, which stays open
            client = await stack.enter_async_context(aiohttp.ClientSession())
            clients.append(client)
            statuses.append(await _ask(client, process.url))
        served_clients = [client for client, status in zip(clients, statuses, strict=True) if status == 200]
        late = statuses[statuses.index(503) :].count(200)  # a file of another request may have become free again
        assert late < 10
        assert statuses[-1] == 503
        assert FEW - MIN_RESERVED - 60 < len(served_clients) < FEW - MIN_RESERVED
        assert await _ask(served_clients[0], process.url) == 200
        for client in served_clients[:10]:
            await client.close()
        async with aiohttp.ClientSession() as client:
            while await _ask(client, process.url) == 503:  # until the server has seen them leave
                pass
        _, err = await process.stop()
    refused = [line for line in err.splitlines() if "new connections are refused" in line]
    assert len(refused) == 1
    assert f"this process may have {FEW}" in refused[0]
    assert "Traceback" not in err


async def _ask(client: aiohttp.ClientSession, url: str) -> int:
    body = {"model": "faulty/ok", "messages": [{"role": "user", "content": "Go. " * 1000}]}
    async with client.post(f"{url}/v1/chat/completions", json=body) as response:
        if response.status == 503:
            assert (response.headers["Retry-After"], response.headers["Connection"]) == ("1", "close")
            assert (await response.json())["error"]["kind"] == "overloaded"
        else:
            await response.read()
        return response.status


async def test_a_server_that_may_have_very_few_files_serves_with_half_of_them(tmp_path: Path) -> None:
    async with asyncio.timeout(60), FaultyProvider() as provider:
        config_for(provider, tmp_path, store="sqlite:///runs.db")
        async with served(tmp_path, under=with_files(MIN_RESERVED)) as process:
            assert await _ask(process.client, process.url) == 200
            _, err = await process.stop()
    assert "new connections are refused" not in err


async def test_a_refusal_reaches_a_client_that_sends_more_than_was_read(tmp_path: Path) -> None:
    async with refusing_server(tmp_path) as server:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3000000\r\n\r\n"
        answer = await raw(server.port(), head + b"x" * 3_000_000)
    assert answer.startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("target", ["/healthz", "/healthz?from=probe"])
async def test_a_server_that_refuses_connections_is_alive(tmp_path: Path, target: str) -> None:
    async with refusing_server(tmp_path) as server, aiohttp.ClientSession() as client:
        for status in ("ok", "stopping"):
            async with client.get(server.url + target) as response:
                assert (response.status, response.headers["Connection"]) == (200, "close")
                assert await response.json() == {"status": status}
                length = response.headers["Content-Length"]
            async with client.head(server.url + target) as response:
                assert (response.status, response.headers["Content-Length"]) == (200, length)
            server.pipeline.begin_drain()
        answer = await raw(server.port(), b"HEAD /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert answer.endswith(b"\r\n\r\n"), "an answer to HEAD has no body"
        for other in ("/readyz", "/healthzz"):
            async with client.get(server.url + other) as response:
                assert response.status == 503


@pytest.mark.parametrize("open_files", [0, None, 1_000_000])
async def test_with_files_left_nothing_is_refused(tmp_path: Path, open_files: int | None) -> None:
    async with running_server(tmp_path, limits=ConnectionLimits(open_files=open_files)) as server:
        assert (await server.json("GET", "/healthz"))[0] == 200


async def test_where_no_more_refusals_can_be_afforded_the_oldest_is_cut_and_a_probe_is_answered(tmp_path: Path) -> None:
    limits = ConnectionLimits(open_files=next_file())
    with spare_files():  # the next connection's number is beyond the reserve
        async with running_server(tmp_path, limits=limits) as server, asyncio.timeout(30):
            silent, writer = await asyncio.open_connection("127.0.0.1", server.port())
            answer = await raw(server.port(), b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            with suppress(ConnectionError):
                assert await silent.read() == b"", "the connection before it made room"
            writer.close()
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b'{"status":"ok"}')


class Connection(asyncio.Transport):
    """A new one, whose file has this number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number
        self._protocol: asyncio.BaseProtocol | None = None
        self.sent = b""
        self.is_cut = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self if name == "socket" else default

    def fileno(self) -> int:
        return self._number

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def ask(self, line: bytes) -> None:
        assert isinstance(self._protocol, asyncio.Protocol)
        self._protocol.data_received(line + b" HTTP/1.1\r\n\r\n")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def write_eof(self) -> None:
        pass

    def abort(self) -> None:
        self.is_cut = True


async def test_whoever_has_asked_nothing_for_longest_makes_room_before_whoever_was_answered() -> None:
    limit = FileLimit(1000, is_stopping=lambda: False)  # 125 are the reserve: from 937 on each needs another's place
    probe, call, older, newer, *late = (Connection(number) for number in (900, 901, 902, 903, 940, 941, 942, 943, 944))
    waiting, gone = [probe, call, older, newer], []
    for each in waiting:
        assert limit.refuses(each)
    probe.ask(b"GET /healthz")
    call.ask(b"POST /runs")
    for each in late:
        assert limit.refuses(each)
        each.ask(b"GET /healthz")
        gone += [cut for cut in waiting if cut.is_cut and cut not in gone]
        waiting.append(each)
    assert gone == [older, newer, probe, call, late[0]], "the silent ones, then the oldest"
    assert [each.sent[9:12] for each in (probe, call, *late)] == [b"200", b"503", *[b"200"] * 5]


@asynccontextmanager
async def refusing_server(home: Path) -> AsyncGenerator[RunningServer, None]:
    with spare_files():  # fewer would not be refused: half of the files serve
        limits = ConnectionLimits(open_files=next_file() + MIN_RESERVED)
        async with running_server(home, limits=limits) as server:
            yield server


@contextmanager
def spare_files() -> Generator[None, None, None]:
    files = [os.dup(0) for _ in range(MIN_RESERVED)]
    try:
        yield
    finally:
        for each in files:
            os.close(each)


def next_file() -> int:
    """The number of the next file that this process opens."""
    number = os.dup(0)
    os.close(number)
    return number
