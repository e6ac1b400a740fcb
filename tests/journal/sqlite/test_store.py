"""The SQLite journal keeps the contract, with and without runs that live in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.journal.open_journal import open_journal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import Journal
from tailrace.testing.conformance.journal import JournalConformance, WallClock


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
