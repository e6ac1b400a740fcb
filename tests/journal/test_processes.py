"""Two processes on one database: who owns what, who is alive, and viewers that are woken and do not poll."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import shutil
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from journal.stores import Store
from tailrace.errors import JournalError, RunOwned, StaleEpoch
from tailrace.events import MessageChunk, RunFinished
from tailrace.journal.sqlite import store as sqlite_store
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.wakeup_pipe import WakeupPipe
from tailrace.ports import Batch, Run, Signal
from tailrace.runs.recovery import recover, stop
from tailrace.testing.conformance.sample_runs import everything, started, texts_of, written

EXECUTOR = Path(__file__).with_name("executor.py")


@asynccontextmanager
async def executor(store: Store, *args: str) -> AsyncIterator[tuple[Process, str]]:
    """The process and the run it executes; it begins to write when it gets a line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXECUTOR),
        *(store.url, *args),
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, "PYTHONPATH": str(EXECUTOR.parent.parent)},
    )
    assert process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


def go(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")


async def test_viewers_of_another_processs_run_share_one_tail_and_see_all(store: Store) -> None:
    journal = await store.open()
    async with executor(store, "50") as (process, run_id):
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(everything(journal.tail(run_id))) for _ in range(20)]
            await asyncio.sleep(0)
            go(process)
        assert await process.wait() == 0
    seen = watching[0].result()
    assert seen == list(await journal.read(run_id))
    assert texts_of(seen) == [f"{number} " for number in range(50)]
    assert all(task.result() == seen for task in watching)
    await journal.close()


async def test_a_viewer_of_another_processs_run_does_not_poll(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    async with executor(Store(f"sqlite:///{tmp_path / 'runs.db'}"), "1") as (process, run_id):
        viewer = journal.tail(run_id)
        await anext(viewer)
        waiting = asyncio.ensure_future(anext(viewer))
        for _ in range(20):
            await journal.get(run_id)  # whatever still had to be looked at has been
        timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        assert [timer for timer in timers if not timer.cancelled()] == []  # nothing will look again by itself
        assert not waiting.done()
        go(process)
        assert (await waiting)[0].seq == 2
        await process.wait()
    await journal.close()


async def test_the_second_process_is_told_who_owns_a_run_and_that_it_lives(store: Store) -> None:
    journal = await store.open()
    async with executor(store, "1") as (process, run_id):
        with pytest.raises(RunOwned, match="the executor"):
            await journal.claim(run_id, "me")
        assert await journal.orphans() == []
        go(process)
        assert await process.wait() == 0
    await journal.close()


async def test_I101_a_dead_owners_run_is_taken_over_at_once(tmp_path: Path) -> None:
    """No lease has run out: the pipe says that the process is gone."""
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    async with executor(Store(f"sqlite:///{tmp_path / 'runs.db'}"), "3", "die") as (process, run_id):
        go(process)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        process.kill()
        await process.wait()
        (found,) = [found async for found in recover(journal, "me")]
        assert (found.run.id, found.run.kills, found.lease.epoch) == (run_id, 1, 2)
        assert [entry.seq for entry in found.entries] == [1, 2, 3, 4]
        assert await written(journal, found.lease, [MessageChunk("3 ")], attempt=2) == 5
        await journal.seal(found.lease, RunFinished("completed", "0 1 2 3 "))
    await journal.close()


async def test_I101_a_dead_owners_run_is_taken_over_when_its_lease_has_run_out(postgres_url: str) -> None:
    """Nothing but its lease says that a process of another machine is dead."""
    store = Store(postgres_url)
    async with executor(store, "3", "die") as (process, run_id):
        go(process)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        process.kill()
        await process.wait()
    early, late = await store.open(), await store.open(clock=lambda: time.time() + 60.0)
    assert await early.orphans() == []
    (found,) = [found async for found in recover(late, "me")]
    assert (found.run.id, found.run.kills, found.lease.epoch) == (run_id, 1, 2)
    assert await written(late, found.lease, [MessageChunk("3 ")], attempt=2) == 5
    await late.seal(found.lease, RunFinished("completed", "0 1 2 3 "))
    await early.close()
    await late.close()


async def test_a_stop_reaches_the_process_that_executes_the_run(store: Store) -> None:
    journal = await store.open()
    async with executor(store, "0") as (process, run_id):
        go(process)
        asked = await stop(journal, run_id, "me", at=1.0)
        assert asked.state == "running" or asked.finished
        seen = await everything(journal.tail(run_id))
        assert isinstance(seen[-1].event, RunFinished)
        assert seen[-1].event.status == "stopped"
        assert await process.wait() == 0
    await journal.close()


async def test_a_fenced_writer_in_another_process_stops_writing(store: Store) -> None:
    """Two journals on one database stand for two processes: claims go through the database alone."""
    now = 1000.0
    ours = await store.open(clock=lambda: now)
    theirs = await store.open(clock=lambda: now + 60.0)
    run, lease = await started(ours)
    watching = asyncio.ensure_future(everything(ours.tail(run.id)))
    await written(ours, lease, [MessageChunk("a")])
    newer = await theirs.claim(run.id, "them")
    assert ours.append(lease, [MessageChunk("lost")]) == 3  # not known here yet
    with pytest.raises(StaleEpoch):
        await ours.commit(lease)
    with pytest.raises(StaleEpoch):
        ours.append(lease, [MessageChunk("lost")])
    await written(theirs, newer, [MessageChunk("b")])
    await theirs.seal(newer, RunFinished("completed", "ab"))
    assert texts_of(await watching) == ["a", "b"]
    await ours.close()
    await theirs.close()


async def test_a_signal_from_another_process_wakes_the_owner(store: Store) -> None:
    ours = await store.open()
    theirs = await store.open()
    run, lease = await started(ours)
    waiting = asyncio.ensure_future(ours.signals(lease))
    await asyncio.sleep(0)
    sent = await theirs.signal(run.id, Signal("pause"))
    assert await waiting == [sent]
    await ours.close()
    await theirs.close()


async def test_without_pipes_other_processes_are_looked_at_on_a_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "mkfifo")
    monkeypatch.setattr(sqlite_store, "POLL_S", 0.001)
    ours = await SqliteJournal.open(tmp_path / "runs.db")
    theirs = await SqliteJournal.open(tmp_path / "runs.db")
    run, lease = await started(ours)
    watching = asyncio.ensure_future(everything(theirs.tail(run.id)))
    await written(ours, lease, [MessageChunk("a")])
    with pytest.raises(RunOwned):  # by its lease: nobody can see whether it lives
        await theirs.claim(run.id, "them")
    await ours.seal(lease, RunFinished("completed", "a"))
    assert texts_of(await watching) == ["a"]
    await ours.close()
    await theirs.close()


