"""The PostgreSQL journal keeps the contract, with and without runs that live in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from journal.shared_journal import OpenShared, SharedJournalConformance
from redis_server import redis_server
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.integrations.redis.bus import RedisBus
from tailrace.journal.open_journal import open_journal
from tailrace.ports import Journal
from tailrace.testing.conformance.journal import JournalConformance
from tailrace.testing.conformance.wall_clock import WallClock


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
    @pytest.fixture(params=["NOTIFY", "Redis"])
    async def open_shared(
        self, request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path
    ) -> AsyncIterator[OpenShared]:
        opened: list[PostgresJournal] = []
        with contextlib.ExitStack() as stack:
            redis = stack.enter_context(redis_server(tmp_path)) if request.param == "Redis" else None

            async def open_shared(clock: Callable[[], float]) -> Journal:
                bus = RedisBus(redis.url) if redis is not None else None
                opened.append(await PostgresJournal.open(postgres_url, clock=clock, bus=bus))
                return opened[-1]

            yield open_shared
            for journal in opened:
                await journal.close()
