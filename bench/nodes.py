"""Several nodes on one store: how long a token takes to a viewer on another node, how many come through, what one
costs against SQLite, and how soon a dead node's runs go on. Part of `python -m bench cluster`.

Nodes are processes of their own; the provider and the viewers are in this one. PostgreSQL and Redis are started from
the installed binaries, as the tests do. On few cores all of these compete: the processor time of a token says more
than the rate.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from bench.gateway.programs import cpu_s_of
from bench.stores import postgres_cpu_s
from bench.table import Table
from tailrace.wire.sse import SseDecoder

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from postgres_server import PostgresServer, running
from redis_server import RedisServer, redis_server

NODES = 3
LEASE_S = 1.0
STAMPED_TOKENS, STAMPED_PACE_S = 250, 0.01
FLAT_TOKENS, FLAT_RUNS = 5_000, 4  # runs on each node
SLOW_PACE_S = 0.02
ROUNDS = 3  # of all stores in turn, so that a noisy neighbour hits each
KILLS = 3


# ── the provider ──


def _chunk(text: str) -> bytes:
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return b"data: %b\n\n" % msgspec.json.encode(said)


END = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


async def _answer(request: web.Request) -> web.StreamResponse:
    """What is asked for is the last word of the question."""
    wish = msgspec.json.decode(await request.read())["messages"][-1]["content"]
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    if wish.endswith("flat"):
        for _ in range(FLAT_TOKENS // 5):
            await response.write(b"".join(_chunk(" word") for _ in range(5)))
            await asyncio.sleep(0)
    else:
        pace_s = STAMPED_PACE_S if wish.endswith("stamped") else SLOW_PACE_S
        for _ in range(STAMPED_TOKENS):
            await response.write(_chunk(f"{time.perf_counter()} "))
            await asyncio.sleep(pace_s)
    await response.write(END)
    return response


@asynccontextmanager
async def provider() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", _answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"{site.name}/v1"
    finally:
        await runner.cleanup()


# ── the nodes ──


class Store(NamedTuple):
    name: str
    url: str
    bus: str = "auto"
    server: PostgresServer | None = None
    redis: RedisServer | None = None

    def redis_cpu_s(self) -> float:
        return 0.0 if self.redis is None else cpu_s_of(self.redis.pid)


def start_serving(home: Path, config: Mapping[str, object]) -> tuple[subprocess.Popen[str], str]:
    """`tailrace serve` with this config and a home of its own; returns once it listens, with its address."""
    home.mkdir(parents=True)
    (home / "config.yaml").write_bytes(msgspec.json.encode(config))
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace", "serve", "--port", "0", "--log-level", "warning"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TAILRACE_HOME": str(home)},
        cwd=home,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


class Node:
    """`tailrace serve` in a home of its own."""

    def __init__(self, store: Store, upstream: str, home: Path) -> None:
        config = {
            "model": {"provider": "up", "name": "any"},
            "providers": {"up": {"dialect": "chat", "base_url": upstream}},
            "agent": {"tools": []},
            "store": {"url": store.url, "lease_s": LEASE_S},
            "bus": {"url": store.bus},
            "server": {"drain_s": 0.1},
        }
        self.process, self.url = start_serving(home, config)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Nodes:
    """The nodes of one store."""

    def __init__(self, store: Store, upstream: str, home: Path, client: aiohttp.ClientSession) -> None:
        self.store = store
        self._upstream = upstream
        self._home = home
        self._started = 0
        self._client = client
        self.living: list[Node] = []

    async def start(self) -> None:
        self._started += 1
        home = self._home / self.store.name.replace(" ", "") / str(self._started)
        self.living.append(await asyncio.to_thread(Node, self.store, self._upstream, home))

    async def run(self, node: Node, wish: str) -> str:
        async with self._client.post(node.url + "/runs", json={"input": f"Go: {wish}"}) as response:
            run_id: str = (await response.json())["id"]
            return run_id

    async def events(self, node: Node, run_id: str) -> AsyncIterator[tuple[float, dict[str, object]]]:
        """When each came, and what it is."""
        decoder = SseDecoder()
        async with self._client.get(f"{node.url}/runs/{run_id}/stream?after=0") as response:
            async for data in response.content.iter_any():
                now = time.perf_counter()
                for event in decoder.feed(data):
                    if event.data:
                        yield now, msgspec.json.decode(event.data)

    async def read(self, node: Node, run_id: str) -> None:
        """To its end, without a look at it."""
        async with self._client.get(f"{node.url}/runs/{run_id}/stream?after=0") as response:
            assert b"run_finished" in await response.read()


# ── what is measured ──


async def latencies_ms(nodes: Nodes, viewer: Node) -> list[float]:
    """From the provider's write to the viewer's read."""
    run_id = await nodes.run(nodes.living[0], "stamped")
    took: list[float] = []
    async for now, event in nodes.events(viewer, run_id):
        if event["type"] == "message_chunk":
            took += [(now - float(stamp)) * 1e3 for stamp in str(event["text"]).split()]
    return took[10:]  # the first ones wait for the viewer


class Load(NamedTuple):
    per_s: float
    node_us: float  # CPU of all nodes for each token
    server_us: float
    redis_us: float


async def load(nodes: Nodes, count: int) -> Load:
    """So many nodes execute runs at the same time, each watched at its own node."""
    working = nodes.living[:count]
    pids = [node.process.pid for node in nodes.living]
    began, spent, served = time.perf_counter(), sum(map(cpu_s_of, pids)), postgres_cpu_s(nodes.store.server)
    carried = nodes.store.redis_cpu_s()

    async def one(node: Node) -> None:
        await nodes.read(node, await nodes.run(node, "flat"))

    await asyncio.gather(*(one(node) for node in working for _ in range(FLAT_RUNS)))
    tokens = count * FLAT_RUNS * FLAT_TOKENS
    took = time.perf_counter() - began
    spent, served = sum(map(cpu_s_of, pids)) - spent, postgres_cpu_s(nodes.store.server) - served
    carried = nodes.store.redis_cpu_s() - carried
    return Load(tokens / took, spent / tokens * 1e6, served / tokens * 1e6, carried / tokens * 1e6)


async def takeover_s(nodes: Nodes) -> float:
    """From the death of a run's owner to the next event at a viewer on another node."""
    owner, viewer = nodes.living[0], nodes.living[1]
    run_id = await nodes.run(owner, "slow")
    killed_at = 0.0
    seen = 0
    async for now, _ in nodes.events(viewer, run_id):
        seen += 1
        if killed_at and now - killed_at > 3 * SLOW_PACE_S:  # not one that was under way
            nodes.living.remove(owner)
            await nodes.start()
            return now - killed_at
        if seen == 20:
            owner.kill()
            killed_at = time.perf_counter()
    raise RuntimeError("the run ended before its owner was killed")


