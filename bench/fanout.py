"""One run watched by a thousand clients: what a token costs the server for each of them.

    python -m bench fanout

The clients are a process of their own. The figure is the server's CPU time per token and viewer, beside a bare loop
that writes the same bytes to as many connections of the same process: `transport.write`, and nothing else.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from bench.table import Table
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.events import Entry, MessageChunk, to_json
from tailrace.journal.viewed_lines import sse_without_reasoning
from tailrace.ports import Lease, NewRun, StoredLine
from tailrace.server.app import serving

VIEWERS, TOKENS, ROUNDS = 1000, 50, 5
APART_S = 0.05  # the pace of a common model; what comes quicker, many viewers are sent in one piece
TOKEN = MessageChunk(" word")


# ── the clients ──────────────────────────────────────────────────────────────────────────────────────────────


class _Client(asyncio.Protocol):
    """Reads and forgets."""

    def __init__(self, request: bytes, began: Callable[[], None]) -> None:
        self._request = request
        self._began: Callable[[], None] | None = began

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, _data: bytes) -> None:
        if self._began is not None:
            self._began()
            self._began = None


async def clients(port: int, path: str, viewers: int) -> None:
    """Says when every client has its first bytes; ends with its input."""
    loop, begun = asyncio.get_running_loop(), asyncio.Semaphore(0)
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    for _ in range(viewers):
        await loop.create_connection(lambda: _Client(request, begun.release), "127.0.0.1", port)
    for _ in range(viewers):
        await begun.acquire()
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@asynccontextmanager
async def watched(port: int, path: str, viewers: int) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "bench.fanout", str(port), path, str(viewers)]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    try:
        yield process
    finally:
        process.stdin.close()
        await process.wait()


# ── the two servers ──────────────────────────────────────────────────────────────────────────────────────────


class _Bare(asyncio.Protocol):
    transports: list[asyncio.Transport]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transports.append(cast("asyncio.Transport", transport))

    def data_received(self, _data: bytes) -> None:
        self.transports[-1].write(b"HTTP/1.1 200 OK\r\n\r\n")


async def per_token_s(send: Callable[[], Awaitable[None]], viewers: int) -> float:
    """CPU seconds per token and viewer. The clients take what was sent between two tokens."""
    gc.collect()
    before = time.process_time()
    for _ in range(TOKENS):
        await send()
        await asyncio.sleep(APART_S)
    return (time.process_time() - before) / TOKENS / viewers


async def bare_loop(chunk: bytes, viewers: int) -> list[float]:
    _Bare.transports = []
    server = await asyncio.get_running_loop().create_server(_Bare, "127.0.0.1", 0, backlog=viewers)

    async def send() -> None:
        for transport in _Bare.transports:
            transport.write(chunk)

    async with watched(server.sockets[0].getsockname()[1], "/", viewers):
        costs = [await per_token_s(send, viewers) for _ in range(ROUNDS)]
    for transport in _Bare.transports:
        transport.close()
    server.close()
    return costs


async def ours(app: App, port: int, viewers: int) -> list[float]:
    run, lease = await app.journal.start(NewRun("call"), "bench", lease_s=600.0)
    assert lease is not None
    held: Lease = lease

    async def send() -> None:
        app.journal.append(held, [TOKEN])
        await app.journal.commit(held)

    await send()
    async with watched(port, f"/runs/{run.id}/stream", viewers):
        return [await per_token_s(send, viewers) for _ in range(ROUNDS)]


async def measure(home: Path, viewers: int) -> tuple[float, float]:
    provider = {"up": {"dialect": "chat", "base_url": "http://127.0.0.1:9/v1"}}
    config = {"model": {"provider": "up", "name": "none"}, "providers": provider, "server": {"drain_s": 0.1}}
    (home / "config.yaml").write_bytes(msgspec.json.encode(config))
    entry = Entry(1000, TOKEN, 1)
    event = sse_without_reasoning(StoredLine(entry.seq, entry.attempt, to_json(entry.event)))
    async with open_app(load({}, home)) as app, serving(app, port=0) as server:
        mine = await ours(app, int(server.url.rpartition(":")[2]), viewers)
    bare = await bare_loop(b"%x\r\n%b\r\n" % (len(event), event), viewers)
    return statistics.median(bare), statistics.median(mine)


def raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * VIEWERS if hard == resource.RLIM_INFINITY else min(4 * VIEWERS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def measured(viewers: int = VIEWERS) -> tuple[float, float]:
    """CPU seconds per viewer and token, of the bare loop and of ours."""
    raise_file_limit()
    with tempfile.TemporaryDirectory() as home:
        return uvloop.run(measure(Path(home), viewers))


def main() -> Table:
    bare, mine = measured()
    table = Table(f"{VIEWERS} viewers of one run", "what", "CPU µs per viewer and token", "ratio")
    table.row("a bare loop of transport.write", bare * 1e6, 1.0)
    table.row("Tailrace, committed", mine * 1e6, mine / bare)
    return table


if __name__ == "__main__":
    raise_file_limit()
    uvloop.run(clients(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
