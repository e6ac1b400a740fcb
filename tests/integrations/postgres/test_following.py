"""Runs that another process executes, with and without a bus beside the database."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence

import pytest

from tailrace.events import MessageChunk, RunFinished
from tailrace.integrations.postgres import following
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.integrations.postgres.wakeups import Wakeup
from tailrace.journal.bus import BusListener, Committed
from tailrace.ports import Batch, NewRun
from tailrace.testing.conformance.sample_runs import everything, finished_sequence, started, texts_of, written


class LoopBus:
    """A bus between journals of one loop, that loses what it is told to."""

    def __init__(self, others: list[LoopBus]) -> None:
        self._others = others
        others.append(self)
        self._listener: BusListener | None = None
        self.connected = True
        self.loses = False
        self.watched: dict[str, int] = {}
        self.carried = 0

    async def open(self, listener: BusListener) -> None:
        self._listener = listener

    def publish(self, committed: Sequence[Committed]) -> None:
        for bus in self._others:
            for run_id, batch in committed:
                if run_id in bus.watched and not self.loses and bus._listener is not None:
                    bus.carried += 1
                    bus._listener.arrived(run_id, batch)

    def watch(self, run_id: str, after: int) -> None:
        assert run_id not in self.watched
        self.watched[run_id] = after

    def unwatch(self, run_id: str) -> None:
        del self.watched[run_id]

    async def check(self) -> None: ...

    async def close(self) -> None: ...


@pytest.fixture
def buses() -> list[LoopBus]:
    return []


@pytest.fixture
async def pair(
    postgres_url: str, buses: list[LoopBus], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[PostgresJournal, PostgresJournal]]:
    monkeypatch.setattr(following, "POLL_S", 600.0)
    one, other = [await PostgresJournal.open(postgres_url, bus=LoopBus(buses)) for _ in range(2)]
    yield one, other
    await one.close()
    await other.close()


Pair = tuple[PostgresJournal, PostgresJournal]


async def test_a_bus_carries_the_entries_and_no_run_is_named(
    pair: Pair, buses: list[LoopBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    heard: list[Wakeup] = []
    monkeypatch.setattr(other._listener, "_woken", heard.append)
    run, lease = await started(one)
    watching = asyncio.ensure_future(everything(other.tail(run.id)))
    while run.id not in buses[1].watched:  # noqa: ASYNC110 - until the viewer is attached
        await asyncio.sleep(0)
    for text in "abc":
        await written(one, lease, [MessageChunk(text)])
    await one.seal(lease, RunFinished("completed", "abc"))
    assert texts_of(await watching) == ["a", "b", "c"]
    assert buses[1].carried == 4
    assert buses[1].watched == {}  # it has ended
    assert not [wakeup for wakeup in heard if wakeup.grown]


async def test_a_run_is_watched_on_the_bus_while_it_has_viewers_and_is_executed_elsewhere(
    pair: Pair, buses: list[LoopBus]
) -> None:
    one, other = pair
    run, lease = await started(one)
    viewer = other.tail(run.id)
    await anext(viewer)
    assert buses[1].watched == {run.id: 1}
    await one.release(lease)
    lease = await other.claim(run.id, "other")
    assert buses[1].watched == {}  # executed here
    await written(other, lease, [MessageChunk("a")])
    await other.release(lease)
    assert buses[1].watched == {run.id: 2}
    assert texts_of(await anext(viewer)) == ["a"]
    del viewer
    async with asyncio.timeout(20):
        while buses[1].watched:  # no viewer is left, but a read may still be under way for it
            await asyncio.sleep(0)
            gc.collect()
    assert buses[0].watched == {}


async def test_what_a_bus_lost_is_read(pair: Pair, buses: list[LoopBus]) -> None:
    one, other = pair
    run, lease = await started(one)
    viewer = other.tail(run.id, after=1)
    waiting = asyncio.ensure_future(anext(viewer))
    buses[0].loses = True
    await written(one, lease, [MessageChunk("a")])
    assert not waiting.done()
    other._following.missed()  # the bus knows that it was away
    assert texts_of(await waiting) == ["a"]
    await written(one, lease, [MessageChunk("b")])  # lost again, and the next one arrives without it
    buses[0].loses = False
    await written(one, lease, [MessageChunk("c")])
    assert texts_of([*await anext(viewer)]) == ["b", "c"]


async def test_a_slow_poll_finds_what_no_bus_knows_to_be_lost(
    pair: Pair, buses: list[LoopBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_S", 0.01)
    one, other = pair
    run, lease = await started(one)
    waiting = asyncio.ensure_future(anext(other.tail(run.id, after=1)))
    other._following._woken.set()  # with the shorter time from here on
    buses[0].loses = True
    await written(one, lease, [MessageChunk("a")])
    assert texts_of(await waiting) == ["a"]


async def test_without_the_bus_runs_are_named(pair: Pair, buses: list[LoopBus]) -> None:
    one, other = pair
    run, lease = await started(one)
    waiting = asyncio.ensure_future(anext(other.tail(run.id, after=1)))
    buses[0].connected, buses[0].loses = False, True
    await written(one, lease, [MessageChunk("a")])
    assert texts_of(await waiting) == ["a"]


async def test_all_runs_that_grew_are_read_in_one_query(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = [await PostgresJournal.open(postgres_url) for _ in range(2)]
    runs = [await started(one, NewRun("call")) for _ in range(50)]
    viewers = [other.tail(run.id, after=1) for run, _ in runs]
    waiting = [asyncio.ensure_future(anext(viewer)) for viewer in viewers]
    while len(other._tails) < 50 or other._following._grown:  # noqa: ASYNC110 - until each viewer is attached
        await asyncio.sleep(0)
    queries = 0
    query = other._readers.query

    async def counted(work: object, **kwargs: float) -> object:
        nonlocal queries
        queries += 1
        return await query(work, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(other._readers, "query", counted)
    for _, lease in runs:
        one.append(lease, [MessageChunk("a"), MessageChunk("b")])
    batches: list[Batch] = await asyncio.gather(*waiting)
    assert all(texts_of(batch) == ["a", "b"] for batch in batches)
    assert batches[0].page[0].json == b'{"type":"message_chunk","text":"a"}'
    assert queries <= 2
    await one.close()
    await other.close()


async def test_a_sequence_of_another_process_ends_with_its_whole_output(postgres_url: str) -> None:
    one, other = [await PostgresJournal.open(postgres_url) for _ in range(2)]
    seen: list[asyncio.Future[list[object]]] = []
    start = one.start

    async def start_and_watch(*args: object, **kwargs: object) -> object:
        run, lease = await start(*args, **kwargs)  # type: ignore[arg-type]
        seen.append(asyncio.ensure_future(everything(other.tail(run.id))))  # type: ignore[arg-type]
        return run, lease

    one.start = start_and_watch  # type: ignore[method-assign, assignment]
    _, entries, _ = await finished_sequence(one)
    assert await seen[0] == entries
    await one.close()
    await other.close()