def answer_wakeup(pipe: WakeupPipe) -> None:
    """What a journal does when its pipe is readable."""
    pipe.drain()
    pipe.discover_peers()


def test_a_pipe_tells_the_living_from_the_dead(tmp_path: Path) -> None:
    first, second = WakeupPipe(tmp_path / "x.db"), WakeupPipe(tmp_path / "x.db")
    name = second.name
    assert first.is_alive(name)
    assert second._peers
    answer_wakeup(first)
    peers = [bool(first._peers)]
    second._close_own()  # as the kernel does when a process dies
    assert not first.is_alive(name)
    first.wake_peers()
    peers.append(bool(first._peers))
    assert peers == [True, False]
    first.remove_dead(keep={name})
    assert not first.is_alive(name)  # a run still names it
    first.remove_dead(keep=())
    assert not first.is_alive(name)  # it has died just now: other processes may not know yet
    os.utime(tmp_path / "x.db-pipes" / name, (0, 0))
    first.remove_dead(keep={name})
    assert not first.is_alive(name)
    first.remove_dead(keep=())
    assert first.is_alive(name)  # without its pipe nothing is known of it: its leases decide
    first.close()
    assert list((tmp_path / "x.db-pipes").iterdir()) == []


def test_a_pipe_that_another_process_is_making_is_not_removed(tmp_path: Path) -> None:
    pipe = WakeupPipe(tmp_path / "x.db")
    hidden = tmp_path / "x.db-pipes" / ".1-abcd"
    os.mkfifo(hidden)  # it has no reader yet, as that of a dead process
    pipe.remove_dead(keep=())
    assert hidden.exists()
    pipe.close()


def test_a_process_that_cannot_make_its_pipe_again_does_not_look_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = WakeupPipe(tmp_path / "x.db"), WakeupPipe(tmp_path / "x.db")

    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "mkfifo", no_space)
    with pytest.raises(OSError, match="No space"):
        second.reopen()
    answer_wakeup(first)
    assert first.is_alive(second.name)
    answer_wakeup(second)
    first.wake_peers()
    assert is_woken(second)
    shutil.rmtree(tmp_path / "x.db-pipes")
    with pytest.raises(OSError, match="No space"):
        second.reopen()
    assert first.is_alive(second.name)
    first.close()
    second.close()


async def test_viewers_are_served_while_the_pipe_cannot_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "RETRY_FIRST_S", 0.001)
    monkeypatch.setattr(sqlite_store, "RETRY_MAX_S", 0.001)
    ours = await SqliteJournal.open(tmp_path / "runs.db")
    theirs = await SqliteJournal.open(tmp_path / "runs.db")
    run, lease = await started(ours)
    viewer = theirs.tail(run.id, after=1)

    def no_pipe(_: WakeupPipe) -> None:
        raise RuntimeError("no pipe")

    monkeypatch.setattr(WakeupPipe, "reopen", no_pipe)
    shutil.rmtree(tmp_path / "runs.db-pipes")
    async with asyncio.timeout(60):
        for text in ("a", "b"):
            await written(ours, lease, [MessageChunk(text)])
            assert texts_of(await anext(viewer)) == [text]
    assert await theirs.orphans() == []  # its lease says that it lives
    await ours.close()
    await theirs.close()


