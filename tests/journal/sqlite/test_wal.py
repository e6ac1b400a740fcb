"""The write-ahead log stays small: while there are readers all the time, and after one that stayed for long."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tailrace.events import MessageChunk, RunFinished
from tailrace.journal.sqlite.commits import write_group
from tailrace.journal.sqlite.schema import WAL_BYTES, WAL_BYTES_LONG, checkpoint, connect, prepare, wal_bytes
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import Lease
from tailrace.testing.conformance.sample_runs import started

CHUNK = MessageChunk("x" * 64_000)


async def write(journal: SqliteJournal, lease: Lease, path: Path, commits: int, chunk: MessageChunk = CHUNK) -> int:
    """Returns the most that the log has been."""
    most = 0
    for _ in range(commits):
        journal.append(lease, [chunk])
        await journal.commit(lease)
        if journal._checkpointing is not None:
            await asyncio.wait([journal._checkpointing])
        most = max(most, wal_bytes(path))
    return most


async def test_the_log_starts_over_while_viewers_read_all_the_time(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = await SqliteJournal.open(path)
    run, lease = await started(journal)

    watched = asyncio.Event()

    async def read_all_the_time() -> None:
        while not watched.is_set():
            await journal.page(run.id, 1)

    readers = [asyncio.ensure_future(read_all_the_time()) for _ in range(3)]
    most = await write(journal, lease, path, 400)
    watched.set()  # not cancelled: a cancelled reader's thread still reads
    await asyncio.gather(*readers)
    await write(journal, lease, path, 50)
    assert most <= 2 * WAL_BYTES_LONG
    assert wal_bytes(path) <= 2 * WAL_BYTES
    await journal.close()


async def test_the_log_shrinks_again_after_a_reader_that_stayed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = await SqliteJournal.open(path)
    _, lease = await started(journal)
    other = connect(path, writer=False)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM runs").fetchone()
    assert await write(journal, lease, path, 300) > WAL_BYTES_LONG
    other.execute("COMMIT")
    await write(journal, lease, path, 100)
    assert wal_bytes(path) <= 2 * WAL_BYTES
    other.close()
    await journal.close()


async def test_no_writer_waits_for_a_reader_that_stays(tmp_path: Path) -> None:
    """A backup of a large file reads for minutes: a checkpoint that waited for it would hold the write lock."""
    path = tmp_path / "runs.db"
    journal = await SqliteJournal.open(path)
    _, lease = await started(journal)
    with closing(connect(path, writer=False)) as other, closing(connect(path, writer=False)) as checkpointing:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM runs").fetchone()
        await write(journal, lease, path, 300)
        assert wal_bytes(path) > WAL_BYTES_LONG
        statements: list[str] = []
        checkpointing.set_trace_callback(statements.append)
        checkpoint(checkpointing)
        assert [statement for statement in statements if "TRUNCATE" in statement] == []
        other.execute("COMMIT")
        checkpoint(checkpointing)
        assert wal_bytes(path) == 0, "the first checkpoint after the reader clears the log"
    await journal.close()


def test_the_log_starts_over_although_its_newest_pages_cannot_be_moved_yet(tmp_path: Path) -> None:
    """Under constant load there are always some. The file keeps its length: to cut it would hold every writer up."""
    path = tmp_path / "runs.db"
    prepare(path)
    with (
        closing(connect(path, writer=True)) as writer,
        closing(connect(path, writer=False)) as reader,
        closing(connect(path, writer=False)) as checkpointing,
    ):
        insert = "INSERT INTO batches (run, first_seq, last_seq, attempt, crc, events, at) VALUES (1, 1, 1, 1, 0, ?, 0)"
        writer.execute(insert, (bytes(WAL_BYTES // 2),))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        writer.execute(insert, (b"x",))
        length = wal_bytes(path)

        modes: list[str] = []

        def end_reader(statement: str) -> None:
            modes.extend(mode for mode in ("PASSIVE", "RESTART", "TRUNCATE") if mode in statement)
            if "page_size" in statement:  # what could be moved was
                reader.execute("COMMIT")

        checkpointing.set_trace_callback(end_reader)
        checkpoint(checkpointing)
        checkpointing.set_trace_callback(None)
        assert modes == ["PASSIVE", "RESTART"], "while the second is under way no commit comes"
        writer.execute(insert, (b"x",))
        _, pages, _ = checkpointing.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        assert pages < 10, "the next commit is the first in the log"
        assert wal_bytes(path) == length


async def test_many_small_commits_make_a_checkpoint_due_in_a_file_that_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.journal.sqlite.commits.CHECKPOINT_CHANGES", 50)
    path = tmp_path / "runs.db"
    journal = await SqliteJournal.open(path)
    _, lease = await started(journal)
    began: list[str] = []
    monkeypatch.setattr("tailrace.journal.sqlite.store.checkpoint", lambda _connection: began.append("checkpoint"))
    await write(journal, lease, path, 20, MessageChunk("x"))
    assert began == []
    await write(journal, lease, path, 30, MessageChunk("x"))
    assert began == ["checkpoint"]
    assert wal_bytes(path) < WAL_BYTES
    await journal.close()


async def test_the_loop_does_not_write_what_has_to_wait_for_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F74. SQLite syncs the log with the first commit that follows upon a checkpoint."""
    ends = threading.Event()
    monkeypatch.setattr("tailrace.journal.sqlite.commits.CHECKPOINT_CHANGES", 5)
    monkeypatch.setattr("tailrace.journal.sqlite.commits.SLOW_S", 3600.0)  # however busy the machine is
    monkeypatch.setattr("tailrace.journal.sqlite.store.checkpoint", lambda _connection: ends.wait(30))
    threads: list[str] = []

    def write_in_thread(connection: sqlite3.Connection, group: list[Any]) -> None:
        threads.append("the loop's" if threading.current_thread() is threading.main_thread() else "another")
        write_group(connection, group)

    journal = await SqliteJournal.open(tmp_path / "runs.db")
    _, lease = await started(journal)
    monkeypatch.setattr("tailrace.journal.sqlite.commits.write_group", write_in_thread)

    async def commit() -> None:
        journal.append(lease, [MessageChunk("x")])
        await journal.commit(lease)

    while journal._checkpointing is None:
        await commit()
    assert set(threads) == {"the loop's"}
    threads.clear()
    await commit()
    assert threads == ["another"], "while it is under way"
    ends.set()
    await journal._checkpointing
    await commit()
    assert threads == ["another", "another"], "and the first after it"
    await commit()
    assert threads == ["another", "another", "the loop's"]
    await journal.close()


async def test_the_log_stays_small_under_short_runs_of_two_processes(tmp_path: Path) -> None:
    """The log has started over several times. Where a busy machine keeps the checkpoints back, they wait for their turn
    at the longer length."""
    path = tmp_path / "runs.db"
    journals = [await SqliteJournal.open(path), await SqliteJournal.open(path)]
    most = 0
    for number in range(80):
        journal = journals[number % 2]
        _, lease = await started(journal)
        most = max(most, await write(journal, lease, path, 8))
        await journal.seal(lease, RunFinished("completed", CHUNK.text * 8))
    assert most <= WAL_BYTES_LONG + WAL_BYTES
    assert 2 * most < 80 * 8 * len(CHUNK.text)
    for journal in journals:
        await journal.close()


def test_processes_that_begin_on_a_new_file_at_once_wait_for_each_other(tmp_path: Path) -> None:
    count = 8
    with ThreadPoolExecutor(count) as threads:
        for number in range(25):
            together = Barrier(count)

            def begin(path: Path = tmp_path / f"{number}.db", together: Barrier = together) -> None:
                together.wait()
                prepare(path)

            for begun in [threads.submit(begin) for _ in range(count)]:
                begun.result()
