"""The live tail hears of a commit later than storage has it: however much later, no cursor is refused for it and no
entry is lost or repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from journal.stores import AnyStored, Store
from tailrace.errors import CursorAhead, StorageFailed
from tailrace.events import Entry, MessageChunk, RunFinished
from tailrace.integrations.postgres import following
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.live_tail import Tail
from tailrace.journal.sqlite import store as sqlite_store
from tailrace.ports import Batch, Journal, Lease
from tailrace.testing.conformance.sample_runs import everything, started, texts_of, written

MOST_STEPS = 12  # more than a viewer has; a longer delay is the same as none of its steps seeing the commit


class Steps:
    """Counts the reads of a journal, and calls back before or after one of them."""

    def __init__(self, journal: AnyStored, at: int, callback: Callable[[], None]) -> None:
        self._query: Callable[..., Any] = journal._readers.query
        self._at = at
        self._callback = callback
        self.count = 0
        journal._readers.query = self.query  # type: ignore[method-assign]

    def _step(self) -> None:
        if self.count == self._at:
            self._callback()
        self.count += 1

    async def query(self, work: object) -> Any:
        self._step()
        try:
            return await self._query(work)
        finally:
            self._step()


async def read_then_tail(journal: Journal, run_id: str) -> list[Entry]:
    """As a delivery does: everything in storage, then what follows."""
    entries = list(await journal.read(run_id))
    return entries + await everything(journal.tail(run_id, after=entries[-1].seq))


async def finish(journal: Journal, lease: Lease) -> None:
    await written(journal, lease, [MessageChunk("b")])
    await journal.seal(lease, RunFinished("completed", "ab"))


@pytest.mark.parametrize("delay", range(MOST_STEPS))
async def test_a_commit_that_is_published_late_in_its_own_process(store: Store, delay: int) -> None:
    journal = await store.open()
    run, lease = await started(journal)
    settle, committed = journal._commits._settle, asyncio.Event()
    held: list[Any] = []

    def hold(group: Any) -> None:
        held.append(group)
        committed.set()

    def publish() -> None:
        journal._commits._settle = settle  # type: ignore[method-assign]
        while held:
            settle(held.pop(0))

    journal._commits._settle = hold  # type: ignore[method-assign]
    journal.append(lease, [MessageChunk("a")])
    await committed.wait()
    steps = Steps(journal, delay, publish)
    watching = asyncio.ensure_future(read_then_tail(journal, run.id))
    async with asyncio.timeout(60):
        while held and not watching.done():
            before = steps.count
            await asyncio.wait([watching], timeout=0.01)
            if steps.count == before:
                publish()  # the viewer waits and reads nothing more
        await finish(journal, lease)
        seen = await watching
    assert [entry.seq for entry in seen] == [1, 2, 3, 4]
    assert texts_of(seen) == ["a", "b"]
    await journal.close()


@pytest.mark.parametrize("delay", range(MOST_STEPS))
async def test_a_commit_that_is_published_late_in_another_process(
    store: Store, monkeypatch: pytest.MonkeyPatch, delay: int
) -> None:
    ours, theirs = await store.open(), await store.open()
    run, lease = await started(ours)
    kept = await theirs.attach(run.id)  # an earlier viewer's
    follower, name = (theirs._following, "_read") if isinstance(theirs, PostgresJournal) else (theirs, "_follow")
    follow, published = getattr(follower, name), asyncio.Event()

    async def follow_late(*args: Any) -> Any:
        await published.wait()
        return await follow(*args)

    monkeypatch.setattr(follower, name, follow_late)
    await written(ours, lease, [MessageChunk("a")])
    steps = Steps(theirs, delay, published.set)
    watching = asyncio.ensure_future(read_then_tail(theirs, run.id))
    async with asyncio.timeout(60):
        while not published.is_set() and not watching.done():
            before = steps.count
            await asyncio.wait([watching], timeout=0.01)
            if steps.count == before:
                published.set()
        await finish(ours, lease)
        seen = await watching
    assert [entry.seq for entry in seen] == [1, 2, 3, 4]
    assert kept.last_seq == 4
    await ours.close()
    await theirs.close()


async def test_a_cursor_ahead_of_storage_is_refused_by_what_storage_has(store: Store) -> None:
    journal = await store.open()
    run, lease = await started(journal)
    await written(journal, lease, [MessageChunk("a")])
    with pytest.raises(CursorAhead, match="has 2 entries; the cursor says 3"):
        await anext(journal.tail(run.id, after=3))
    await journal.close()


def chunks(first: int, last: int) -> Batch:
    return Batch(Entry(seq, MessageChunk(str(seq))) for seq in range(first, last + 1))


def seqs_after(tail: Tail, after: int) -> list[int] | None:
    batch = tail.entries_after(after)
    return None if batch is None else [entry.seq for entry in batch]


def test_entries_that_storage_told_of_first_are_not_added_again() -> None:
    tail = Tail(last_seq=1)
    tail.publish(chunks(2, 4))
    tail.publish(chunks(3, 4))
    assert (tail.last_seq, seqs_after(tail, 1)) == (4, [2, 3, 4])
    tail.publish(chunks(4, 6))
    assert (tail.last_seq, seqs_after(tail, 2), seqs_after(tail, 4)) == (6, [3, 4, 5, 6], [5, 6])
    tail.publish(chunks(9, 9))  # 7 and 8 are in storage alone
    assert (tail.last_seq, seqs_after(tail, 6), seqs_after(tail, 8)) == (9, None, [9])


async def test_a_run_that_could_not_be_read_is_followed_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sqlite_store, following):
        monkeypatch.setattr(module, "RETRY_FIRST_S", 0.001)
    ours, theirs = await store.open(), await store.open()
    run, lease = await started(ours)
    query: Callable[..., Any] = theirs._readers.query
    failing, in_flight = False, 0

    async def fail_for_a_while(work: object) -> object:
        nonlocal in_flight
        if failing:
            raise StorageFailed("busy")
        in_flight += 1
        try:
            return await query(work)
        finally:
            in_flight -= 1

    monkeypatch.setattr(theirs._readers, "query", fail_for_a_while)
    tail = await theirs.attach(run.id)
    waiting = asyncio.ensure_future(anext(theirs.tail(run.id, after=1)))
    await asyncio.sleep(0)
    while in_flight:  # noqa: ASYNC110 - a read that has begun would see what is written below
        await asyncio.sleep(0)
    failing = True
    await written(ours, lease, [MessageChunk("a")])
    async with asyncio.timeout(60):
        with pytest.raises(StorageFailed):
            await waiting
        failing = False
        while tail.last_seq < 2:
            await tail.next_time().wait()
        assert texts_of(await anext(theirs.tail(run.id, after=1))) == ["a"]
    await ours.close()
    await theirs.close()
