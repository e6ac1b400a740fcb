"""Times of entries, of a steady stream in memory above all."""

from __future__ import annotations

from journal.stores import Store
from tailrace.events import Entry, MessageChunk, RunFinished
from tailrace.journal.memory_first import MemoryFirst
from tailrace.journal.stored.commit_times import TickTimes, timed_stretches
from tailrace.journal.stored.rows import rows_of
from tailrace.ports import NewRun
from tailrace.testing.conformance.sample_runs import started, written
from tailrace.testing.conformance.wall_clock import WallClock


async def test_a_run_in_memory_is_recorded_with_its_times(store: Store) -> None:
    clock = WallClock()
    storage = await store.open(clock=clock)
    journal = MemoryFirst(storage, clock=clock)
    began = clock.now
    run, lease = await started(journal, NewRun("call", durability="memory"))
    for wait_s in (3.0, *[1 / 32] * 32, 4.0, 1 / 32):  # the first token, a steady stream of a second, a stall
        clock.now += wait_s
        await written(journal, lease, [MessageChunk("x")])
    live = await journal.times(run.id)
    clock.now += 0.5
    await journal.seal(lease, RunFinished("completed", 35 * "x"))
    recorded = await storage.times(run.id)
    assert recorded == [*live, (37, clock.now)]
    after_s = [(seq, at - began) for seq, at in recorded]
    assert after_s == [(1, 0.0), (2, 3.0), (18, 3.5), (34, 4.0), (35, 8.0), (37, 8.53125)]
    assert [entry.seq for entry in await storage.read(run.id)] == list(range(1, 38))
    assert (await storage.get(run.id)).last_seq == 37
    await journal.close()


async def test_the_end_that_follows_at_once_is_recorded_with_what_precedes_it(store: Store) -> None:
    clock = WallClock()
    storage = await store.open(clock=clock)
    journal = MemoryFirst(storage, clock=clock)
    run, lease = await started(journal, NewRun("call", durability="memory"))
    await written(journal, lease, [MessageChunk("x")])
    live = await journal.times(run.id)
    clock.now += 1 / 32
    await journal.seal(lease, RunFinished("completed", "x", at=clock.now))
    assert (live, await storage.times(run.id)) == ([(1, clock.now - 1 / 32)], live), "a short run is one row"
    assert [entry.seq for entry in await storage.read(run.id)] == [1, 2, 3]
    await journal.close()


def test_a_clock_that_is_set_back_is_told_too() -> None:
    times = TickTimes(1, 100.0)
    for seq, at in ((2, 40.0), (3, 40.01), (4, 40.6)):
        times.add(seq, at)
    assert times.pairs == [(1, 100.0), (2, 40.0), (4, 40.6)]


def test_rows_of_different_times_are_never_one() -> None:
    entries = [Entry(seq, MessageChunk(str(seq))) for seq in (1, 2, 3, 7, 8)]
    stretches = list(timed_stretches(entries, [(2, 5.0), (3, 5.0), (5, 6.0), (8, 7.0)]))
    assert stretches == [(None, entries[:1]), (5.0, entries[1:3]), (6.0, entries[3:4]), (7.0, entries[4:])]
    assert [len(list(rows_of(stretch))) for _, stretch in stretches] == [1, 1, 1, 1]
