"""Group commit: what is written together, how durably, and what a failure takes along."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tailrace.errors import JournalError, StorageFailed
from tailrace.events import MessageChunk, RunFinished, ToolCallChunk
from tailrace.journal.sqlite.commits import MAX_ROWS
from tailrace.journal.sqlite.schema import connect, prepare
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.wakeup_pipe import WakeupPipe
from tailrace.ports import Durability, NewRun
from tailrace.testing.conformance.journal import everything, started, texts_of, written


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    yield journal
    await journal.close()


def statements(journal: SqliteJournal) -> list[str]:
    """What the writer's connection is told from here on."""
    told: list[str] = []
    journal.trace(told.append)
    return told


async def test_a_tick_of_many_runs_is_one_statement(journal: SqliteJournal) -> None:
    runs = [await started(journal, NewRun("call")) for _ in range(100)]
    told = statements(journal)
    for _, lease in runs:
        for text in ("a", "b", "c"):
            journal.append(lease, [MessageChunk(text)])
    await asyncio.gather(*(journal.commit(lease) for _, lease in runs))
    assert len(told) == 1
    assert told[0].startswith("INSERT INTO batches")
    for run, _ in runs:
        assert texts_of(await journal.read(run.id)) == ["a", "b", "c"]


async def test_a_group_larger_than_a_statement_is_one_transaction(journal: SqliteJournal) -> None:
    run, lease = await started(journal)
    told = statements(journal)
    for number in range(MAX_ROWS + 10):  # a row ends where the attempt changes
        journal.append(lease, [MessageChunk(f"{number} ")], attempt=1 + number % 2)
    await journal.commit(lease)
    assert [statement.split()[0] for statement in told] == ["BEGIN", "INSERT", "INSERT", "COMMIT"]
    assert texts_of(await journal.read(run.id)) == [f"{number} " for number in range(MAX_ROWS + 10)]


async def test_the_lag_is_the_age_of_a_group_s_oldest_entry_when_it_is_shown(tmp_path: Path) -> None:
    lags: list[float] = []
    now = asyncio.get_running_loop().time
    journal = await SqliteJournal.open(tmp_path / "runs.db", on_lag=lags.append)
    try:
        _, lease = await started(journal)
        lags.clear()
        async with held_up(journal) as go_on:
            before = now()
            journal.append(lease, [MessageChunk("old")])
            after = now()
            await asyncio.sleep(0)
            journal.append(lease, [MessageChunk("new")])
            released = now()
            go_on()
            await journal.commit(lease)
        shown = now()
    finally:
        await journal.close()
    assert len(lags) == 1, "the group without entries has none"
    assert released - after <= lags[0] <= shown - before


@asynccontextmanager
async def held_up(journal: SqliteJournal) -> AsyncIterator[Callable[[], None]]:
    """The disk is busy until the block says that it may go on."""
    loop, entered, gate = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def wait_for_gate(_statement: str) -> None:
        loop.call_soon_threadsafe(entered.set)
        gate.wait(30)

    async with asyncio.TaskGroup() as group:
        journal.trace(wait_for_gate)
        group.create_task(journal.create(NewRun("call")))
        await entered.wait()
        try:
            yield gate.set
        finally:
            gate.set()


@pytest.mark.parametrize(("durability", "pragmas"), [("committed", []), ("fsync", ["PRAGMA synchronous = FULL"])])
async def test_fsync_is_for_those_who_ask(journal: SqliteJournal, durability: Durability, pragmas: list[str]) -> None:
    told = statements(journal)
    run, lease = await started(journal, NewRun("call", durability=durability))
    await written(journal, lease, [MessageChunk("a")])
    await journal.seal(lease, RunFinished("completed", "a"))
    assert [statement for statement in told if statement.startswith("PRAGMA")] == pragmas
    assert (await journal.get(run.id)).new.durability == durability
    _, lease = await started(journal)  # and the next is back to what it asks for
    await written(journal, lease, [MessageChunk("b")])
    pragmas = pragmas and [*pragmas, "PRAGMA synchronous = NORMAL"]
    assert [statement for statement in told if statement.startswith("PRAGMA")] == pragmas


async def test_a_full_disk_is_said_and_nothing_unwritten_was_shown(tmp_path: Path) -> None:
    path = tmp_path / "full.db"
    prepare(path)
    connection = connect(path, writer=True)
    journal = SqliteJournal(path, WakeupPipe(path), connection, time.time)
    run, lease = await started(journal)
    viewer = journal.tail(run.id)
    assert texts_of(await anext(viewer)) == []
    await written(journal, lease, [MessageChunk("a")])
    assert texts_of(await anext(viewer)) == ["a"]
    (most,) = connection.execute("PRAGMA max_page_count").fetchone()
    connection.execute("PRAGMA max_page_count = 1")
    journal.append(lease, [MessageChunk("x" * 100_000)])
    with pytest.raises(StorageFailed, match="no space left"):
        await journal.commit(lease)
    with pytest.raises(StorageFailed, match="no space left"):  # not a silent stream (L144)
        await anext(viewer)
    with pytest.raises(JournalError, match="no space left"):
        journal.append(lease, [MessageChunk("more")])
    connection.execute(f"PRAGMA max_page_count = {most}")
    await journal.release(lease)
    assert [orphan.id for orphan in await journal.orphans()] == [run.id]  # given back, not held by a void lease
    lease = await journal.claim(run.id, "me")
    assert (await journal.get(run.id)).kills == 0  # and not counted as a death
    assert await written(journal, lease, [MessageChunk("b")]) == 3
    await journal.seal(lease, RunFinished("completed", "ab"))
    assert texts_of(await everything(viewer)) == ["b"]  # the same viewer goes on
    await journal.close()


@pytest.mark.parametrize("event", [MessageChunk("\ud800"), ToolCallChunk("t", args={"x": object()})])
async def test_what_cannot_be_encoded_fails_its_own_run_alone(
    journal: SqliteJournal, event: MessageChunk | ToolCallChunk
) -> None:
    _, bad = await started(journal)
    good_run, good = await started(journal)
    journal.append(bad, [event])
    journal.append(good, [MessageChunk("fine")])
    with pytest.raises(JournalError, match="cannot be written as JSON"):
        await journal.commit(bad)
    await journal.commit(good)
    assert texts_of(await journal.read(good_run.id)) == ["fine"]


async def test_cancelling_a_commit_takes_nothing_back(journal: SqliteJournal) -> None:
    run, lease = await started(journal)
    journal.append(lease, [MessageChunk("a")])
    waiting = asyncio.ensure_future(journal.commit(lease))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await journal.seal(lease, RunFinished("completed", "a"))
    assert texts_of(await journal.read(run.id)) == ["a"]


async def test_closing_commits_what_is_queued(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "late.db")
    run, lease = await started(journal)
    journal.append(lease, [MessageChunk("a")])
    await journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.append(lease, [MessageChunk("b")])
    with pytest.raises(JournalError, match="closed"):
        await journal.create(NewRun("call"))
    again = await SqliteJournal.open(tmp_path / "late.db")
    assert texts_of(await again.read(run.id)) == ["a"]
    await again.close()


async def test_a_wakeup_that_fails_takes_no_commit_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_pipe: WakeupPipe) -> None:
        raise RuntimeError("no pipe")

    monkeypatch.setattr(WakeupPipe, "wake_peers", fail)
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    run, lease = await started(journal)
    await written(journal, lease, [MessageChunk("a")])
    assert texts_of(await journal.read(run.id)) == ["a"]
    assert "other processes could not be woken" in caplog.text
    await journal.close()
