"""The bus between two processes, on a real Redis server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from redis_server import RedisServer, redis_server
from tailrace.errors import ConfigError, JournalError
from tailrace.events import AnyEvent, Entry, MessageChunk, RunFinished
from tailrace.integrations.redis import bus as bus_module
from tailrace.integrations.redis.bus import GROWN, RedisBus, batch_of, fields_of, grown_fields, id_of, ping, stream_of
from tailrace.journal.bus import Committed
from tailrace.ports import Batch

RUN = "run_1"


class Heard:
    """What the journal of a process is told."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Entry]] = {}
        self.misses = 0
        self._changed = asyncio.Event()

    def arrived(self, run_id: str, batch: Batch) -> None:
        self.entries.setdefault(run_id, []).extend(batch)
        self._changed.set()

    def missed(self) -> None:
        self.misses += 1
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def texts(self, run_id: str = RUN) -> str:
        return "".join(e.event.text for e in self.entries.get(run_id, []) if isinstance(e.event, MessageChunk))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[RedisBus, Heard]]:
    bus, heard = RedisBus(url), Heard()
    await bus.open(heard)
    try:
        await there(bus, heard)
        yield bus, heard
    finally:
        await bus.close()


async def there(bus: RedisBus, heard: Heard, *, misses: int = 1) -> None:
    """Returns when both connections are made."""
    await heard.until(lambda: heard.misses >= misses)
    await until(lambda: bus.connected)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the bus tells nobody of its connections
            await asyncio.sleep(0)


def batch(first: int, *events: AnyEvent, attempt: int = 1) -> Batch:
    return Batch(Entry(first + number, event, attempt) for number, event in enumerate(events))


def chunks(first: int, *texts: str) -> Committed:
    return Committed(RUN, batch(first, *map(MessageChunk, texts)))


async def test_entries_reach_the_process_that_watches_the_run(server: RedisServer) -> None:
    async with connected(server.url) as (sender, own), connected(server.url) as (watcher, heard):
        watcher.watch(RUN, after=0)
        sender.publish([chunks(1, "a", "b"), Committed("run_2", batch(1, MessageChunk("not watched")))])
        sender.publish([chunks(3, "c")])
        await heard.until(lambda: len(heard.entries.get(RUN, [])) == 3)
        assert heard.texts() == "abc"
        assert [entry.seq for entry in heard.entries[RUN]] == [1, 2, 3]
        assert "run_2" not in heard.entries
        assert not own.entries


async def test_a_watcher_that_comes_later_gets_what_follows_its_cursor(server: RedisServer) -> None:
    async with connected(server.url) as (sender, _), connected(server.url) as (watcher, heard):
        sender.publish([chunks(1, "a"), chunks(2, "b")])
        watcher.watch(RUN, after=1)
        await heard.until(lambda: heard.texts() == "b")
        watcher.unwatch(RUN)
        watcher.watch(RUN, after=2)
        sender.publish([chunks(3, "c")])
        await heard.until(lambda: heard.texts() == "bc")


async def test_what_a_commit_costs_does_not_grow_with_the_runs_that_are_watched(server: RedisServer) -> None:
    client = Redis.from_url(server.url)
    async with connected(server.url) as (one, _), connected(server.url) as (other, heard):
        for number in range(2_000):
            other.watch(f"run_watched_{number}", 0)
        other.watch(RUN, 0)
        one.publish([chunks(1, "a")])
        await heard.until(lambda: heard.texts() == "a")  # the others were looked at before
        before = (await client.info("stats"))["total_net_input_bytes"]
        for seq in range(2, 12):
            one.publish([chunks(seq, "b")])
            await heard.until(lambda seq=seq: heard.texts() == "a" + "b" * (seq - 1))  # type: ignore[misc]
        spent = (await client.info("stats"))["total_net_input_bytes"] - before
    await client.aclose()
    assert spent < 20_000  # 10 commits; a read that names 2,000 streams is 100,000 bytes


async def test_who_is_too_far_behind_looks_at_every_run_that_it_watches(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "KEPT_GROWN", 3)
    client = Redis.from_url(server.url)
    async with connected(server.url) as (one, _), connected(server.url) as (other, heard):
        other.watch(RUN, 0)
        one.publish([chunks(1, "a")])
        await heard.until(lambda: heard.texts() == "a")
        async with client.pipeline(transaction=True) as commits:  # that RUN grew is no longer named
            commits.xadd(stream_of(RUN), fields_of(chunks(2, "b").batch), id=id_of(2))  # type: ignore[arg-type]
            for _ in range(3):
                commits.xadd(GROWN, grown_fields(["run_other"]))  # type: ignore[arg-type]
            await commits.execute()
        await heard.until(lambda: heard.texts() == "ab")
    await client.aclose()


async def test_repeated_and_late_entries_are_refused_by_their_ids(server: RedisServer) -> None:
    async with connected(server.url) as (sender, _), connected(server.url) as (watcher, heard):
        watcher.watch(RUN, after=0)
        sender.publish([chunks(1, "a"), chunks(2, "b"), chunks(2, "b"), chunks(1, "a"), chunks(3, "c")])
        await heard.until(lambda: heard.texts().endswith("c"))
        assert heard.texts() == "abc"
        assert sender.connected


