"""Group commit: what is written together, how durably, and what a failure takes along."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tailrace.errors import JournalError, RunOwned, StorageFailed
from tailrace.events import AttemptStarted, MessageChunk, RunFinished, ToolCallChunk
from tailrace.journal.sqlite import commits
from tailrace.journal.sqlite import statements as row_statements
from tailrace.journal.sqlite.commits import LONG_BYTES, MAX_ROWS
from tailrace.journal.sqlite.schema import connect, prepare
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored import group_commit
from tailrace.journal.stored import journal as stored_journal
from tailrace.journal.wakeup_pipe import WakeupPipe
from tailrace.messages import Usage
from tailrace.ports import Durability, NewRun
from tailrace.testing.conformance.sample_runs import everything, started, texts_of, written
from tailrace.testing.conformance.wall_clock import WallClock


@pytest.fixture
async def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteJournal]:
    monkeypatch.setattr(commits, "SLOW_S", 3600.0)  # however busy the machine is
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    yield journal
    await journal.close()


def statements(journal: SqliteJournal) -> list[str]:
    """What the writer's connection is told from here on."""
    told: list[str] = []
    journal._connection.set_trace_callback(told.append)
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


async def test_O178_no_statement_keeps_a_copy_of_a_long_text(journal: SqliteJournal) -> None:
    """A cached statement holds what it was given last: it is run once more with nothing, which changes nothing."""
    run, lease = await started(journal)
    told = statements(journal)
    for text in ("short", "long" * LONG_BYTES):
        journal.append(lease, [MessageChunk(text)])
        await journal.commit(lease)
    await journal.seal(lease, RunFinished("completed", "short" + "long" * LONG_BYTES, Usage(), None, 1.0))
    assert texts_of(await journal.read(run.id)) == ["short", "long" * LONG_BYTES]
    inserts = [statement for statement in told if statement.startswith("INSERT INTO batches")]
    ends = [statement for statement in told if statement.startswith("UPDATE heads SET state")]
    assert [statement.count("NULL") > 6 for statement in inserts] == [False, False, True, False, True]
    assert ["WHERE id = NULL" in statement for statement in ends] == [False, True]


@asynccontextmanager
async def writing_threads(journal: SqliteJournal) -> AsyncIterator[set[int]]:
    """The threads that write inside the block."""
    threads = set[int]()
    journal._connection.set_trace_callback(lambda _statement: threads.add(threading.get_ident()))
    yield threads
    journal._connection.set_trace_callback(None)


async def test_a_run_is_written_in_the_loop_s_thread(journal: SqliteJournal) -> None:
    await started(journal)  # the statements are compiled
    async with writing_threads(journal) as threads:
        _, lease = await started(journal)
        await written(journal, lease, [MessageChunk("a")])
        await journal.seal(lease, RunFinished("completed", "a"))
    assert threads == {threading.get_ident()}


async def test_F74_what_waits_for_the_disk_is_written_in_another_thread(journal: SqliteJournal) -> None:
    async with writing_threads(journal) as threads:
        run, lease = await started(journal, NewRun("call", durability="fsync"))
        await written(journal, lease, [MessageChunk("a")])
        await journal.seal(lease, RunFinished("completed", "a"))
        await journal.compact(run.id)
        await journal.delete(run.id)
    assert threads
    assert threading.get_ident() not in threads


