"""Sessions in SQLite's file: long searches, and looks for the next run that fail."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.errors import StorageFailed
from tailrace.journal.sqlite import queries
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import Run
from tailrace.testing.conformance.journal_runs import answered, question


async def test_a_search_that_ends_early_leaves_no_session_half_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    for session in ("a", "b"):
        for text in ("the needle", "hay", "more hay"):
            await answered(journal, question(text, session), "ok")
    monkeypatch.setattr(queries, "MAX_S", -1.0)
    first = await journal.sessions("agent", search="needle")
    rest = await journal.sessions("agent", search="needle", before=first.next)
    await journal.close()
    assert [[each.id for each in page.sessions] for page in (first, rest)] == [["b"], ["a"]]
    assert (first.next is not None, rest.next) == (True, None)


async def test_a_run_is_found_although_the_look_for_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = await SqliteJournal.open(tmp_path / "runs.db")
    theirs = await SqliteJournal.open(tmp_path / "runs.db")
    failures: list[str] = []

    def newest_runs(connection: sqlite3.Connection, sessions: Sequence[str]) -> dict[str, str]:
        newest = found(connection, sessions)
        if newest["s"] and not failures:
            failures.append(newest["s"])
            raise StorageFailed("the disk is busy")
        return newest

    async def run_after(self: SqliteJournal, session: str, kind: str, after: str) -> Run | None:
        try:
            return await sought(self, session, kind, after)
        finally:
            has_looked.set()

    found, sought, has_looked = queries.newest_runs, SqliteJournal._run_after, asyncio.Event()
    monkeypatch.setattr(queries, "newest_runs", newest_runs)
    monkeypatch.setattr(SqliteJournal, "_run_after", run_after)
    waiting = asyncio.ensure_future(theirs.next_run("s", "agent", ""))
    await has_looked.wait()  # a thread that reads late would find the run that begins below
    begun = await ours.create(question("hello", "s"))
    seen = await asyncio.wait_for(waiting, 10.0)
    await ours.close()
    await theirs.close()
    assert ([seen.id], [begun.id]) == (failures, failures)
