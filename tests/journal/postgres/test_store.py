"""The PostgreSQL journal keeps the contract, with and without runs that live in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from tailrace.journal.open_journal import open_journal
from tailrace.journal.postgres.store import PostgresJournal
from tailrace.ports import Journal
from tailrace.testing.conformance.journal import JournalConformance, WallClock
from tailrace.testing.conformance.shared_journal import OpenShared, SharedJournalConformance


class TestPostgresJournal(JournalConformance):
    @pytest.fixture
    async def journal(self, postgres_url: str, wall_clock: WallClock) -> AsyncIterator[Journal]:
        journal = await PostgresJournal.open(postgres_url, clock=wall_clock)
        yield journal
        await journal.close()


class TestOpenedByUrl(JournalConformance):
    @pytest.fixture
    async def journal(self, postgres_url: str, wall_clock: WallClock) -> AsyncIterator[Journal]:
        async with open_journal(postgres_url, None, clock=wall_clock) as journal:
            yield journal


class TestPostgresJournalShared(SharedJournalConformance):
    @pytest.fixture
    async def open_shared(self, postgres_url: str) -> AsyncIterator[OpenShared]:
        opened: list[PostgresJournal] = []

        async def open_shared(clock: Callable[[], float]) -> Journal:
            opened.append(await PostgresJournal.open(postgres_url, clock=clock))
            return opened[-1]

        yield open_shared
        for journal in opened:
            await journal.close()
