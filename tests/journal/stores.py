"""The stores that tests of every database run on, by their url."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.sqlite.store import SqliteJournal

AnyStored: TypeAlias = SqliteJournal | PostgresJournal


class Store(NamedTuple):
    """`sqlite:///PATH` or `postgresql://…`."""

    url: str

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgresql:")

    async def open(self, *, clock: Callable[[], float] | None = None) -> AnyStored:
        """Each journal stands for a process of its own."""
        if self.is_postgres:
            return await PostgresJournal.open(self.url, clock=clock)
        return await SqliteJournal.open(Path(self.url.removeprefix("sqlite:///")), clock=clock or time.time)
