"""I107: a torn or foreign file is found, said with what to do, and never written over."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import CorruptLog, JournalError
from tailrace.events import MessageChunk
from tailrace.journal.sqlite.integrity import translation
from tailrace.journal.sqlite.schema import check_identity, connect, prepare
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import NewRun
from tailrace.testing.conformance.sample_runs import finished_run, started, written


async def copy_of_a_live_file(tmp_path: Path, *, commits: int = 30) -> tuple[Path, str]:
    """The database and its write-ahead log as a killed process leaves them."""
    source = tmp_path / "source.db"
    journal = await SqliteJournal.open(source)
    run, lease = await started(journal)
    for number in range(commits):
        await written(journal, lease, [MessageChunk(f"{number} ")])
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        shutil.copy(f"{source}{suffix}", f"{copy}{suffix}")
    await journal.close()
    return copy, run.id


def test_a_directory_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tailrace.db"
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect(tmp_path)  # what SQLite says of any file that it may not open
    assert str(translation(path, caught.value)) == f"{path}: unable to open database file"
    monkeypatch.setattr("os.access", lambda _place, _mode: False)  # root, who may run this, may write everywhere
    assert str(translation(path, caught.value)) == (
        f"{path}: unable to open database file; this user may not write to {tmp_path}, or its file system is read-only"
    )


async def opened_and_closed(path: Path) -> None:
    await (await SqliteJournal.open(path)).close()


async def refused(path: Path) -> str:
    """What is said; nothing in the files has changed."""
    files = [file for file in (path, path.with_name(path.name + "-wal")) if file.exists()]
    before = [file.read_bytes() for file in files]
    with pytest.raises(JournalError) as refusal:
        await opened_and_closed(path)
    assert [file.read_bytes() for file in files] == before
    return str(refusal.value)


async def test_what_a_killed_process_leaves_is_read_whole(tmp_path: Path) -> None:
    path, run_id = await copy_of_a_live_file(tmp_path)
    journal = await SqliteJournal.open(path)
    assert len(await journal.read(run_id)) == 31
    await journal.close()


@pytest.mark.parametrize("torn", [b"", b"\0" * 100])
async def test_a_wal_torn_at_its_end_was_never_committed(tmp_path: Path, torn: bytes) -> None:
    """What a kill in the middle of a commit leaves, in a new log and in one that is written over."""
    path, run_id = await copy_of_a_live_file(tmp_path)
    wal = path.with_name(path.name + "-wal")
    wal.write_bytes(wal.read_bytes()[:-100] + torn)
    journal = await SqliteJournal.open(path)
    assert [entry.seq for entry in await journal.read(run_id)] == list(range(1, 31))
    await journal.close()


async def test_a_file_cut_short_is_said(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = await SqliteJournal.open(path)
    await finished_run(journal)
    await journal.close()
    path.write_bytes(path.read_bytes()[:-4096])
    assert "it was cut off" in await refused(path)


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to be one" * 9, b"SQLite format 3\x00short"]
)
async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(content)
    assert "is not a database" in await refused(path)


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.commit()
    assert "another program's database" in await refused(path)


async def test_a_damaged_batch_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    run, lease = await started(journal)
    for text in ("a", "b", "c"):
        await written(journal, lease, [MessageChunk(text)])
    with closing(connect(tmp_path / "runs.db", writer=True)) as connection:
        connection.execute("UPDATE batches SET events = CAST(replace(events, 'b', 'B') AS BLOB) WHERE first_seq = 3")
    with pytest.raises(CorruptLog, match=r"entries 3-3 are damaged"):
        await journal.read(run.id)
    assert len(await journal.read(run.id, after=3)) == 1
    with closing(connect(tmp_path / "runs.db", writer=True)) as connection:
        connection.execute("DELETE FROM batches WHERE first_seq = 3")
    with pytest.raises(CorruptLog, match=r"entries 3-3 are missing"):
        await journal.read(run.id)
    await journal.close()


def test_a_file_whose_tables_another_process_makes_right_now_is_not_another_program_s(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with closing(connect(path, writer=True)) as other:
        other.execute("PRAGMA journal_mode = WAL")  # a file without tables, as the other process has just begun it

    class Reader(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if "sqlite_schema" in sql:
                prepare(path)
            return super().execute(sql, parameters)

    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, factory=Reader)) as reader:
        check_identity(reader, path)


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_second_journal_of_a_process_leaves_the_first_its_locks(at_once: bool, tmp_path: Path) -> None:
    """Without them, another process that closes the database removes the write-ahead log that is in use."""
    path = tmp_path / "runs.db"
    other = f"""
import asyncio, pathlib
from tailrace.journal.sqlite.store import SqliteJournal
async def main():
    journal = await SqliteJournal.open(pathlib.Path({str(path)!r}))
    await journal.runs()
    await journal.close()
asyncio.run(main())
"""
    await (await SqliteJournal.open(path)).close()
    if at_once:
        first, second = await asyncio.gather(SqliteJournal.open(path), SqliteJournal.open(path))
    else:
        first, second = await SqliteJournal.open(path), await SqliteJournal.open(path)
    run = await first.create(NewRun("agent"))
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", other)
    assert await child.wait() == 0
    assert path.with_name("runs.db-wal").exists()
    assert await second.get(run.id) == await first.get(run.id)
    newer = await first.create(NewRun("agent"))
    await second.close()
    await first.close()
    third = await SqliteJournal.open(path)
    assert {found.id for found in await third.runs()} == {run.id, newer.id}
    await third.close()
