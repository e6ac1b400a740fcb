"""Viewers of one node and the run of another: PostgreSQL keeps the log, Redis carries it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from redis_server import RedisServer, redis_server
from tailrace.errors import ConfigError
from tailrace.events import MessageChunk, RunFinished
from tailrace.integrations.postgres import following
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.integrations.postgres.wakeups import Wakeup
from tailrace.integrations.redis.bus import RedisBus
from tailrace.journal.open_journal import open_journal
from tailrace.testing.conformance.sample_runs import everything, started, texts_of, written


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@pytest.fixture
async def nodes(redis: RedisServer, postgres_url: str) -> AsyncIterator[tuple[PostgresJournal, PostgresJournal]]:
    buses = [RedisBus(redis.url) for _ in range(2)]
    one, other = [await PostgresJournal.open(postgres_url, bus=bus) for bus in buses]
    for bus in buses:
        await connection(bus, made=True)
    yield one, other
    await one.close()
    await other.close()


async def connection(bus: RedisBus, *, made: bool) -> None:
    async with asyncio.timeout(20):
        while bus.connected != made:  # noqa: ASYNC110 - the bus tells nobody of its connections
            await asyncio.sleep(0)


async def test_redis_alone_brings_the_entries(
    nodes: tuple[PostgresJournal, PostgresJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_S", 600.0)
    one, other = nodes
    heard: list[Wakeup] = []
    run, lease = await started(one)
    viewer = other.tail(run.id, after=1)
    waiting = asyncio.ensure_future(anext(viewer))
    while run.id not in other._following._on_bus:  # noqa: ASYNC110 - until the viewer is attached
        await asyncio.sleep(0)
    monkeypatch.setattr(other._listener, "_woken", heard.append)
    seen = []
    for text in "abc":
        await written(one, lease, [MessageChunk(text)])
        seen += texts_of(await waiting)
        waiting = asyncio.ensure_future(anext(viewer))
    await one.seal(lease, RunFinished("completed", "abc"))
    assert [type(entry.event) for entry in await waiting] == [RunFinished]
    assert (seen, heard) == (["a", "b", "c"], [])


async def test_redis_killed_and_back_neither_loses_nor_doubles(
    nodes: tuple[PostgresJournal, PostgresJournal], redis: RedisServer
) -> None:
    one, other = nodes
    bus = one.bus
    assert isinstance(bus, RedisBus)
    run, lease = await started(one)
    watching = asyncio.ensure_future(everything(other.tail(run.id)))
    await written(one, lease, [MessageChunk("a")])
    redis.kill()
    await written(one, lease, [MessageChunk("b")])
    await connection(bus, made=False)
    await written(one, lease, [MessageChunk("c")])
    redis.start()
    await connection(bus, made=True)
    await written(one, lease, [MessageChunk("d")])
    await one.seal(lease, RunFinished("completed", "abcd"))
    entries = await watching
    assert texts_of(entries) == ["a", "b", "c", "d"]
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5, 6]


async def test_redis_goes_with_postgresql_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"bus.url: Redis carries entries between machines: store.url must be postg"):
        async with open_journal("sqlite:///t.db", tmp_path / "t.db", bus_url="redis://:hunter2@127.0.0.1:1/0"):
            pass
