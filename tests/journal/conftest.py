from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from journal.stores import AnyStored, Store
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.sqlite.store import SqliteJournal


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty database of each kind."""
    if request.param == "postgres":
        return Store(request.getfixturevalue("postgres_url"))
    return Store(f"sqlite:///{tmp_path / 'runs.db'}")


@pytest.fixture(autouse=True)
async def _close_journals(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Closes the journals that a failing test did not come to close. Their warnings would fail the tests after it."""
    loop = asyncio.get_running_loop()
    opened: list[AnyStored] = []

    def remember(kind: type[AnyStored]) -> None:
        initialise: Callable[..., None] = kind.__init__

        def initialise_and_remember(self: AnyStored, *args: Any, **kwargs: Any) -> None:
            initialise(self, *args, **kwargs)
            if asyncio.get_running_loop() is loop:  # not the driven one, which is gone by now
                opened.append(self)

        monkeypatch.setattr(kind, "__init__", initialise_and_remember)

    remember(SqliteJournal)
    remember(PostgresJournal)
    yield
    for journal in opened:
        await journal.close()
