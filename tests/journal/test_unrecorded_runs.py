"""Runs that end while storage takes no writes are kept, within bounds, and stored in their order later."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tailrace.errors import JournalError, RunNotFound, StorageFailed
from tailrace.events import MessageChunk, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.memory_first import MemoryFirst
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored.ended_runs import INTERVAL_S, RETRY_FIRST_S, RETRY_MAX_S, STORED_TOGETHER, EndedRuns
from tailrace.journal.stored.unrecorded_runs import EndedRun, UnrecordedRuns
from tailrace.ports import Lease, NewRun
from tailrace.testing.clock import driven

pytestmark = pytest.mark.timeout(60)  # a run that is never told of would be waited for ten minutes
NEW = NewRun("response", {"request": {"model": "m"}}, "m", durability="memory")
DONE = RunFinished("completed", "Hello.")


class Storage:
    """Keeps the ids of what it is given, while it is not full."""

    def __init__(self, *, full: bool = True) -> None:
        self.full = full
        self.tries = 0
        self.groups: list[list[str]] = []

    async def record_all(self, ended: Sequence[EndedRun]) -> list[JournalError | None]:
        self.tries += 1
        await asyncio.sleep(0)
        if self.full:
            raise StorageFailed("no space left")
        self.groups.append([each.run.id for each in ended])
        return [None for _ in ended]

    @property
    def stored(self) -> list[str]:
        return [run_id for group in self.groups for run_id in group]


class Calls:
    """Calls that end in memory, one after the other, and what was said about each in the end."""

    def __init__(self, journal: MemoryJournal | MemoryFirst) -> None:
        self.journal = journal
        self.run_ids: list[str] = []
        self.told: dict[str, JournalError | None] = {}

    async def begin(self, text: str = "Hello.") -> Lease:
        _, lease = await self.journal.start(NEW, "me")
        assert lease is not None
        self.journal.append(lease, [MessageChunk(text)])
        return lease

    async def end(self, count: int = 1, text: str = "Hello.") -> None:
        for _ in range(count):
            lease = await self.begin(text)
            self.run_ids.append(lease.run_id)
            self.journal.seal_soon(lease, RunFinished("completed", text), partial(self._tell, lease.run_id))

    def _tell(self, run_id: str, why: JournalError | None) -> None:
        assert run_id not in self.told
        self.told[run_id] = why

    @property
    def lost(self) -> list[str]:
        return [run_id for run_id, why in self.told.items() if why is not None]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tailrace.journal"]


@driven
async def test_calls_that_end_while_nothing_can_be_written_are_recorded_in_order_when_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = Storage()
    calls = Calls(MemoryJournal(ended_runs=EndedRuns(storage.record_all)))
    for _ in range(5):
        await calls.end(20)
        await asyncio.sleep(2 * INTERVAL_S)
    assert (storage.stored, calls.told) == ([], {})
    storage.full = False
    await asyncio.sleep(RETRY_FIRST_S)
    assert storage.stored == calls.run_ids
    assert max(map(len, storage.groups)) == STORED_TOGETHER
    assert calls.told == dict.fromkeys(calls.run_ids)
    assert await calls.journal.runs() == []
    assert lines(caplog) == [
        "calls that end are kept in memory until they can be recorded: no space left",
        "calls that were kept in memory: 100 are on record now",
    ]
    await calls.end()
    await asyncio.sleep(INTERVAL_S)
    assert storage.stored == calls.run_ids


@driven
async def test_storage_that_is_full_for_long_is_tried_now_and_then_and_not_for_each_call() -> None:
    storage = Storage()
    calls = Calls(MemoryJournal(ended_runs=EndedRuns(storage.record_all)))
    for _ in range(600):  # a minute
        await calls.end()
        await asyncio.sleep(0.1)
    assert storage.tries < 10 + 60 / RETRY_MAX_S
    storage.full = False
    await asyncio.sleep(RETRY_MAX_S)
    assert storage.stored == calls.run_ids


@driven
async def test_a_call_that_is_kept_has_ended_for_all_who_look() -> None:
    storage = Storage()
    journal = MemoryJournal(ended_runs=EndedRuns(storage.record_all))
    calls = Calls(journal)
    lease = await calls.begin()
    viewer = journal.tail(lease.run_id, after=2)
    waiting = asyncio.ensure_future(anext(viewer))
    await asyncio.sleep(0)
    journal.seal_soon(lease, DONE, lambda _: None)
    [last] = await waiting
    assert last.event == DONE
    run = await journal.get(lease.run_id)
    assert (run.state, run.finished, run.owner) == ("completed", DONE, "")
    await asyncio.sleep(3600)
    assert await journal.orphans() == []
    storage.full = False
    await asyncio.sleep(RETRY_MAX_S)
    assert storage.stored == [lease.run_id]
    with pytest.raises(StopAsyncIteration):
        await anext(viewer)


@driven
async def test_a_call_that_is_waited_for_is_told_at_once_that_nothing_can_be_written() -> None:
    storage = Storage()
    journal = MemoryJournal(ended_runs=EndedRuns(storage.record_all))
    calls = Calls(journal)
    await calls.end()
    await asyncio.sleep(INTERVAL_S)
    with pytest.raises(StorageFailed):
        await journal.seal(await calls.begin(), DONE)
    storage.full = False
    waited_for = await calls.begin()
    await journal.seal(waited_for, DONE)
    assert storage.stored == [waited_for.run_id]
    await asyncio.sleep(RETRY_FIRST_S)
    assert storage.stored == [waited_for.run_id, *calls.run_ids]


@driven
async def test_of_more_calls_than_are_kept_the_oldest_are_lost_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = Storage()
    calls = Calls(MemoryJournal(ended_runs=EndedRuns(storage.record_all, UnrecordedRuns(max_runs=10))))
    for _ in range(3):
        await calls.end(10)
        await asyncio.sleep(2 * INTERVAL_S)
    assert calls.lost == calls.run_ids[:20]
    assert {str(why) for why in calls.told.values()} == {"it could not be kept any longer: no space left"}
    storage.full = False
    await asyncio.sleep(RETRY_MAX_S)
    assert storage.stored == calls.run_ids[20:]
    assert lines(caplog) == [
        "calls that end are kept in memory until they can be recorded: no space left",
        "more ended calls wait to be recorded than are kept in memory: the oldest are lost",
        "calls that were kept in memory: 10 are on record now, 20 are lost",
    ]


@pytest.mark.parametrize("text", ["x" * 100_000, "Hello."])
async def test_what_is_kept_takes_about_as_much_memory_as_it_may(text: str) -> None:
    max_bytes = 4 << 20
    ended_runs = EndedRuns(Storage().record_all, UnrecordedRuns(max_bytes=max_bytes))
    journal = MemoryJournal(ended_runs=ended_runs)
    lost: list[JournalError | None] = []
    tracemalloc.start()
    try:
        while len(lost) < 20:
            for _ in range(10):
                _, lease = await journal.start(NEW, "me")
                assert lease is not None
                for piece in [f"{text} ", *(f"{number} " for number in range(50))]:
                    journal.append(lease, [MessageChunk(piece)])
                said = f"{text} " + "".join(f"{number} " for number in range(50))
                journal.seal_soon(lease, RunFinished("completed", said), lost.append)
            await ended_runs.flush()
            await asyncio.sleep(0)  # their ends are shown
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max_bytes / 3 < taken < max_bytes * 1.25


@driven
async def test_a_process_that_ends_says_how_many_calls_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage()
    journal = MemoryJournal(ended_runs=EndedRuns(storage.record_all))
    calls = Calls(journal)
    await calls.end(3)
    await asyncio.sleep(INTERVAL_S)
    await calls.end(4)
    await journal.close()
    assert calls.lost == calls.run_ids
    assert lines(caplog)[1:] == ["7 calls that had ended are not on record and are lost: no space left"]
    assert all(isinstance(why, StorageFailed) and why.announced for why in calls.told.values())


@driven
async def test_a_process_that_ends_records_what_it_can(caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage()
    journal = MemoryJournal(ended_runs=EndedRuns(storage.record_all))
    calls = Calls(journal)
    await calls.end(100)
    await asyncio.sleep(INTERVAL_S)
    storage.full = False
    await journal.close()
    assert storage.stored == calls.run_ids
    assert calls.lost == []
    assert len(lines(caplog)) == 2


class SlowStorage(Storage):
    """Each group takes a while."""

    def __init__(self, *, full: bool = False) -> None:
        super().__init__(full=full)
        self.took_s = 0.2

    async def record_all(self, ended: Sequence[EndedRun]) -> list[JournalError | None]:
        await asyncio.sleep(self.took_s)
        return await super().record_all(ended)


@driven
async def test_nobody_waits_for_calls_that_end_later_where_storage_is_slow() -> None:
    """Readers wait for what has ended before they ask. Calls that end without a pause do not keep them."""
    storage = SlowStorage()
    ended_runs = EndedRuns(storage.record_all)
    calls = Calls(MemoryJournal(ended_runs=ended_runs))

    async def go_on() -> None:
        while True:
            await calls.end()
            await asyncio.sleep(0.02)

    going_on = asyncio.ensure_future(go_on())
    await asyncio.sleep(1.0)
    before = [*calls.run_ids]
    async with asyncio.timeout(3 * storage.took_s):
        await ended_runs.flush()
    assert set(before) <= calls.told.keys()
    going_on.cancel()
    await ended_runs.close()
    assert sorted(storage.stored) == sorted(calls.run_ids)


@driven
async def test_slow_storage_that_takes_everything_loses_nothing() -> None:
    storage = SlowStorage()
    ended_runs = EndedRuns(storage.record_all, UnrecordedRuns(max_runs=1, max_bytes=1))
    calls = Calls(MemoryJournal(ended_runs=ended_runs))
    for _ in range(10):
        await calls.end(3)
        await asyncio.sleep(0.06)
    await ended_runs.close()
    assert storage.stored == calls.run_ids
    assert calls.lost == []


@driven
async def test_groups_that_storage_refuses_one_after_the_other_are_recorded_once_and_in_order() -> None:
    storage = SlowStorage(full=True)
    ended_runs = EndedRuns(storage.record_all)
    calls = Calls(MemoryJournal(ended_runs=ended_runs))
    for _ in range(6):  # several are under way when the first of them is refused
        await calls.end(2)
        await asyncio.sleep(0.06)
    await asyncio.sleep(1.0)
    storage.full = False
    await calls.end(2)
    await asyncio.sleep(20.0)
    assert storage.stored == calls.run_ids
    assert calls.told == dict.fromkeys(calls.run_ids)


@driven
async def test_readers_wait_for_a_group_and_not_for_all_that_was_kept() -> None:
    storage = SlowStorage(full=True)
    storage.took_s = 0.0
    ended_runs = EndedRuns(storage.record_all)
    calls = Calls(MemoryJournal(ended_runs=ended_runs))
    await calls.end(20 * STORED_TOGETHER)
    await ended_runs.flush()
    storage.full, storage.took_s = False, 1.0
    await asyncio.sleep(RETRY_FIRST_S + 1.5 * storage.took_s)
    assert len(storage.stored) == STORED_TOGETHER
    async with asyncio.timeout(2 * storage.took_s):
        await ended_runs.flush()
    assert len(storage.stored) < len(calls.run_ids)
    await ended_runs.close()
    assert storage.stored == calls.run_ids


@driven
async def test_a_call_that_is_to_be_deleted_is_waited_for_where_it_is_on_its_way_to_storage() -> None:
    storage = SlowStorage(full=True)
    storage.took_s = 0.0
    ended_runs = EndedRuns(storage.record_all)
    calls = Calls(MemoryJournal(ended_runs=ended_runs))
    await calls.end()
    await ended_runs.flush()
    storage.full, storage.took_s = False, 1.0
    await asyncio.sleep(RETRY_FIRST_S + storage.took_s / 2)
    assert storage.stored == []
    await ended_runs.flush_run(calls.run_ids[0])
    assert storage.stored == calls.run_ids


async def test_a_call_that_is_deleted_while_it_is_kept_is_never_recorded(tmp_path: Path) -> None:
    storage = await SqliteJournal.open(tmp_path / "journal.db")
    journal = MemoryFirst(storage)
    calls = Calls(journal)
    storage._connection.execute("PRAGMA max_page_count = 1")
    await calls.end(2, "x" * 100_000)
    deleted, kept = calls.run_ids
    assert [run.state for run in await journal.runs()] == ["completed", "completed"]
    await journal.delete(deleted)
    with pytest.raises(RunNotFound):
        await journal.get(deleted)
    storage._connection.execute("PRAGMA max_page_count = 1000000")
    await journal.close()
    assert calls.told == {deleted: None, kept: None}
    again = await SqliteJournal.open(tmp_path / "journal.db")
    try:
        assert [(run.id, run.state) for run in await again.runs()] == [(kept, "completed")]
    finally:
        await again.close()
