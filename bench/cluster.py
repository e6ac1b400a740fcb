"""What a second worker process brings: `tailrace serve --workers 2` against 1, on one SQLite file. And several nodes on
one store: `bench.nodes`.

    python -m bench cluster

Provider, server and clients are processes of their own and compete for the cores. On a machine with as many cores as
workers the second worker can only win what the others leave it. So there are two figures: what came through in a
second, and what one second of the server's own CPU time brings, over all its processes. The second one says what the
workers cost each other; times the cores that a server has for itself, it is what to expect of a larger machine. Rounds
of one and two workers alternate, so a noisy neighbour hits both.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import msgspec
import uvloop

from bench.gateway.programs import cpu_s_of
from bench.nodes import measure as measure_nodes
from bench.nodes import start_serving
from bench.server import FLAT_TOKENS, Process, read_cheaply, session
from bench.table import Table

ROUNDS = 5
STREAMS = 8  # of FLAT_TOKENS
CLIENTS, REQUESTS = 16, 25  # each client sends so many, one after the other
RUNS = 6  # of the agent, each client
SHORT_TOKENS = 10


class Server:
    """`tailrace serve` with so many workers."""

    def __init__(self, upstream: str, home: Path, workers: int) -> None:
        config = {
            "model": {"provider": "up", "name": "short"},
            "providers": {"up": {"dialect": "chat", "base_url": upstream + "/v1"}},
            "server": {"drain_s": 0.1, "workers": workers},
        }
        self._process, self.url = start_serving(home, config)
        self.port = int(self.url.rpartition(":")[2])
        while workers > 1 and len(self._workers()) < workers:
            time.sleep(0.05)
        time.sleep(1.0)  # the last worker has begun to listen

    def _workers(self) -> list[int]:
        pid = self._process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]

    def cpu_s(self) -> float:
        """Of all its processes so far."""
        return sum(map(cpu_s_of, [self._process.pid, *self._workers()]))

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(30)


class Rate(msgspec.Struct):
    per_s: float
    per_cpu_s: float


async def measured(server: Server, count: int, work: Callable[[Server], Awaitable[None]]) -> Rate:
    began, cpu = time.perf_counter(), server.cpu_s()
    await work(server)
    return Rate(count / (time.perf_counter() - began), count / (server.cpu_s() - cpu))


# ── the loads ────────────────────────────────────────────────────────────────────────────────────────────────


async def streams(server: Server) -> None:
    seen = await asyncio.gather(*(read_cheaply(server.port, "up/flat") for _ in range(STREAMS)))
    assert all(stream.whole and stream.tokens == FLAT_TOKENS for stream in seen), "tokens were lost"


async def requests(server: Server) -> None:
    async def client() -> None:
        for _ in range(REQUESTS):
            assert (await read_cheaply(server.port, "up/short")).whole

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def runs(server: Server) -> None:
    async def client(http: aiohttp.ClientSession) -> None:
        for _ in range(RUNS):
            async with http.post(server.url + "/runs", json={"input": "Go."}) as response:
                run_id = (await response.json())["id"]
            async with http.get(f"{server.url}/runs/{run_id}/stream") as response:
                assert b"run_finished" in await response.read()

    async with session() as http:
        await asyncio.gather(*(client(http) for _ in range(CLIENTS)))


LOADS: tuple[tuple[str, int, Callable[[Server], Awaitable[None]]], ...] = (
    (f"tokens of raw streams ({STREAMS} at once, flat out)", STREAMS * FLAT_TOKENS, streams),
    (f"raw requests of {SHORT_TOKENS} tokens ({CLIENTS} clients)", CLIENTS * REQUESTS, requests),
    (f"agent runs in the journal, watched ({CLIENTS} clients)", CLIENTS * RUNS, runs),
)


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def servers() -> Iterator[tuple[Server, Server]]:
    upstream = Process("provide")
    with tempfile.TemporaryDirectory() as home:
        started: list[Server] = []
        try:
            started.append(Server(upstream.url, Path(home) / "one", 1))
            started.append(Server(upstream.url, Path(home) / "two", 2))
            yield started[0], started[1]
        finally:
            for server in started:
                server.end()
            upstream.end()


async def measure() -> Table:
    table = Table(
        f"one worker and two, {os.cpu_count()} cores for the server, its provider and its clients",
        *("what, per second", "1 worker", "2 workers", "2 / 1", "per CPU second: 1 worker", "2 workers", "ratio"),
    )
    with servers() as (one, two):
        for name, count, work in LOADS:
            pairs = [(await measured(one, count, work), await measured(two, count, work)) for _ in range(ROUNDS + 1)]
            alone, both = ([pair[index] for pair in pairs[1:]] for index in (0, 1))  # the first round warms up
            rates = [statistics.median(rate.per_s for rate in side) for side in (alone, both)]
            costs = [statistics.median(rate.per_cpu_s for rate in side) for side in (alone, both)]
            table.row(name, *rates, f"{rates[1] / rates[0]:.2f}", *costs, f"{costs[1] / costs[0]:.2f}")
    return table


def main() -> list[Table]:
    workers = uvloop.run(measure())
    if not Path("/usr/lib/postgresql").exists() or shutil.which("redis-server") is None:
        print("PostgreSQL or Redis is not installed: several nodes are not measured")
        return [workers]
    return [workers, *uvloop.run(measure_nodes())]


if __name__ == "__main__":
    print(*main(), sep="\n\n")
