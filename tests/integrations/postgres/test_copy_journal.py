"""A journal that is taken along from SQLite to PostgreSQL says the same there, and goes on there."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from journal.filled_journal import fill
from tailrace.cli.main import main
from tailrace.errors import JournalError
from tailrace.events import MessageChunk, RunFinished
from tailrace.integrations.postgres.copy_journal import copy_journal
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.fold import fold
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import NewRun, Signal
from tailrace.testing.conformance.sample_runs import started, written


@pytest.fixture
async def filled(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    file = tmp_path / "tailrace.db"
    journal = await SqliteJournal.open(file)
    runs = await fill(journal)
    await journal.close()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "UPDATE heads SET state = 'running', owner = 'killed', lease_until = ?"
            " WHERE num = (SELECT num FROM runs WHERE id = ?)",
            (time.time() + 3600.0, runs["of a dead process"]),
        )
    return file, runs


async def test_every_run_is_the_same_in_postgresql(filled: tuple[Path, dict[str, str]], postgres_url: str) -> None:
    file, runs = filled
    shown: list[tuple[str, int, int]] = []
    copied = await copy_journal(file, postgres_url, on_progress=lambda *progress: shown.append(progress))
    assert (copied["runs"], copied["signals"], copied["key_values"]) == (len(runs), 2, 3)
    assert [line for line in shown if line[1] == line[2]][-2:] == [("key_values", 3, 3), ("counters", 1, 1)]
    before, after = await SqliteJournal.open(file), await PostgresJournal.open(postgres_url)
    try:
        assert await after.list_values("chats") == {f"k{number}": b"v%d\0" % number for number in range(3)}
        assert await after.list_values("processes.heartbeats") == {}
        assert await after.counters("n") == {"n": 2.5}
        for name, run_id in runs.items():
            old, new = await before.read(run_id), await after.read(run_id)
            assert (name, list(new)) == (name, list(old))
            assert msgspec.to_builtins(fold(new).snapshot()) == msgspec.to_builtins(fold(old).snapshot())
            assert await after.get(run_id) == await before.get(run_id)
            assert await after.snapshot(run_id) == await before.snapshot(run_id)
            assert await after.times(run_id) == await before.times(run_id) != []
        assert (await after.runs(session="s"))[0].id == runs["compacted"]
        assert (await after.run_with_key("ended")) == await after.get(runs["ended"])
    finally:
        await before.close()
        await after.close()


async def test_unfinished_runs_go_on_in_postgresql(filled: tuple[Path, dict[str, str]], postgres_url: str) -> None:
    file, runs = filled
    await copy_journal(file, postgres_url)
    journal = await PostgresJournal.open(postgres_url)
    try:
        unfinished = [runs["unfinished"], runs["of a dead process"]]
        assert sorted(run.id for run in await journal.orphans()) == sorted(unfinished), "at once, not after a lease"
        for run_id in unfinished:
            lease = await journal.claim(run_id, "next")
            [signal] = await journal.signals(lease)
            await written(journal, lease, [MessageChunk(" and on")])
            later = await journal.signal(run_id, Signal("later"))
            assert later.id > signal.id
            await journal.seal(lease, RunFinished("completed", (await journal.snapshot(run_id)).event.output))  # type: ignore[union-attr]
            assert fold(await journal.read(run_id)).output.endswith(" and on")
        run, _ = await started(journal, NewRun("agent", session="s"))
        assert run.id not in runs.values()
        assert (await journal.runs(session="s"))[0].id == run.id
        assert (await journal.get(runs["parked"])).parked is not None
    finally:
        await journal.close()


async def test_a_target_that_is_not_empty_is_left_as_it_is(
    filled: tuple[Path, dict[str, str]], postgres_url: str
) -> None:
    file, runs = filled
    await copy_journal(file, postgres_url)
    with pytest.raises(JournalError, match=r"is not empty; name another with \?schema=NAME, or remove that schema$"):
        await copy_journal(file, postgres_url)
    journal = await PostgresJournal.open(postgres_url)
    assert len(await journal.runs()) == len(runs)
    await journal.close()


async def test_a_copy_that_fails_leaves_nothing_behind(filled: tuple[Path, dict[str, str]], postgres_url: str) -> None:
    file, _ = filled

    def fail(table: str, _copied: int, _total: int) -> None:
        if table == "signals":
            raise JournalError("stop here")

    with pytest.raises(JournalError, match="stop here"):
        await copy_journal(file, postgres_url, on_progress=fail)
    await copy_journal(file, postgres_url)


async def test_a_source_that_is_in_use_is_refused(filled: tuple[Path, dict[str, str]], postgres_url: str) -> None:
    file, _ = filled
    using = await SqliteJournal.open(file)
    with pytest.raises(JournalError, match=r"is in use; stop every tailrace process that has it open, and try again$"):
        await copy_journal(file, postgres_url)
    await using.close()


def _pragma(statement: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(statement)

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_pragma("PRAGMA user_version = 7"), "has storage format 7 and this Tailrace reads format 1"),
        (_pragma("PRAGMA application_id = 1"), "is another program's database"),
        (Path.unlink, "there is no journal at"),
    ],
)
async def test_a_source_that_cannot_be_copied_is_said(
    filled: tuple[Path, dict[str, str]], postgres_url: str, change: Callable[[Path], None], why: str
) -> None:
    file, _ = filled
    change(file)
    with pytest.raises(JournalError, match=why):
        await copy_journal(file, postgres_url)


def test_the_command(
    filled: tuple[Path, dict[str, str]],
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, runs = filled
    monkeypatch.setenv("TAILRACE_HOME", str(file.parent))
    assert main(["migrate", "sqlite:///tailrace.db", postgres_url]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"copied {len(runs)} runs to postgresql://…@127.0.0.1:")
    assert f"runs: {len(runs)} of {len(runs)}\n" in shown.err
    assert main(["migrate", f"sqlite:///{file}", postgres_url]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    for source, target in (("tailrace.db", postgres_url), ("sqlite:///tailrace.db", "sqlite:///other.db")):
        assert main(["migrate", source, target]) == 2
        assert "must be" in capsys.readouterr().err


async def test_signals_are_numbered_on_where_the_file_stopped(tmp_path: Path, postgres_url: str) -> None:
    """The log of a fork names signals of the run that it was made from, whose rows are gone."""
    source = await SqliteJournal.open(tmp_path / "a.db")
    run, lease = await started(source)
    last = [await source.signal(run.id, Signal("go")) for _ in range(3)][-1]
    await source.seal(lease, RunFinished("completed", ""))
    await source.close()
    await copy_journal(tmp_path / "a.db", postgres_url)
    target = await PostgresJournal.open(postgres_url)
    other, _ = await started(target)
    assert (await target.signal(other.id, Signal("go"))).id > last.id
    await target.close()


async def test_a_text_that_postgresql_cannot_store_is_named(tmp_path: Path, postgres_url: str) -> None:
    source = await SqliteJournal.open(tmp_path / "a.db")
    run = await source.create(NewRun("agent", session="a\0b"))
    await source.close()
    with pytest.raises(
        JournalError, match=rf"the session of run {run.id} has a character that PostgreSQL cannot store"
    ):
        await copy_journal(tmp_path / "a.db", postgres_url)
