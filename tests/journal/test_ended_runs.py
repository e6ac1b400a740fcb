"""Runs that end in memory are stored together, and nobody waits for that who did not ask to."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tailrace.errors import JournalError, OutputMismatch, RunNotFound, StorageFailed
from tailrace.events import MessageChunk, MessageRecorded, RunFinished
from tailrace.journal.memory_first import MemoryFirst
from tailrace.journal.memory_runs import MemoryRuns
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored.ended_runs import INTERVAL_S, EndedRun, EndedRuns
from tailrace.messages import Message, Text
from tailrace.ports import Lease, NewRun
from tailrace.testing.clock import driven

pytestmark = pytest.mark.timeout(60)  # a run that is never told of would be waited for ten minutes
NEW = NewRun("response", {"request": {"model": "m"}}, "m", durability="memory")


class Stored:
    """Storage that keeps what it is given, group by group."""

    def __init__(self, error: JournalError | None = None) -> None:
        self.groups: list[list[str]] = []
        self._group: list[str] = []
        self.error = error

    async def record(self, ended: EndedRun) -> None:
        """Runs that are recorded in the same tick are one group."""
        if not self._group:
            asyncio.get_running_loop().call_soon(self._end_group)
        self._group.append(ended.run.id)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error

    def _end_group(self) -> None:
        self.groups.append([*self._group])
        self._group.clear()


async def begun(journal: MemoryRuns | MemoryFirst, text: str = "Hello.") -> Lease:
    _, lease = await journal.start(NEW, "me")
    assert lease is not None
    journal.append(lease, [MessageChunk(text)])
    return lease


@driven
async def test_the_first_after_a_pause_is_stored_at_once_and_the_next_together() -> None:
    storage = Stored()
    journal = MemoryRuns(EndedRuns(storage.record))
    leases = [await begun(journal) for _ in range(5)]
    told: list[JournalError | None] = []
    for lease in leases[:1]:
        journal.seal_soon(lease, RunFinished("completed", "Hello."), told.append)
    await asyncio.sleep(INTERVAL_S / 5)
    assert storage.groups == [[leases[0].run_id]]
    for lease in leases[1:]:
        journal.seal_soon(lease, RunFinished("completed", "Hello."), told.append)
        await asyncio.sleep(INTERVAL_S / 10)
    assert len(storage.groups) == 1
    await asyncio.sleep(INTERVAL_S)
    assert storage.groups[1:] == [[lease.run_id for lease in leases[1:]]]
    assert told == [None] * 5
    assert not journal.live


@driven
async def test_a_run_that_is_waited_for_or_watched_is_not_held_back() -> None:
    storage = Stored()
    journal = MemoryRuns(EndedRuns(storage.record))
    first, sealed, watched = [await begun(journal) for _ in range(3)]
    loop = asyncio.get_running_loop()
    journal.seal_soon(first, RunFinished("completed", "Hello."), lambda _: None)
    await asyncio.sleep(INTERVAL_S / 5)
    began = loop.time()
    await journal.seal(sealed, RunFinished("completed", "Hello."))
    viewer = journal.tail(watched.run_id)
    await anext(viewer)
    waiting = asyncio.ensure_future(anext(viewer))
    await asyncio.sleep(0)
    journal.seal_soon(watched, RunFinished("completed", "Hello."), lambda _: None)
    assert isinstance((await waiting)[-1].event, RunFinished)
    assert loop.time() == began


async def test_a_run_that_could_not_be_stored_is_told_and_never_seen_to_end() -> None:
    broken = JournalError("the disk is full")
    journal = MemoryRuns(EndedRuns(Stored(broken).record))
    lease = await begun(journal)
    viewer = journal.tail(lease.run_id)
    *_, said = await anext(viewer)
    assert said.event == MessageChunk("Hello.")
    told: list[JournalError | None] = []
    with pytest.raises(OutputMismatch):
        journal.seal_soon(lease, RunFinished("completed", "Hullo."), told.append)
    journal.seal_soon(lease, RunFinished("completed", "Hello."), told.append)
    with pytest.raises(JournalError, match="disk"):
        await anext(viewer)
    assert told == [broken]
    with pytest.raises(JournalError, match="disk"):
        await journal.seal(await begun(journal), RunFinished("completed", "Hello."))


async def test_ended_runs_are_stored_whole_when_the_journal_is_closed(tmp_path: Path) -> None:
    journal = MemoryFirst(await SqliteJournal.open(tmp_path / "journal.db"))
    told: list[JournalError | None] = []
    expected = {}
    for number in range(100):
        lease = await begun(journal, f"answer {number}")
        finished = RunFinished("completed", f"answer {number}", at=1.0)
        expected[lease.run_id] = finished
        journal.seal_soon(lease, finished, told.append)
    await journal.close()
    assert told == [None] * 100
    again = await SqliteJournal.open(tmp_path / "journal.db")
    try:
        runs = await again.runs(limit=200)
        assert {run.id: run.finished for run in runs} == expected
        assert {(run.state, run.last_seq, run.claims) for run in runs} == {("completed", 3, 1)}
        for run in runs[:3]:
            entries = await again.read(run.id)
            assert [entry.seq for entry in entries] == [1, 2, 3]
            assert entries[1].event == MessageChunk(expected[run.id].output)
    finally:
        await again.close()


async def test_a_run_that_has_ended_is_told_as_ended(tmp_path: Path) -> None:
    journal = MemoryFirst(await SqliteJournal.open(tmp_path / "journal.db"))
    for listed in (False, True):
        lease = await begun(journal)
        journal.seal_soon(lease, RunFinished("completed", "Hello."), lambda _: None)
        run = (await journal.runs(limit=1))[0] if listed else await journal.get(lease.run_id)
        assert (run.id, run.state) == (lease.run_id, "completed")
    await journal.close()


async def test_a_run_that_is_no_json_does_not_fail_the_others(tmp_path: Path) -> None:
    journal = MemoryFirst(await SqliteJournal.open(tmp_path / "journal.db"))
    told: dict[str, JournalError | None] = {}
    leases = [await begun(journal) for _ in range(3)]
    journal.append(leases[1], [MessageRecorded(Message("assistant", (Text("\ud800"),)), "end")])
    for lease in leases:
        journal.seal_soon(lease, RunFinished("completed", "Hello."), lambda e, run=lease.run_id: told.update({run: e}))  # type: ignore[misc]
    await journal.close()
    assert [told[lease.run_id] is None for lease in leases] == [True, False, True]
    assert "JSON" in str(told[leases[1].run_id])


@driven
async def test_calls_that_storage_does_not_take_are_lost_and_the_log_says_so_once_per_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = Stored(StorageFailed("no space left"))
    journal = MemoryRuns(EndedRuns(storage.record))
    told: list[JournalError | None] = []

    async def end(count: int) -> list[str]:
        leases = [await begun(journal) for _ in range(count)]
        for lease in leases:
            journal.seal_soon(lease, RunFinished("completed", "Hello."), told.append)
        await asyncio.sleep(2 * INTERVAL_S)
        return [lease.run_id for lease in leases]

    lost = [*await end(3), *await end(2)]
    assert told == [storage.error] * 5
    for run_id in lost:
        with pytest.raises(RunNotFound):
            await journal.get(run_id)
    storage.error = None
    await end(1)
    assert told[5:] == [None]
    assert [record.getMessage() for record in caplog.records if record.name == "tailrace.journal"] == [
        "calls that end now are answered and not recorded, because storage fails: no space left",
        "calls are recorded again; 5 that ended meanwhile are on no record",
    ]


@driven
async def test_a_process_that_ends_says_how_many_calls_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    journal = MemoryRuns(EndedRuns(Stored(StorageFailed("no space left")).record))
    for _ in range(3):
        journal.seal_soon(await begun(journal), RunFinished("completed", "Hello."), lambda _: None)
    await journal.close()
    assert caplog.messages[1:] == ["3 calls that had ended are on no record"]


@driven
async def test_readers_do_not_wait_for_calls_that_end_later_where_storage_is_slow() -> None:
    class Slow(Stored):
        async def record(self, ended: EndedRun) -> None:
            await asyncio.sleep(0.2)
            await super().record(ended)

    ended_runs = EndedRuns(Slow().record)
    journal = MemoryRuns(ended_runs)
    recorded: list[str] = []
    ended: list[str] = []

    async def go_on() -> None:
        while True:
            lease = await begun(journal)
            ended.append(lease.run_id)
            then = partial(_note, recorded, lease.run_id)
            journal.seal_soon(lease, RunFinished("completed", "Hello."), then)
            await asyncio.sleep(0.02)

    going_on = asyncio.ensure_future(go_on())
    await asyncio.sleep(1.0)
    before = [*ended]
    async with asyncio.timeout(0.6):
        await ended_runs.flush()
    assert set(before) <= set(recorded)
    going_on.cancel()
    await ended_runs.close()
    assert sorted(recorded) == sorted(ended)


def _note(recorded: list[str], run_id: str, error: JournalError | None) -> None:
    assert error is None
    recorded.append(run_id)
