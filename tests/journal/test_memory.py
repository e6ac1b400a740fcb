"""The memory journal keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tailrace.errors import JournalError, RunNotFound
from tailrace.events import MessageChunk, RunFinished
from tailrace.journal.live_tail import PAGE_ENTRIES, PAGE_LINES
from tailrace.journal.memory import MemoryJournal
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

    journal = MemoryJournal(ended_runs=EndedRuns(refuse))
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
    journal = MemoryJournal()
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
