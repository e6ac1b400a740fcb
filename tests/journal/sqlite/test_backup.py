"""A backup is whole: made while a process writes, cut off by a kill, or refused in one clear line."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from journal.filled_journal import fill
from tailrace.errors import JournalError
from tailrace.events import MessageChunk, RunFinished
from tailrace.journal.sqlite import backup
from tailrace.journal.sqlite.backup import back_up
from tailrace.journal.sqlite.schema import connect, wal_bytes
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import NewRun
from tailrace.testing.conformance.sample_runs import started, written


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    with closing(connect(path, writer=False)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for (name,) in tables}  # noqa: S608


def left_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Where backups are kept."""
    directory = tmp_path / "backups"
    directory.mkdir()
    return directory


@pytest.fixture
async def filled(tmp_path: Path) -> Path:
    """A journal that no process has open."""
    source = tmp_path / "tailrace.db"
    journal = await SqliteJournal.open(source)
    await fill(journal)
    await journal.close()
    return source


# ── while a process writes ───────────────────────────────────────────────────────────────────────────────────


async def test_a_backup_has_one_moment_of_a_journal_that_is_written_to_meanwhile(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PROGRESS_OPCODES", 100)
    source, target = tmp_path / "tailrace.db", kept / "copy.db"
    journal = await SqliteJournal.open(source)
    await fill(journal)
    run, lease = await started(journal, NewRun("agent"))
    await written(journal, lease, [MessageChunk("x" * 4000) for _ in range(60)])
    assert wal_bytes(source) > 200_000, "most of it is in the write-ahead log"
    loop, commits = asyncio.get_running_loop(), 0

    def write_meanwhile(doing: str, _bytes: int, _total: int) -> None:
        nonlocal commits
        commits += 1
        asyncio.run_coroutine_threadsafe(written(journal, lease, [MessageChunk("y" * 400)]), loop).result(timeout=60)

    made = await asyncio.to_thread(back_up, source, target, on_progress=write_meanwhile)
    assert commits > 10, "no commit waited for the backup"
    assert made == (target.stat().st_size, len(await journal.runs(limit=1000)))
    copy = await SqliteJournal.open(target)
    copied, whole = await copy.read(run.id), await journal.read(run.id)
    assert 61 < len(copied) < len(whole), "of one moment after the backup began"
    assert copied == whole[: len(copied)]
    await copy.close()
    await journal.seal(lease, RunFinished("completed", "x" * 240_000 + "y" * 400 * commits))
    await journal.close()


def test_a_backup_is_one_file_for_its_owner_alone(filled: Path, kept: Path) -> None:
    target = kept / "copy.db"
    before = os.umask(0)
    try:
        back_up(filled, target)
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert left_in(kept) == ["copy.db"]
    with closing(sqlite3.connect(f"file:{target}?mode=ro&immutable=1", uri=True)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() != ("wal",), "it can be read where it lies"
    assert rows_of(target) == rows_of(filled)


def test_a_backup_leaves_the_database_as_it_was(filled: Path, kept: Path) -> None:
    before = filled.read_bytes()
    back_up(filled, kept / "copy.db")
    assert filled.read_bytes() == before


def test_the_progress_of_a_long_backup_is_shown(filled: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "PROGRESS_OPCODES", 10)
    said: list[str] = []
    back_up(filled, kept / "copy.db", on_progress=lambda doing, _done, _total: said.append(doing))
    assert list(dict.fromkeys(said)) == ["copied", "verifying"]
    assert min(said.count("copied"), said.count("verifying")) > 2


# ── one that is cut off ──────────────────────────────────────────────────────────────────────────────────────

STOPS_HALFWAY = """
import sys
from pathlib import Path
from tailrace.journal.sqlite import backup

def stop(doing, copied, total):
    if copied or doing == "verifying":
        print("halfway", flush=True)
        sys.stdin.read()

backup.PROGRESS_OPCODES = 100
backup.back_up(Path(sys.argv[1]), Path(sys.argv[2]), on_progress=stop)
"""


async def test_a_kill_in_the_middle_leaves_nothing_under_the_name_of_the_target(tmp_path: Path, kept: Path) -> None:
    source, target = tmp_path / "tailrace.db", kept / "copy.db"
    journal = await SqliteJournal.open(source)
    await fill(journal)
    _, lease = await started(journal, NewRun("agent"))
    await written(journal, lease, [MessageChunk("x" * 4000) for _ in range(600)])  # more than SQLite keeps in memory
    command = [sys.executable, "-c", STOPS_HALFWAY, str(source), str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"halfway\n"
        process.send_signal(signal.SIGKILL)
    left = left_in(kept)
    assert all(name.startswith("copy.db.") and ".partial" in name for name in left)
    back_up(source, target)
    assert left_in(kept) == ["copy.db", *left], "the next backup is made beside it"
    assert rows_of(target) == rows_of(source)
    await journal.close()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, JournalError])
def test_what_ends_a_backup_removes_the_part_that_was_made(filled: Path, kept: Path, stop: type[BaseException]) -> None:
    def fail(_done: str, _bytes: int, _total: int) -> None:
        raise stop

    with pytest.raises(stop):
        back_up(filled, kept / "copy.db", on_progress=fail)
    assert left_in(kept) == []


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_existing_file_is_replaced_with_force_alone(filled: Path, kept: Path) -> None:
    target = kept / "copy.db"
    target.write_text("a letter")
    with pytest.raises(JournalError, match=r"copy\.db exists; name another file, or replace it with --force$"):
        back_up(filled, target)
    assert target.read_text() == "a letter"
    back_up(filled, target, force=True)
    assert rows_of(target) == rows_of(filled)


def test_a_file_that_came_to_be_there_meanwhile_is_kept(filled: Path, kept: Path) -> None:
    target = kept / "copy.db"

    def write(done: str, _bytes: int, _total: int) -> None:
        target.write_text("a letter")

    with pytest.raises(JournalError, match="exists; name another file"):
        back_up(filled, target, on_progress=write)
    assert target.read_text() == "a letter"
    assert left_in(kept) == ["copy.db"]


def test_the_database_is_never_the_target(filled: Path, kept: Path) -> None:
    before = filled.read_bytes()
    (kept / "link.db").symlink_to(filled)
    for target in (filled, filled.with_name(filled.name + "-wal"), kept / "link.db"):
        with pytest.raises(JournalError, match="is the database itself; name another file"):
            back_up(filled, target, force=True)
    assert filled.read_bytes() == before


def test_what_cannot_be_backed_up_is_said_and_nothing_is_made(tmp_path: Path, filled: Path, kept: Path) -> None:
    nothing, empty, rubbish, other = (tmp_path / name for name in ("none.db", "empty.db", "rubbish.db", "other.db"))
    empty.touch()
    rubbish.write_bytes(b"rubbish" * 100)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE runs (x)")
    for source, said in {
        nothing: "there is no journal at",
        empty: "there is no journal at",
        rubbish: "is not a database",
        other: "is another program's database",
    }.items():
        with pytest.raises(JournalError, match=said):
            back_up(source, kept / "copy.db")
        assert left_in(kept) == []
    assert not nothing.exists()
    with pytest.raises(JournalError, match="is a directory; name a file in it"):
        back_up(filled, kept)
    with pytest.raises(JournalError, match="there is no directory"):
        back_up(filled, kept / "nowhere" / "copy.db")


def test_a_damaged_copy_is_removed(filled: Path, kept: Path) -> None:
    def damage(doing: str, copied: int, total: int) -> None:
        """As a disk does: when all is written, before it is read again."""
        if doing == "verifying":
            [partial] = kept.iterdir()
            copy = bytearray(partial.read_bytes())
            copy[4096 * 3 : 4096 * 4] = b"\0" * 4096
            partial.write_bytes(copy)

    with pytest.raises(JournalError, match="damaged"):
        back_up(filled, kept / "copy.db", on_progress=damage)
    assert left_in(kept) == []


def test_a_disk_without_space_is_said_before_anything_is_copied(
    filled: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(kept)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(JournalError, match=r"the backup needs 0.1 MB in .*backups, where 0.0 MB are free"):
        back_up(filled, kept / "copy.db")
    assert left_in(kept) == []


def test_two_backups_at_once_of_different_names_do_not_meet(filled: Path, kept: Path) -> None:
    targets = [kept / f"{number}.db" for number in range(3)]
    threads = [Thread(target=back_up, args=(filled, target)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left_in(kept) == ["0.db", "1.db", "2.db"]