# ── the tables ──


@contextmanager
def stores() -> Iterator[list[Store]]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(running(durable=True))
        redis = stack.enter_context(redis_server(home))
        yield [
            Store("SQLite", f"sqlite:///{home}/shared.db"),
            Store("PostgreSQL", server.url(), server=server),
            Store("PostgreSQL and Redis", server.url(), redis.url, server, redis),
        ]


class Figures(NamedTuple):
    """Of one store, a figure for each round."""

    same_ms: list[list[float]]
    other_ms: list[list[float]]
    loads: dict[int, list[Load]]  # by the number of nodes
    takeovers_s: list[float]


async def figures(all_nodes: list[Nodes]) -> list[Figures]:
    found = [Figures([], [], {count: [] for count in range(1, NODES + 1)}, []) for _ in all_nodes]
    for nodes in all_nodes:
        for _ in range(NODES):
            await nodes.start()
        await latencies_ms(nodes, nodes.living[1])  # warms up
    for _ in range(ROUNDS):
        for nodes, one in zip(all_nodes, found, strict=True):
            one.same_ms.append(await latencies_ms(nodes, nodes.living[0]))
            one.other_ms.append(await latencies_ms(nodes, nodes.living[1]))
            for count, loads in one.loads.items():
                loads.append(await load(nodes, count))
    for nodes, one in zip(all_nodes, found, strict=True):
        one.takeovers_s.extend([await takeover_s(nodes) for _ in range(KILLS)])
    return found


def _percentile(rounds: list[list[float]], percent: int) -> float:
    """The median of the rounds'."""
    return statistics.median(statistics.quantiles(took, n=100)[percent - 1] for took in rounds)


def tables(stores: list[Store], found: list[Figures]) -> list[Table]:
    waits = Table(
        "a token to a viewer, from the provider's write, ms",
        *("store", "same node: p50", "p99", "another node: p50", "p99", "another / same"),
    )
    rates = Table(
        f"tokens of agent runs, flat out, {FLAT_RUNS} at once on each node, {os.cpu_count()} cores for all",
        *("store", "nodes", "tokens/s", "of 1 node", "CPU µs/token: nodes", "of SQLite's", "PostgreSQL", "Redis"),
    )
    deaths = Table(f"kill -9 to the next event, lease {LEASE_S:g} s", "store", "median s", "longest s", "in leases")

    def typical(loads: list[Load]) -> Load:
        return Load(*map(statistics.median, zip(*loads, strict=True)))

    for store, one in zip(stores, found, strict=True):
        same, other = _percentile(one.same_ms, 50), _percentile(one.other_ms, 50)
        p99 = (_percentile(one.same_ms, 99), _percentile(one.other_ms, 99))
        waits.row(store.name, same, p99[0], other, p99[1], f"{other / same:.2f}")
        alone = typical(one.loads[1])
        for count, loads in one.loads.items():
            each, sqlite = typical(loads), typical(found[0].loads[count])
            costs = (each.node_us, f"{each.node_us / sqlite.node_us:.2f}", each.server_us, each.redis_us)
            rates.row(store.name, count, each.per_s, f"{each.per_s / alone.per_s:.2f}", *costs)
        median = statistics.median(one.takeovers_s)
        deaths.row(store.name, median, max(one.takeovers_s), f"{median / LEASE_S:.2f}")
    return [waits, rates, deaths]


async def measure() -> list[Table]:
    with tempfile.TemporaryDirectory() as home, stores() as opened:
        timeout, connector = aiohttp.ClientTimeout(total=None), aiohttp.TCPConnector(limit=0)
        async with provider() as upstream, aiohttp.ClientSession(timeout=timeout, connector=connector) as client:
            all_nodes = [Nodes(store, upstream, Path(home), client) for store in opened]
            try:
                return tables(opened, await figures(all_nodes))
            finally:
                for nodes in all_nodes:
                    for node in nodes.living:
                        node.kill()
