"""PostgreSQL and Redis go away and come back, for all nodes or for one: runs go on by themselves, and nothing is lost
or doubled (L145, I103)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from cluster.flights import KINDS, ChoosingProvider, Flight, check, check_fold, follow, take_off
from cluster.forked import Forker
from cluster.nodes import LEASE_S, Cluster, Node, SeenEvent, SharedStore
from postgres_server import USER, PostgresServer, replicated, running
from redis_server import RedisServer, redis_server
from tcp_proxy import proxied

UNREACHABLE_S = 10.0


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """Not the one that other tests use."""
    with running(durable=True) as server:
        yield server


class Watched:
    """Runs of every kind, begun on one node and watched from each."""

    def __init__(self, cluster: Cluster, ran: Path) -> None:
        self._cluster = cluster
        self._ran = ran
        self._count = 0
        self.runs: list[str] = []

    @asynccontextmanager
    async def in_flight(self, owner: Node) -> AsyncGenerator[None, None]:
        """They are in flight when the block begins; afterwards each has ended as it must, for each viewer."""
        self._count += 1
        flights: list[Flight] = []
        viewers: list[asyncio.Task[list[SeenEvent]]] = []
        nodes = self._cluster.nodes
        async with asyncio.TaskGroup() as group:
            for kind in KINDS:
                flight = await take_off(self._cluster, kind, f"{kind}{self._count}", owner)
                flights.append(flight)
                viewers += [group.create_task(follow(self._cluster, node, flight.run_id)) for node in nodes]
            yield
        for number, flight in enumerate(flights):
            seen, *others = [viewer.result() for viewer in viewers[number * len(nodes) :][: len(nodes)]]
            assert all(other == seen for other in others)
            await check(self._cluster, nodes[-1], flight, seen, self._ran)
            self.runs.append(flight.run_id)

    async def check_folds(self) -> None:
        async with self._cluster.journal() as journal:
            for run_id in self.runs:
                await check_fold(journal, run_id)


@asynccontextmanager
async def three_nodes(
    directory: Path, *stores: SharedStore
) -> AsyncGenerator[tuple[Cluster, list[Node], Watched], None]:
    ran = directory / "ran"
    ran.mkdir()
    async with ChoosingProvider(ran) as provider, Cluster(directory, stores[0], provider.openai_url) as cluster:
        nodes = [await cluster.start(store=store) for store in stores]
        yield cluster, nodes, Watched(cluster, ran)


async def test_I103_postgresql_is_restarted_killed_and_unreachable(
    tmp_path: Path, node_forker: Forker, own_postgres: PostgresServer
) -> None:
    async with proxied(own_postgres.port) as proxy:
        store = SharedStore(node_forker, "postgres", own_postgres.url(port=proxy.port))
        async with three_nodes(tmp_path, store, store, store) as (_, nodes, watched):
            async with watched.in_flight(nodes[0]):
                await asyncio.to_thread(own_postgres.stop)
                await asyncio.to_thread(own_postgres.start)
            async with watched.in_flight(nodes[1]):
                await asyncio.to_thread(own_postgres.kill)
                await asyncio.to_thread(own_postgres.start)
            async with watched.in_flight(nodes[2]):
                await proxy.refuse()
                await asyncio.sleep(UNREACHABLE_S)
                await proxy.accept()
            for owner in nodes:
                await owner.logged("cannot be reached")
                await owner.logged("is back")
            await watched.check_folds()


async def test_I103_the_primary_dies_and_its_standby_is_promoted(tmp_path: Path, node_forker: Forker) -> None:
    """Each node has the addresses of both and finds the one that can be written to. What anyone was shown is there."""
    with replicated() as (primary, standby):
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = f"postgresql://{USER}@{hosts}/postgres?target_session_attrs=read-write"
        store = SharedStore(node_forker, "postgres", url, durability="fsync")
        async with three_nodes(tmp_path, store, store, store) as (_, nodes, watched):
            async with watched.in_flight(nodes[0]):
                await asyncio.to_thread(primary.kill)
                await asyncio.to_thread(standby.promote)
            async with watched.in_flight(nodes[1]):  # the others find it as soon as they write
                pass
            await watched.check_folds()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


async def test_L145_one_node_is_cut_off_from_each(
    tmp_path: Path, node_forker: Forker, postgres_server: PostgresServer, redis: RedisServer
) -> None:
    schema = "t_" + tmp_path.name.lower()[-20:].replace("-", "_")
    shared = SharedStore(node_forker, "redis", postgres_server.url(schema), redis.url)
    async with AsyncExitStack() as stack:
        to_postgres = await stack.enter_async_context(proxied(postgres_server.port))
        to_redis = await stack.enter_async_context(proxied(redis.port))
        cut_off = shared._replace(
            url=postgres_server.url(schema, port=to_postgres.port), bus=f"redis://127.0.0.1:{to_redis.port}/0"
        )
        cluster, (behind, *others), watched = await stack.enter_async_context(
            three_nodes(tmp_path, cut_off, shared, shared)
        )
        # From PostgreSQL: its runs are taken over, and what it has to say when it is back is refused.
        async with watched.in_flight(behind):
            await to_postgres.refuse()
            taken = [asyncio.create_task(other.logged("going on with run")) for other in others]
            await asyncio.wait(taken, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(LEASE_S)
            await to_postgres.accept()
            for task in taken:
                task.cancel()
        await behind.logged("was taken over by another process")
        # From Redis: it reads PostgreSQL, and the others read what it has written there.
        for owner in (behind, others[0]):
            async with watched.in_flight(owner):
                await to_redis.refuse()
            await to_redis.accept()
        await behind.logged("is there again")
        # Redis itself: killed while runs are in flight, and back with nothing in it.
        async with watched.in_flight(others[1]):
            await asyncio.to_thread(redis.kill)
        async with watched.in_flight(behind):
            await asyncio.to_thread(redis.start)
        for node in cluster.nodes:
            await node.logged("is there again")
        async with watched.in_flight(others[0]):
            pass
        await watched.check_folds()
