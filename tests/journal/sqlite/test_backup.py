"""A backup is whole: made while a process writes, cut off by a kill, or refused in one clear line."""

from __future__ import annotations

import asyncio
import os
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
from tailrace.errors import CorruptLog, JournalError
from tailrace.events import MessageChunk, RunFinished
from tailrace.journal.sqlite import backup
from tailrace.journal.sqlite.backup import back_up
from tailrace.journal.sqlite.schema import connect, wal_bytes
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import NewRun
from tailrace.testing.conformance.journal import started, written

STEP_PAGES = 4


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


async def test_a_backup_has_one_moment_of_a_journal_that_is_written_to_between_any_two_steps(
    tmp_path: Path, kept: Path
) -> None:
    """Each commit of a writer would start a copy without a transaction of its own anew, so that it never ended."""
    source, target = tmp_path / "tailrace.db", kept / "copy.db"
    journal = await SqliteJournal.open(source)
    await fill(journal)
    _, lease = await started(journal, NewRun("agent"))
    await written(journal, lease, [MessageChunk("x" * 4000) for _ in range(60)])
    assert wal_bytes(source) > 200_000, "most of it is in the write-ahead log"
    at_first = await asyncio.to_thread(rows_of, source)
    loop, commits = asyncio.get_running_loop(), 0

    def write_meanwhile(_done: str, _bytes: int, _total: int) -> None:
        nonlocal commits
        asyncio.run_coroutine_threadsafe(written(journal, lease, [MessageChunk("y" * 4000)]), loop).result(timeout=60)
        commits += 1
        assert commits < 1000, "the copy begins anew at each commit"

    made = await asyncio.to_thread(back_up, source, target, on_progress=write_meanwhile, step_pages=STEP_PAGES)
    assert commits > 10, "no commit waited for the backup"
    assert rows_of(target) == at_first, "every run, byte for byte, as it was when the backup began"
    assert made.rows == {name: len(rows) for name, rows in at_first.items()}
    assert made.size_bytes == target.stat().st_size
    await journal.seal(lease, RunFinished("completed", "x" * 240_000 + "y" * 4000 * commits))
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


def test_long_counting_and_checking_are_said_too(filled: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "PROGRESS_OPCODES", 10)
    said: list[str] = []
    back_up(filled, kept / "copy.db", on_progress=lambda doing, _done, _total: said.append(doing))
    assert list(dict.fromkeys(said)) == ["counting the rows of", "copied", "verifying"]
    assert min(said.count("counting the rows of"), said.count("verifying")) > 2


# ── one that is cut off ──────────────────────────────────────────────────────────────────────────────────────

STOPS_HALFWAY = """
import sys
from pathlib import Path
from tailrace.journal.sqlite.backup import back_up

def stop(done, copied, total):
    if copied > total / 2:
        print("halfway", flush=True)
        sys.stdin.read()

back_up(Path(sys.argv[1]), Path(sys.argv[2]), on_progress=stop, step_pages=4)
"""


async def test_a_kill_in_the_middle_leaves_nothing_that_looks_whole(tmp_path: Path, kept: Path) -> None:
    source, target = tmp_path / "tailrace.db", kept / "copy.db"
    journal = await SqliteJournal.open(source)
    await fill(journal)
    _, lease = await started(journal, NewRun("agent"))
    await written(journal, lease, [MessageChunk("x" * 4000) for _ in range(600)])  # more than SQLite keeps in memory
    command = [sys.executable, "-c", STOPS_HALFWAY, str(source), str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"halfway\n"
        with pytest.raises(JournalError, match=r"another process is making a backup at .*copy\.db\.partial$"):
            back_up(source, target)
        process.send_signal(signal.SIGKILL)
    assert left_in(kept) == ["copy.db.partial", "copy.db.partial-journal"]
    with (
        closing(sqlite3.connect(kept / "copy.db.partial")) as connection,
        pytest.raises(sqlite3.Error, match="no such table"),
    ):
        connection.execute("SELECT count(*) FROM runs").fetchone()
    back_up(source, target)
    assert left_in(kept) == ["copy.db"], "the next backup removes what the killed one left"
    assert rows_of(target) == rows_of(source)
    await journal.close()


def test_a_kill_before_the_last_step_costs_no_earlier_backup(filled: Path, kept: Path) -> None:
    """The finished copy has both names for a moment."""
    target = kept / "copy.db"
    back_up(filled, target)
    (kept / "copy.db.partial").hardlink_to(target)
    kept_bytes = target.read_bytes()

    def fail(_done: str, _bytes: int, _total: int) -> None:
        raise JournalError("stop here")

    with pytest.raises(JournalError, match="stop here"):
        back_up(filled, target, force=True, on_progress=fail)
    assert target.read_bytes() == kept_bytes
    assert left_in(kept) == ["copy.db"]


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


def test_a_copy_that_is_not_what_the_source_was_is_removed(
    filled: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damage(done: str, copied: int, total: int) -> None:
        """As a disk does: when all is written, before it is read again."""
        if (done, copied) == ("verifying", 0):
            copy = bytearray((kept / "copy.db.partial").read_bytes())
            copy[4096 * 3 : 4096 * 4] = b"\0" * 4096
            (kept / "copy.db.partial").write_bytes(copy)

    with pytest.raises(JournalError, match="damaged"):
        back_up(filled, kept / "copy.db", on_progress=damage)
    assert left_in(kept) == []

    def lose(done: str, copied: int, total: int) -> None:
        if (done, copied) == ("verifying", 0):
            with closing(sqlite3.connect(kept / "copy.db.partial")) as connection, connection:
                connection.execute("DELETE FROM signals")

    with pytest.raises(JournalError, match=r"rows where .* are due, and was removed"):
        back_up(filled, kept / "copy.db", on_progress=lose)
    assert left_in(kept) == []


def test_a_disk_without_space_is_said_before_anything_is_copied(
    filled: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "_free_bytes", lambda _path: 1000)
    with pytest.raises(JournalError, match=r"the backup needs 0.1 MB in .*backups, where 0.0 MB are free"):
        back_up(filled, kept / "copy.db")
    assert left_in(kept) == []


async def test_commits_that_a_damaged_log_hides_are_not_left_out_in_silence(tmp_path: Path, kept: Path) -> None:
    source = tmp_path / "tailrace.db"
    journal = await SqliteJournal.open(source)
    _, lease = await started(journal)
    for number in range(5):
        await written(journal, lease, [MessageChunk(str(number))])
    lost = tmp_path / "lost" / "tailrace.db"
    (lost.parent / "tailrace.db-bells").mkdir(parents=True)  # as a process that was killed leaves it
    for suffix in ("", "-wal"):
        data = bytearray(source.with_name(source.name + suffix).read_bytes())
        if suffix:
            data[-4096 * 8] ^= 1
        lost.with_name(lost.name + suffix).write_bytes(data)
    with pytest.raises(CorruptLog, match="is damaged after frame"):
        back_up(lost, kept / "copy.db")
    assert left_in(kept) == []
    await journal.close()


def test_two_backups_at_once_of_different_names_do_not_meet(filled: Path, kept: Path) -> None:
    targets = [kept / f"{number}.db" for number in range(3)]
    threads = [Thread(target=back_up, args=(filled, target)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left_in(kept) == ["0.db", "1.db", "2.db"]
