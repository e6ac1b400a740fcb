"""Where a server listens: names with several addresses, and names that are none."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import ConfigError
from tailrace.server.http.address import Address

HERE = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
NOT_HERE = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0))


def resolve(monkeypatch: pytest.MonkeyPatch, *found: tuple[Any, ...]) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: list(found))


def test_an_address_that_the_machine_has_not_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without IPv6 whose hosts file names ::1 for localhost."""
    resolve(monkeypatch, NOT_HERE, HERE)
    shared = Address("localhost", 0).share(2)
    [listener] = shared._sockets
    assert listener.family == socket.AF_INET
    assert shared.url() == f"http://localhost:{listener.getsockname()[1]}"
    listener.close()


def test_a_name_that_has_no_address_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, NOT_HERE)
    with pytest.raises(ConfigError, match=r"cannot listen on elsewhere\.example:80: "):
        Address("elsewhere.example", 80).share(2)


async def test_what_is_no_name_is_said_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"server\.host: 'x\.\.y' is no name of a host"):
        Address("x..y", 0).share(2)
    with pytest.raises(ConfigError, match=r"server\.host: 'x\.\.y' is no name of a host"):
        await Address("x..y", 0).listen(asyncio.Protocol)


async def test_connections_without_a_file_for_them_wait_and_the_log_says_so() -> None:
    program = Path(__file__).with_name("few_files.py")
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, str(program), "40"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stderr is not None
    port = int(await server.stdout.readline())
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
    line = (await server.stderr.readline()).decode()
    greeted: list[int] = []

    async def greet(number: int) -> None:
        reader, writer = clients[number]
        assert await reader.readline() == b"hello\n", "it was cut off"
        greeted.append(number)
        writer.close()  # its file serves another one

    await asyncio.gather(*map(greet, range(len(clients))))
    server.stdin.close()
    rest = (await server.stderr.read()).decode()
    assert await server.wait() == 0
    assert len(greeted) == 60
    assert line.startswith("WARNING connections wait, for want of files or memory (Too many open files): ")
    assert rest == "", "one line a minute"