def is_woken(pipe: WakeupPipe) -> bool:
    assert pipe.fd is not None
    return bool(select.select([pipe.fd], [], [], 0)[0])


def test_a_new_process_wakes_the_others_and_is_woken_back(tmp_path: Path) -> None:
    """So that a commit made before the newcomer was known to the writer is not missed."""
    first = WakeupPipe(tmp_path / "x.db")
    newcomer = WakeupPipe(tmp_path / "x.db")
    woken = [is_woken(first), is_woken(newcomer)]
    answer_wakeup(first)
    woken += [is_woken(first), is_woken(newcomer)]
    answer_wakeup(newcomer)
    woken += [is_woken(newcomer)]
    answer_wakeup(first)
    woken += [is_woken(newcomer)]  # a known process is woken for commits alone
    assert woken == [True, False, False, True, False, False]
    first.close()
    newcomer.close()


async def test_what_is_committed_while_a_viewer_arrives_is_not_missed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = await store.open()
    theirs = await store.open()
    run, lease = await started(ours)
    get = theirs.get

    async def slow_get(run_id: str) -> Run:
        found = await get(run_id)
        await written(ours, lease, [MessageChunk("meanwhile")])
        for _ in range(20):
            await get(run_id)  # the wake-up comes while no viewer waits
        return found

    monkeypatch.setattr(theirs, "get", slow_get)
    async with asyncio.timeout(60):
        assert texts_of(await anext(theirs.tail(run.id, after=1))) == ["meanwhile"]
    await ours.close()
    await theirs.close()


async def test_wakeups_come_back_after_their_directory_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_store, "RETRY_FIRST_S", 0.001)
    ours = await SqliteJournal.open(tmp_path / "runs.db")
    theirs = await SqliteJournal.open(tmp_path / "runs.db")
    run, lease = await started(ours)
    viewer = theirs.tail(run.id, after=1)
    own_run, own_lease = await started(theirs)
    shutil.rmtree(tmp_path / "runs.db-pipes")
    async with asyncio.timeout(60):
        await written(ours, lease, [MessageChunk("a")])
        assert texts_of(await anext(viewer)) == ["a"]
        await written(theirs, own_lease, [MessageChunk("x")])  # wakes `ours`, which makes its own pipe again
        signalled = asyncio.ensure_future(ours.signals(lease))
        await theirs.signal(run.id, Signal("stop"))
        assert [signal.name for signal in await signalled] == ["stop"]
        await written(ours, lease, [MessageChunk("b")])
        assert texts_of(await anext(viewer)) == ["b"]
        with pytest.raises(RunOwned):  # each still sees that the other lives
            await theirs.claim(run.id, "them")
        with pytest.raises(RunOwned):
            await ours.claim(own_run.id, "them")
    assert "wake-ups between processes failed" in caplog.text
    await ours.close()
    await theirs.close()


async def test_a_failure_of_any_kind_does_not_end_wakeups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_store, "RETRY_FIRST_S", 0.001)
    ours = await SqliteJournal.open(tmp_path / "runs.db")
    theirs = await SqliteJournal.open(tmp_path / "runs.db")
    run, lease = await started(ours)
    watching = asyncio.ensure_future(everything(theirs.tail(run.id)))
    failed = asyncio.Event()
    look = theirs._look_for_signals

    async def fail_once() -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("once")
        await look()

    monkeypatch.setattr(theirs, "_look_for_signals", fail_once)
    async with asyncio.timeout(60):
        await written(ours, lease, [MessageChunk("a")])
        await failed.wait()
        await ours.seal(lease, RunFinished("completed", "a"))
        assert texts_of(await watching) == ["a"]
    assert "once" in caplog.text
    await ours.close()
    await theirs.close()


async def test_a_run_that_cannot_be_read_fails_its_own_viewers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = await SqliteJournal.open(tmp_path / "runs.db")
    theirs = await SqliteJournal.open(tmp_path / "runs.db")
    (bad, bad_lease), (good, good_lease) = await started(ours), await started(ours)
    page = theirs.page

    async def read_page(run_id: str, after: int) -> Batch:
        if run_id == bad.id:
            raise RuntimeError("unreadable")
        return await page(run_id, after)

    monkeypatch.setattr(theirs, "page", read_page)  # before a wake-up could have it read already
    tails = [await theirs.attach(run.id) for run in (bad, good)]
    waiting = [asyncio.ensure_future(anext(theirs.tail(run.id, after=1))) for run in (bad, good)]
    await written(ours, bad_lease, [MessageChunk("a")])
    await written(ours, good_lease, [MessageChunk("b")])
    async with asyncio.timeout(60):
        with pytest.raises(JournalError, match="unreadable"):
            await waiting[0]
        assert texts_of(await waiting[1]) == ["b"]
    assert [tail.last_seq for tail in tails] == [1, 2]
    await ours.close()
    await theirs.close()