async def test_redis_gone_and_back_is_told_and_what_follows_arrives(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tailrace.journal")
    async with connected(server.url) as (sender, _), connected(server.url) as (watcher, heard):
        watcher.watch(RUN, after=0)
        sender.publish([chunks(1, "a")])
        await heard.until(lambda: heard.texts() == "a")
        server.kill()
        sender.publish([chunks(2, "b")])
        await until(lambda: not sender.connected)
        with pytest.raises(JournalError, match=r"Redis at 127.0.0.1:\d+ cannot be used: "):
            await sender.check()
        sender.publish([chunks(3, "c")])  # lost, and nothing waits for it
        before = heard.misses
        server.start()
        await there(sender, heard, misses=before + 1)  # the watcher was told to read from storage
        sender.publish([chunks(4, "d")])
        await heard.until(lambda: heard.texts() == "ad")
    for bus in ("begins", "ends"):
        said = "nodes read each other's entries from storage" if bus == "begins" else "is there again after"
        assert sum(said in record.message for record in caplog.records) == 2, "once for each of the two processes"


async def test_J114_what_is_wrong_with_the_address_is_said_in_one_line(server: RedisServer) -> None:
    async def refusal(url: str) -> str:
        with pytest.raises((JournalError, ConfigError)) as refused:
            await ping(url)
        assert "hunter2" not in str(refused.value)
        return str(refused.value)

    at = f"127.0.0.1:{server.port}"
    async with Redis.from_url(server.url) as client:
        await client.config_set("requirepass", "right")
    for url, said in {
        f"redis://:hunter2@{at}/0": f"Redis at {at} cannot be used: it refuses the user or the password",
        f"redis://{at}/0": f"Redis at {at} cannot be used: it asks for a password, and the address has none",
        f"redis://:right@{at}/99": f"Redis at {at} cannot be used: it has no database 99",
        "redis://:hunter2@127.0.0.1:1/0": "Redis at 127.0.0.1:1 cannot be used: connection refused",
        "redis://:hunter2@no-such-host.invalid/0": (
            "Redis at no-such-host.invalid:6379 cannot be used: its host name is unknown"
        ),
        f"redis://:hunter2@{at}/main": "bus.url: the database of Redis is a number, as in redis://localhost:6379/0",
        f"redis://:hunter2@{at}/0?colour=blue": "bus.url: unknown option of Redis: colour",
        f"redis://:hun/hunter2@{at}/0": "bus.url: special characters of the password must be percent-encoded",
        "redis://:hunter2@localhost:99999/0": "bus.url: not an address of Redis: Port out of range 0-65535",
    }.items():
        assert await refusal(url) == said
    await ping(f"redis://:right@{at}/0")


async def test_a_long_entry_is_left_to_storage(server: RedisServer) -> None:
    async with connected(server.url) as (sender, _), connected(server.url) as (watcher, heard):
        watcher.watch(RUN, after=0)
        before = heard.misses
        sender.publish([chunks(1, "x" * 300_000), chunks(2, "b")])
        await heard.until(lambda: heard.texts() == "b")
        assert heard.misses == before + 1


async def test_streams_are_trimmed_and_removed_after_the_end(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "KEPT_BATCHES", 10)
    async with connected(server.url) as (sender, _), connected(server.url) as (watcher, heard):
        watcher.watch(RUN, after=0)
        sender.publish([chunks(seq, "a") for seq in range(1, 1001)])
        await heard.until(lambda: 1000 in [entry.seq for entry in heard.entries.get(RUN, [])[-1:]])
        redis = Redis.from_url(server.url)
        assert await redis.xlen(stream_of(RUN)) < 250  # Redis trims by whole nodes of its tree
        assert 0 < await redis.ttl(stream_of(RUN)) <= bus_module.KEPT_S
        sender.publish([Committed(RUN, batch(1001, RunFinished("completed", "")))])
        await heard.until(lambda: heard.entries[RUN][-1].seq == 1001)
        assert 0 < await redis.ttl(stream_of(RUN)) <= bus_module.KEPT_AFTER_END_S
        await redis.aclose()


async def test_the_outbox_is_bounded(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(server.url) as (sender, _), connected(server.url) as (watcher, heard):
        watcher.watch(RUN, after=0)
        sender.publish([chunks(seq, "a") for seq in range(1, bus_module.MAX_OUTBOX + 101)])
        await heard.until(lambda: heard.entries.get(RUN, [Entry(0, MessageChunk(""))])[-1].seq > bus_module.MAX_OUTBOX)
        assert heard.entries[RUN][0].seq >= 101
    assert "100 commits were not sent" in caplog.text


async def test_an_address_that_can_never_work_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"bus.url"):
        await RedisBus("redis://127.0.0.1:not-a-port/").open(Heard())


def test_batches_are_read_back_as_they_were_written() -> None:
    entries = Batch((Entry(7, MessageChunk("a\nb\u2028"), 1), Entry(8, MessageChunk("c"), 2)))
    for one in (entries, batch(3, MessageChunk("a"), MessageChunk("b"), attempt=4)):
        back = batch_of(fields_of(one))
        assert back == one
        assert back is not None
        assert back.page == one.page
