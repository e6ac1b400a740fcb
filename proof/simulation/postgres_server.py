"""The real PostgreSQL server of simulated worlds: one for all processes that run worlds, each world in its own schema.

Owns the server's process, the connection through which the simulation itself asks it (outside of every world, in real
time), and what a connection of a world says and hears: whole requests and whole answers.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg

from proof.streams.services import START_S, Postgres, postgres_programs
from tailrace.integrations.postgres.address import Connection

T = TypeVar("T")
URL = "TAILRACE_SIMULATION_POSTGRES"  # where a process finds the server that another one has started
OPTIONS = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "max_connections": "400"}
_ENDS_REQUEST = b"SQHX"  # sync, query, flush, terminate
_ENDS_ANSWER = {b"H": b"TnE"}  # after a flush: what describes a statement, or an error; else the server is ready


def is_installed() -> bool:
    return postgres_programs() is not None


def start_server() -> None:
    """For this process and those that it starts, until it ends."""
    if URL in os.environ:
        return
    directory = Path(tempfile.mkdtemp(prefix="tailrace-simulation-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    server = _Server(directory)
    asyncio.run(server.start())
    atexit.register(server.end)
    os.environ[URL] = server.url


class _Server(Postgres):
    """Nothing of it has to survive."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._argv += [word for name, value in OPTIONS.items() for word in ("-c", f"{name}={value}")]


class Control:
    """The simulation's own connection. What it asks takes real time, and none of the world's."""

    def __init__(self) -> None:
        start_server()
        self.url = os.environ[URL]
        self._loop = asyncio.new_event_loop()
        self.connection: Connection = self.ask(self._connect)
        atexit.register(self.ask, self.connection.close)  # before the server ends, which waits for that

    async def _connect(self) -> Connection:
        async with asyncio.timeout(START_S):
            while True:
                try:
                    return await asyncpg.connect(self.url)
                except asyncpg.CannotConnectNowError:  # it takes connections before it serves
                    await asyncio.sleep(0.1)

    def ask(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Also from within a step of a world's loop."""
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return self._loop.run_until_complete(work())
        finally:
            asyncio._set_running_loop(running)

    def fetch(self, query: str, *args: Any) -> list[Any]:
        return self.ask(lambda: self.connection.fetch(query, *args))

    def execute(self, query: str) -> None:
        self.ask(lambda: self.connection.execute(query))

    def end_session(self, pid: int) -> None:
        """Returns when it is gone, with its transaction and its locks."""
        self.fetch("SELECT pg_terminate_backend($1, 10000)", pid)

    def blockers(self, pids: list[int]) -> dict[int, list[int]]:
        """The sessions that each of these waits for."""
        return dict(self.fetch("SELECT pid, pg_blocking_pids(pid) FROM unnest($1::integer[]) AS pid", pids))


_control: list[Control] = []


def control() -> Control:
    """Of this process."""
    if not _control:
        _control.append(Control())
    return _control[0]


os.register_at_fork(after_in_child=_control.clear)


class Wire:
    """A socket to the server. Blocks, in real time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port))
        self.pid = 0  # of the session
        self.in_transaction = False
        self.asked = b""  # the kind of request that is not answered yet
        self._received = bytearray()

    def send(self, request: bytes, kind: bytes) -> None:
        self.asked = kind
        try:
            self.socket.sendall(request)
        except OSError:
            """The session has been ended: that is read."""

    def read(self) -> tuple[bytes, bool]:
        """What has come: the whole answer or nothing yet, and whether the session is over."""
        try:
            data = self.socket.recv(1 << 20)
        except OSError:
            data = b""
        self._received += data
        if data and not self._is_whole():
            return b"", False
        answer = bytes(self._received)
        self._received.clear()
        self.asked = b""
        return answer, not data

    def _is_whole(self) -> bool:
        found = False
        wanted = _ENDS_ANSWER.get(self.asked, b"Z")
        for kind, start, end in messages(self._received):
            if kind == b"K":
                self.pid = struct.unpack_from("!i", self._received, start + 5)[0]
            if kind == b"Z":
                self.in_transaction = self._received[end - 1 : end] != b"I"
            found = found or kind in wanted
        return found


def messages(data: bytes | bytearray) -> list[tuple[bytes, int, int]]:
    """The kind and the place of each message that is whole."""
    found, start = list[tuple[bytes, int, int]](), 0
    while len(data) >= start + 5 and len(data) >= (end := start + 1 + struct.unpack_from("!i", data, start + 1)[0]):
        found.append((bytes(data[start : start + 1]), start, end))
        start = end
    return found


def requests_in(data: bytearray, *, begun: bool) -> list[tuple[bytes, bytes]]:
    """Takes the whole requests out of what a client has written, each with its kind. The first thing that a client
    says has none."""
    found, start = list[tuple[bytes, bytes]](), 0
    if not begun and len(data) >= 4:
        start = int.from_bytes(data[:4])
        found.append((bytes(data[:start]), b"-"))
    done = start
    for kind, _, end in messages(data[start:]):
        if kind in _ENDS_REQUEST:
            found.append((bytes(data[done : start + end]), kind))
            done = start + end
    del data[:done]
    return found
