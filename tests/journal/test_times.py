"""Times of entries: those of a log from before they were stored, and those of a steady stream in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from journal.stores import Store
from tailrace.events import Entry, MessageChunk, RunFinished
from tailrace.integrations.postgres import schema as postgres_schema
from tailrace.integrations.postgres.address import connect, parse_address
from tailrace.journal.memory_first import MemoryFirst
from tailrace.journal.sqlite import schema as sqlite_schema
from tailrace.journal.stored.commit_times import TickTimes, timed_stretches
from tailrace.journal.stored.rows import rows_of
from tailrace.ports import Journal, NewRun
from tailrace.testing.conformance.journal import started, written
from tailrace.testing.conformance.wall_clock import WallClock

OLD_FORMATS = {"sqlite": 4, "postgres": 1}  # the last ones without times


async def _without_times(store: Store, journal: Journal, run_id: str) -> None:
    """Makes the database what a version before has written: the column is gone."""
    await journal.close()
    if store.is_postgres:
        address = parse_address(store.url)
        connection = await connect(address, "test")
        await connection.execute("ALTER TABLE batches DROP COLUMN at; DROP TABLE counters")
        await connection.execute("UPDATE format SET version = $1", OLD_FORMATS["postgres"])
        await connection.close()
    else:
        with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as file, file:
            file.execute("DROP TRIGGER batches_removed")
            file.execute("ALTER TABLE batches DROP COLUMN at")
            for table in ("counters", "places", "indexed"):
                file.execute(f"DROP TABLE {table}")
            file.execute("CREATE UNIQUE INDEX batches_by_run ON batches (run, first_seq)")
            file.execute(f"PRAGMA user_version = {OLD_FORMATS['sqlite']}")
            assert file.execute("SELECT count(*) FROM runs WHERE id = ?", (run_id,)).fetchone() == (1,)


async def test_an_older_log_is_brought_to_this_version_without_times(store: Store) -> None:
    clock = WallClock()
    journal = await store.open(clock=clock)
    run, lease = await started(journal)
    await written(journal, lease, [MessageChunk("before")])
    await journal.release(lease)
    before = await journal.read(run.id)
    await _without_times(store, journal, run.id)

    journal = await store.open(clock=clock)
    assert (await journal.read(run.id), await journal.times(run.id)) == (before, [])
    clock.now += 100.0
    lease = await journal.claim(run.id, "next")
    await written(journal, lease, [MessageChunk(" and after")])
    clock.now += 1.0
    await journal.seal(lease, RunFinished("completed", "before and after"))
    known = [(3, clock.now - 1.0), (4, clock.now)]
    assert await journal.times(run.id) == known, "what was written before has no time"
    facts = await journal.facts(run.id)
    await journal.compact(run.id)
    assert (await journal.facts(run.id), await journal.times(run.id)) == (facts, known[1:])
    await journal.close()


def test_the_old_formats_are_those_before_the_column() -> None:
    assert " at " in sqlite_schema.MIGRATIONS[OLD_FORMATS["sqlite"]]
    assert " at " in postgres_schema.MIGRATIONS[OLD_FORMATS["postgres"]]


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
    times = TickTimes()
    for seq, at in ((1, 100.0), (2, 40.0), (3, 40.01), (4, 40.6)):
        times.add(seq, at)
    assert times.pairs == [(1, 100.0), (2, 40.0), (4, 40.6)]


def test_rows_of_different_times_are_never_one() -> None:
    entries = [Entry(seq, MessageChunk(str(seq))) for seq in (1, 2, 3, 7, 8)]
    stretches = list(timed_stretches(entries, [(2, 5.0), (3, 5.0), (5, 6.0), (8, 7.0)]))
    assert stretches == [
        (None, entries[:1]),
        (5.0, entries[1:3]),
        (6.0, entries[3:4]),
        (7.0, entries[4:]),
    ]
    assert [len(list(rows_of(stretch))) for _, stretch in stretches] == [1, 1, 1, 1]


@given(
    first=st.integers(1, 4),
    count=st.integers(1, 8),
    times=st.dictionaries(st.integers(1, 14), st.sampled_from([1.0, 2.0, 3.0]), max_size=6),
)
def test_a_run_without_gaps_is_cut_as_its_entries_would_be_grouped(
    first: int, count: int, times: dict[int, float]
) -> None:
    entries = [Entry(seq, MessageChunk(str(seq))) for seq in range(first, first + count)]
    pairs = sorted(times.items())
    assert list(timed_stretches(entries, pairs)) == list(timed_stretches(iter(entries), pairs))
