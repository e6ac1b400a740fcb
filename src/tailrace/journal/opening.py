"""Which journal a `store.url` means. The one place here that knows them all."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tailrace.errors import ConfigError
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import Journal


@asynccontextmanager
async def open_journal(url: str, home: Path, *, clock: Callable[[], float] = time.time) -> AsyncIterator[Journal]:
    """`sqlite:///tailrace.db` (relative to `home`), `sqlite:////absolute.db`, `memory://`. Closed on leaving."""
    journal = await _open(url, home, clock)
    try:
        yield journal
    finally:
        await journal.close()


async def _open(url: str, home: Path, clock: Callable[[], float]) -> Journal:
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            return MemoryJournal(clock=clock)
        case "sqlite":
            from tailrace.journal.sqlite import SqliteJournal
            from tailrace.journal.volatile import VolatileFirst

            name = rest.removeprefix("/")
            if not name:
                raise ConfigError("name the file: sqlite:///tailrace.db", key="store.url")
            return VolatileFirst(await SqliteJournal.open(home / name, clock=clock), clock=clock)
        case _:
            raise ConfigError(f"no store for {url!r}; use sqlite:///tailrace.db or memory://", key="store.url")