async def test_F74_storage_that_was_slow_is_left_to_the_writer_s_thread(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lease = await started(journal)
    await written(journal, lease, [MessageChunk("a")])
    monkeypatch.setattr(commits, "SLOW_S", 0.0)
    monkeypatch.setattr(commits, "wait_count", itertools.count().__next__)
    await written(journal, lease, [MessageChunk("b")])
    async with writing_threads(journal) as threads:
        await written(journal, lease, [MessageChunk("c")])
    assert threads
    assert threading.get_ident() not in threads


async def test_a_loop_that_was_kept_from_running_does_not_make_storage_slow(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write takes as long where another process has the core. The thread has not waited for anything then."""
    _, lease = await started(journal)
    await written(journal, lease, [MessageChunk("a")])
    monkeypatch.setattr(commits, "SLOW_S", 0.0)
    monkeypatch.setattr(commits, "wait_count", lambda: 0)
    async with writing_threads(journal) as threads:
        await written(journal, lease, [MessageChunk("b")])
        await written(journal, lease, [MessageChunk("c")])
    assert threads == {threading.get_ident()}


async def test_F74_a_group_that_another_process_holds_up_goes_to_the_writer_s_thread(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    run, lease = await started(journal)
    other = connect(tmp_path / "runs.db", writer=True)
    other.execute("BEGIN IMMEDIATE")
    async with writing_threads(journal) as threads:
        journal.append(lease, [MessageChunk("a")])
        sealing = asyncio.ensure_future(journal.seal(lease, RunFinished("completed", "a")))
        for _ in range(20):
            await asyncio.sleep(0)
        other.execute("COMMIT")
        other.close()
        await sealing
    assert threading.get_ident() in threads  # it has tried
    assert len(threads) == 2
    assert texts_of(await journal.read(run.id)) == ["a"]


async def test_entries_that_nobody_waits_for_are_committed_once_in_an_interval(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "MIN_INTERVAL_S", 3600.0)
    run, lease = await started(journal)
    told = statements(journal)
    for number in range(50):
        journal.append(lease, [MessageChunk(f"{number} ")])
        await asyncio.sleep(0)
    assert len(told) == 1, "the first text alone"
    assert (await journal.get(run.id)).last_seq == 2
    await journal.commit(lease)  # a caller that waits is not kept waiting
    assert len(told) == 2
    assert len(await journal.read(run.id)) == 51


async def test_what_a_run_begins_with_is_committed_with_its_first_text(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_journal, "BEGIN_S", 3600.0)
    run, lease = await started(journal)
    told = statements(journal)
    journal.append(lease, [AttemptStarted("p", "m")])
    await asyncio.sleep(0)
    assert told == []
    journal.append(lease, [MessageChunk("a")])
    await asyncio.sleep(0)
    assert len(told) == 1
    assert (await journal.get(run.id)).last_seq == 3


async def test_what_a_run_begins_with_is_committed_with_another_runs_entries(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = await started(journal)
    await written(journal, other, [MessageChunk("a")])
    monkeypatch.setattr(stored_journal, "BEGIN_S", 3600.0)
    run, lease = await started(journal)
    journal.append(lease, [AttemptStarted("p", "m")])
    await written(journal, other, [MessageChunk("b")])
    assert (await journal.get(run.id)).last_seq == 2


async def test_an_entry_costs_as_many_calls_in_a_long_log_as_in_a_short_one(journal: SqliteJournal) -> None:
    _, lease = await started(journal)

    def calls_of_an_append() -> int:
        calls = 0

        def count(_frame: object, what: str, _argument: object) -> None:
            nonlocal calls
            calls += what in ("call", "c_call")

        sys.setprofile(count)
        try:
            journal.append(lease, [MessageChunk("x")])
            journal.append(lease, [MessageChunk("y")])
        finally:
            sys.setprofile(None)
        return calls

    for _ in range(100):
        await written(journal, lease, [MessageChunk("x")])
    short = calls_of_an_append()
    await journal.commit(lease)
    for _ in range(100):
        await written(journal, lease, [MessageChunk("x")] * 1000)
    assert calls_of_an_append() == short
    await journal.commit(lease)


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


@pytest.mark.parametrize("takes", ["start", "claim", "renew"])
async def test_L145_a_lease_begins_when_it_is_stored_however_long_others_write(takes: str, tmp_path: Path) -> None:
    clock = WallClock()
    journal = await SqliteJournal.open(tmp_path / "runs.db", clock=clock)
    run = await journal.create(NewRun("agent"))
    lease = await journal.claim(run.id, "me", lease_s=10.0) if takes == "renew" else None
    other = connect(tmp_path / "runs.db", writer=True)
    other.execute("BEGIN IMMEDIATE")
    taking: asyncio.Future[object] = asyncio.ensure_future(
        journal.renew(lease, lease_s=10.0)
        if lease is not None
        else journal.claim(run.id, "me", lease_s=10.0)
        if takes == "claim"
        else journal.start(NewRun("agent", idempotency_key="k"), "me", lease_s=10.0)
    )
    for _ in range(20):
        await asyncio.sleep(0)
    clock.now += 9.0
    other.execute("COMMIT")
    other.close()
    await taking
    clock.now += 2.0
    if takes == "start":
        begun = await journal.run_with_key("k")
        assert begun is not None
        run = begun
    with pytest.raises(RunOwned):
        await journal.claim(run.id, "another")
    await journal.close()


@asynccontextmanager
async def held_up(journal: SqliteJournal) -> AsyncIterator[Callable[[], None]]:
    """The disk is busy until the block says that it may go on: with a sync, for which the loop never waits."""
    loop, entered, gate = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def wait_for_gate(_statement: str) -> None:
        loop.call_soon_threadsafe(entered.set)
        gate.wait(30)

    async with asyncio.TaskGroup() as group:
        journal._connection.set_trace_callback(wait_for_gate)
        group.create_task(journal.create(NewRun("call", durability="fsync")))
        await entered.wait()
        try:
            yield gate.set
        finally:
            gate.set()


async def test_groups_of_the_two_threads_are_shown_in_their_order(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first goes to the writer's thread, for another run that syncs; the second is written on the loop."""
    monkeypatch.setattr(group_commit, "MIN_INTERVAL_S", 3600.0)  # the first entry waits for the run that syncs
    run, lease = await started(journal)
    await written(journal, lease, [MessageChunk("the first text waits for nothing")])
    viewer = journal.tail(run.id, after=2)
    watching = asyncio.ensure_future(anext(viewer))
    await asyncio.sleep(0)
    journal.append(lease, [MessageChunk("a")])
    async with held_up(journal) as go_on:
        journal.append(lease, [MessageChunk("b")])
        committing = asyncio.ensure_future(journal.commit(lease))
        await asyncio.sleep(0)
        go_on()
        await committing
        journal._connection.set_trace_callback(None)
    assert texts_of(await watching) == ["a"]
    assert texts_of(await anext(viewer)) == ["b"]


@pytest.mark.parametrize(("durability", "pragmas"), [("committed", []), ("fsync", ["PRAGMA synchronous = FULL"])])
async def test_fsync_is_for_those_who_ask(journal: SqliteJournal, durability: Durability, pragmas: list[str]) -> None:
    told = statements(journal)
    run, lease = await started(journal, NewRun("call", durability=durability))
    await written(journal, lease, [MessageChunk("a")])
    await journal.seal(lease, RunFinished("completed", "a"))
    assert [statement for statement in told if statement.startswith("PRAGMA synchronous")] == pragmas
    assert (await journal.get(run.id)).new.durability == durability
    _, lease = await started(journal)  # and the next is back to what it asks for
    await written(journal, lease, [MessageChunk("b")])
    pragmas = pragmas and [*pragmas, "PRAGMA synchronous = NORMAL"]
    assert [statement for statement in told if statement.startswith("PRAGMA synchronous")] == pragmas


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


@pytest.mark.parametrize("claimed_first", [False, True])
async def test_I102_a_run_that_could_not_be_given_back_is_at_the_next_look_for_orphans(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, claimed_first: bool
) -> None:
    """Its process lives: whoever has claimed the run meanwhile has counted a death that was none."""

    def refused(*_args: object, **_more: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    run, lease = await started(journal)
    if claimed_first:
        await journal.renew(lease, lease_s=0.0)
    with monkeypatch.context() as full:
        full.setattr(row_statements, "release", refused)
        with pytest.raises(StorageFailed):
            await journal.release(lease)
        await journal.orphans()  # the disk is still full
    if claimed_first:
        assert (await journal.claim(run.id, "another")).epoch == 2
        assert (await journal.get(run.id)).kills == 1
    found = [orphan.id for orphan in await journal.orphans()]
    assert found == ([] if claimed_first else [run.id])
    assert (await journal.get(run.id)).kills == 0


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


@pytest.mark.parametrize("when", ["before", "written", "after"])
def test_a_second_interrupt_in_the_middle_of_a_write_does_not_hold_up_the_next(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.run` cancels what runs at the first Ctrl-C; a second one comes out of whatever the thread is doing, and
    the clean-up of the tasks goes on after it, with the same journal."""
    monkeypatch.setattr(commits, "SLOW_S", 3600.0)
    kept: list[str] = []
    moments: set[str] = set()

    def interrupt(now: str) -> None:
        if now in moments:
            moments.clear()
            raise KeyboardInterrupt

    def clock() -> float:
        interrupt("before")
        return time.time()

    async def main() -> None:
        journal = await SqliteJournal.open(tmp_path / "runs.db", clock=clock)
        file = journal._commits._file
        wake_others = file._after_commit

        def after_commit() -> None:
            interrupt("after")
            wake_others()

        file._after_commit = after_commit
        run, lease = await started(journal)
        assert journal._commits._writer.compiled  # from now on the loop's thread writes
        moments.add(when)
        call = journal._commits._call(lambda _connection: interrupt("written"), fsync=False).future
        try:
            await asyncio.Event().wait()
        finally:
            async with asyncio.timeout(30):
                await asyncio.wait([call])
                journal.append(lease, [MessageChunk("the rest")])
                await journal.seal(lease, RunFinished("stopped", "the rest"))
                kept.extend(texts_of(await journal.read(run.id)))
                await journal.close()
            kept.append(type(call.exception()).__name__)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert kept == ["the rest", "NoneType" if when == "after" else "JournalError"]
