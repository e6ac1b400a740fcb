"""Opens the journal that `store.url` names. The one module that knows every implementation."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tailrace.errors import ConfigError
from tailrace.journal.bus import Bus
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.memory_first import MemoryFirst, Storage
from tailrace.journal.stored.storage_format import NothingStored
from tailrace.ports import Journal
from tailrace.system.extras import install_command


@asynccontextmanager
async def open_journal(
    url: str,
    database: Path | None,
    *,
    password: str | None = None,
    clock: Callable[[], float] = time.time,
    on_lag: Callable[[float], None] | None = None,
    bus_url: str = "auto",
    make: bool = True,
) -> AsyncIterator[Journal]:
    """For `store.url` and the config's `database`, the file of a `sqlite:` url. `password` counts where a
    `postgresql:` url has none. Closed on leaving. `on_lag` is called
    with the seconds that entries waited for storage before they were shown; never without storage. `bus_url` names what
    carries entries to other machines, beside PostgreSQL: `redis:`, or what the store has itself. Without `make`, for a
    command that only reads, a database without a journal is shown as an empty one, and none is created in it."""
    bus = make_bus(bus_url, url)
    journal: Journal
    if database is not None:
        from tailrace.journal.sqlite.store import SqliteJournal

        journal = MemoryFirst(await SqliteJournal.open(database, clock=clock, on_lag=on_lag), clock=clock)
    elif url.startswith(("postgresql:", "postgres:")):
        try:
            storage = await _open_postgres(url, password, clock, on_lag, bus, make=make)
        except NothingStored:
            journal = MemoryJournal(clock=clock)
        else:
            journal = MemoryFirst(storage, clock=clock)
    elif url.startswith("memory:"):
        journal = MemoryJournal(clock=clock)
    else:
        scheme = url.partition(":")[0]  # the rest may hold a password
        raise ConfigError(
            f"no store for {scheme}:; use sqlite:///tailrace.db, postgresql://… or memory://", key="store.url"
        )
    try:
        yield journal
    finally:
        await journal.close()


async def check_bus(url: str) -> None:
    """Raises `JournalError` where the bus that `bus.url` names does not answer."""
    from tailrace.integrations.redis.bus import ping

    await ping(url)


async def _open_postgres(
    url: str,
    password: str | None,
    clock: Callable[[], float],
    on_lag: Callable[[float], None] | None,
    bus: Bus | None,
    *,
    make: bool,
) -> Storage:
    try:
        from tailrace.integrations.postgres.store import PostgresJournal
    except ModuleNotFoundError as exc:
        if exc.name != "asyncpg":
            raise
        raise ConfigError(f"PostgreSQL needs an extra: {install_command('postgres')}", key="store.url") from exc
    own_clock = None if clock is time.time else clock
    return await PostgresJournal.open(url, password=password, clock=own_clock, on_lag=on_lag, bus=bus, make=make)


def make_bus(url: str, store_url: str) -> Bus | None:
    """The bus that `bus.url` names, not yet open; None where the store itself wakes other processes. Raises
    `ConfigError` for a store that only one machine has."""
    if not url.startswith(("redis:", "rediss:")):
        return None
    if not store_url.startswith(("postgresql:", "postgres:")):
        raise ConfigError("Redis carries entries between machines: store.url must be postgresql://…", key="bus.url")
    try:
        from tailrace.integrations.redis.bus import RedisBus
    except ModuleNotFoundError as exc:
        if exc.name != "redis":
            raise
        raise ConfigError(f"Redis needs an extra: {install_command('redis')}", key="bus.url") from exc
    return RedisBus(url)
