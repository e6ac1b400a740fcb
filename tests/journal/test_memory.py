"""The memory journal keeps the contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tailrace.errors import JournalError, RunNotFound, RunOwned, StaleEpoch
from tailrace.events import MessageChunk, RunFinished
from tailrace.journal.live_tail import PAGE_ENTRIES, PAGE_LINES
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.memory_first import MemoryFirst
from tailrace.journal.memory_runs import MemoryRuns
from tailrace.journal.stored.ended_runs import EndedRun, EndedRuns
from tailrace.ports import Journal, NewRun
from tailrace.testing.conformance.journal import JournalConformance
from tailrace.testing.conformance.wall_clock import WallClock


class TestMemoryJournal(JournalConformance):
    @pytest.fixture
    async def journal(self, wall_clock: WallClock) -> AsyncIterator[Journal]:
        journal = MemoryJournal(clock=wall_clock)
        yield journal
        await journal.close()


async def test_I101_a_sessions_runs_keep_their_order_when_the_clock_is_set_back() -> None:
    clock = WallClock()
    journal = MemoryJournal(clock=clock)
    runs = []
    for seconds in (0.0, -3600.0, 0.0, 0.0):
        clock.now += seconds
        runs.append(await journal.create(NewRun("agent", session="s")))
    assert await journal.runs(session="s") == runs[::-1]


async def test_a_run_that_storage_will_not_record_ends_for_its_viewers_too() -> None:
    async def refuse(_ended: EndedRun) -> None:
        raise JournalError("no space left")

    journal = MemoryRuns(EndedRuns(refuse))
    run, lease = await journal.start(NewRun("call", durability="memory"), "me")
    assert lease is not None
    viewer = journal.tail(run.id, after=1)
    journal.append(lease, [MessageChunk("hi")])
    shown = await anext(viewer)
    with pytest.raises(JournalError, match="no space"):
        await journal.seal(lease, RunFinished("completed", "hi"))
    with pytest.raises(JournalError, match="no space"):
        await anext(viewer)
    assert [entry.event for entry in shown] == [MessageChunk("hi")]
    with pytest.raises(RunNotFound):
        await journal.get(run.id)


async def test_the_first_viewer_of_a_long_run_is_given_all_of_it_in_pages() -> None:
    """Nobody has looked before: its tail is made for this viewer."""
    journal = MemoryFirst(MemoryJournal())
    run, lease = await journal.start(NewRun("call", durability="memory"), "me")
    assert lease is not None
    for number in range(3000):
        journal.append(lease, [MessageChunk(f"{number} ")])
    await journal.commit(lease)
    viewer, seqs, longest = journal.tail(run.id), list[int](), 0
    while len(seqs) < 3001:
        batch = await anext(viewer)
        seqs += [entry.seq for entry in batch]
        longest = max(longest, len(batch))
    assert seqs == list(range(1, 3002))
    assert longest < PAGE_ENTRIES + PAGE_LINES
    journal.append(lease, [MessageChunk("last")])
    assert [entry.event for entry in await anext(viewer)] == [MessageChunk("last")]
    assert (await journal.get(run.id)).last_seq == 3002
    await journal.close()


async def test_a_run_in_memory_that_is_released_before_its_end_is_lost() -> None:
    journal = MemoryFirst(MemoryJournal())
    run, lease = await journal.start(NewRun("call", session="s", durability="memory"), "me")
    assert lease is not None
    viewer = journal.tail(run.id)
    await anext(viewer)
    waiting = asyncio.ensure_future(anext(viewer))
    for refused in (journal.claim(run.id, "you"), journal.compact(run.id), journal.delete(run.id)):
        with pytest.raises(RunOwned):
            await refused
    await journal.release(lease)
    with pytest.raises(StaleEpoch, match="in memory alone"):
        await waiting
    with pytest.raises(RunNotFound):
        await journal.get(run.id)
    await journal.close()


async def test_a_session_has_a_run_in_memory_once_that_has_ended() -> None:
    journal = MemoryFirst(MemoryJournal())
    run, lease = await journal.start(NewRun("agent", session="s", durability="memory"), "me")
    assert lease is not None
    watching = asyncio.ensure_future(journal.next_run("s", "agent", ""))
    assert [one.id for one in await journal.runs(session="s", states=["running"])] == [run.id]
    assert await journal.session("s", "agent") is None
    await journal.seal(lease, RunFinished("completed"))
    found = await journal.session("s", "agent")
    assert found is not None
    assert (found.newest.id, (await watching).id) == (run.id, run.id)
    await journal.close()
