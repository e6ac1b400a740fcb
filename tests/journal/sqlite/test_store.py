"""The SQLite journal keeps the contract, with and without runs that live in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from journal.shared_journal import OpenShared, SharedJournalConformance
from tailrace.errors import CorruptLog
from tailrace.events import Entry, RunFinished, StepFinished
from tailrace.journal.fold import SEQUENCE, outputs_text
from tailrace.journal.open_journal import open_journal
from tailrace.journal.sqlite import statements
from tailrace.journal.sqlite.schema import connect, prepare
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored.ended_runs import EndedRun
from tailrace.ports import Journal, NewRun, Run, Signal
from tailrace.testing.conformance.journal import JournalConformance
from tailrace.testing.conformance.sample_runs import finished_sequence, started
from tailrace.testing.conformance.wall_clock import WallClock


class TestSqliteJournal(JournalConformance):
    @pytest.fixture
    async def journal(self, tmp_path: Path, wall_clock: WallClock) -> AsyncIterator[Journal]:
        journal = await SqliteJournal.open(tmp_path / "runs.db", clock=wall_clock)
        yield journal
        await journal.close()


class TestOpenedByUrl(JournalConformance):
    @pytest.fixture
    async def journal(self, tmp_path: Path, wall_clock: WallClock) -> AsyncIterator[Journal]:
        async with open_journal("sqlite:///runs.db", tmp_path / "runs.db", clock=wall_clock) as journal:
            yield journal


class TestSharedSqliteJournal(SharedJournalConformance):
    @pytest.fixture
    async def open_shared(self, tmp_path: Path) -> AsyncIterator[OpenShared]:
        async with AsyncExitStack() as stack:

            async def open_shared(clock: Callable[[], float]) -> Journal:
                database = tmp_path / "runs.db"
                return await stack.enter_async_context(open_journal("sqlite:///runs.db", database, clock=clock))

            yield open_shared


async def test_a_change_wakes_only_who_waits_for_that_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    reads: list[str] = []
    get_value = SqliteJournal.get_value

    async def counted(self: SqliteJournal, namespace: str, key: str) -> bytes | None:
        reads.append(key)
        try:
            return await get_value(self, namespace, key)
        finally:
            has_read.set()

    has_read = asyncio.Event()
    monkeypatch.setattr(SqliteJournal, "get_value", counted)
    waiting = asyncio.ensure_future(journal.next_value("n", "k", None))
    await has_read.wait()  # a thread that reads late would find the value that comes below
    for number in range(20):
        await journal.swap_value("n", "other", str(number - 1).encode() if number else None, str(number).encode())
    assert reads == ["k"]
    await journal.swap_value("n", "k", None, b"1")
    assert await waiting == b"1"
    assert reads == ["k", "k"]
    await journal.close()


def times_stored(path: Path, text: bytes) -> int:
    with closing(connect(path, writer=False)) as connection:
        blobs = connection.execute(
            "SELECT events FROM batches UNION ALL SELECT state FROM snapshots UNION ALL SELECT outcome FROM heads"
        ).fetchall()
    return sum(blob.count(text) for (blob,) in blobs if blob is not None)


async def test_a_step_s_output_is_stored_once(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    run, _, _ = await finished_sequence(journal)
    stored = [times_stored(tmp_path / "runs.db", b'output_tokens":7}}')]
    await journal.compact(run.id)
    stored.append(times_stored(tmp_path / "runs.db", b'output_tokens":7}}'))
    await journal.close()
    assert stored == [1, 1]


async def test_a_step_s_output_that_is_gone_is_said(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    run, _, _ = await finished_sequence(journal)
    with closing(connect(tmp_path / "runs.db", writer=True)) as connection:
        connection.execute("DELETE FROM batches WHERE first_seq > 1 AND first_seq < ?", (run.last_seq,))
    with pytest.raises(CorruptLog, match="is not the output of a step"):
        await journal.get(run.id)
    await journal.close()


async def test_a_sequence_that_ran_in_memory_is_read_as_it_was_stored(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    prepare(path)
    finished = RunFinished("completed", outputs_text({"ask": "early"}))
    run = Run("run_1", NewRun(SEQUENCE), "completed", 2, 1, 0.0, 1, finished=finished)
    entries = [Entry(1, StepFinished("ask", "early")), Entry(2, finished)]
    with closing(connect(path, writer=True)) as connection:
        statements.record(connection, EndedRun(run, entries, [(1, 1.0)]), 1.0)  # with its output
    journal = await SqliteJournal.open(path)
    assert (await journal.get("run_1")).finished == finished
    assert await journal.read("run_1") == tuple(entries)
    await journal.compact("run_1")
    assert (await journal.read("run_1"))[-1] == entries[-1]
    await journal.close()


@pytest.mark.parametrize("sender", ["itself", "another process", "another process, of which it has heard"])
async def test_a_signal_that_comes_while_its_run_is_begun_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sender: str
) -> None:
    journal, other = [await SqliteJournal.open(tmp_path / "runs.db") for _ in range(2)]
    insert_run = journal._insert_run

    async def insert_and_signal(new: NewRun, owner: str | None, lease_s: float) -> tuple[Run, int | None]:
        inserted = await insert_run(new, owner, lease_s)
        await (journal if sender == "itself" else other).signal(inserted[0].id, Signal("stop"))
        if sender.endswith("heard"):
            await journal._look_for_signals()
        return inserted

    monkeypatch.setattr(journal, "_insert_run", insert_and_signal)
    _, lease = await started(journal)
    assert [signal.name for signal in await journal.signals(lease)] == ["stop"]
    await journal.close()
    await other.close()


async def test_storage_is_not_asked_for_the_signals_of_a_run_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    asked: list[str] = []
    signals_after = journal._signals_after

    async def counted(run_id: str, after: int) -> list[Signal]:
        asked.append(run_id)
        return await signals_after(run_id, after)

    monkeypatch.setattr(journal, "_signals_after", counted)
    run, lease = await started(journal)
    listening = asyncio.ensure_future(journal.signals(lease))
    await asyncio.sleep(0)
    assert asked == []
    await journal.signal(run.id, Signal("stop"))
    assert [signal.name for signal in await listening] == ["stop"]
    assert asked == [run.id]
    await journal.close()
