"""Opens the journal that `store.url` names: one of the journal's own, or an integration's."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from tailrace.errors import ConfigError
from tailrace.journal.bus import Bus
from tailrace.journal.memory_first import MemoryFirst, Storage
from tailrace.journal.stored.storage_format import NothingStored
from tailrace.plugins.installed import bus_for, store_examples, store_for
from tailrace.ports import Journal


class OpenStorage(Protocol):
    """How an integration's store is opened."""

    async def __call__(
        self,
        url: str,
        *,
        password: str | None,
        clock: Callable[[], float] | None,
        on_lag: Callable[[float], None] | None,
        bus: Bus | None,
        make: bool,
    ) -> Storage:
        """`password` counts where the url has none. `clock`: None for the store's own. Raises `ConfigError` for an
        address that cannot work, `JournalError` where no store answers or it cannot be used, `NothingStored` where
        there is no journal and it may not `make` one."""


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
    """For `store.url` and the config's `database`, the file of a `sqlite:` url. `password` counts where the url of an
    integration's store has none. Closed on leaving. `on_lag` is called with the seconds that entries waited for storage
    before they were shown; never without storage. `bus_url` names what carries entries to other machines beside such a
    store. Without `make`, for a command that only reads, a database without a journal is shown as an empty one, and
    none is created in it."""
    bus = make_bus(bus_url, url)
    journal: Journal
    if database is not None:
        from tailrace.journal.sqlite.store import SqliteJournal

        journal = MemoryFirst(await SqliteJournal.open(database, clock=clock, on_lag=on_lag), clock=clock)
    elif url.startswith("memory:"):
        journal = _empty_journal(clock)
    else:
        own_clock = None if clock is time.time else clock
        try:
            storage = await _opener(url)(url, password=password, clock=own_clock, on_lag=on_lag, bus=bus, make=make)
        except NothingStored:
            journal = _empty_journal(clock)
        else:
            journal = MemoryFirst(storage, clock=clock)
    try:
        yield journal
    finally:
        await journal.close()


def _empty_journal(clock: Callable[[], float]) -> Journal:
    from tailrace.journal.memory import MemoryJournal

    return MemoryJournal(clock=clock)


def _opener(url: str) -> OpenStorage:
    if (found := store_for(url)) is None:
        scheme = url.partition(":")[0]  # the rest may hold a password
        known = " or ".join(["sqlite:///tailrace.db", *store_examples(), "memory://"])
        raise ConfigError(f"no store for {scheme}:; use {known}", key="store.url")
    integration, kind = found
    opener: OpenStorage = integration.load(kind.open, key="store.url")
    return opener


def make_bus(url: str, store_url: str) -> Bus | None:
    """The bus that `bus.url` names, not yet open; None where the store itself wakes other processes. Raises
    `ConfigError` for a store that only one machine has."""
    if (found := bus_for(url)) is None:
        return None
    integration, kind = found
    if store_for(store_url) is None:
        shown, known = integration.integration.shown, " or ".join(store_examples())
        raise ConfigError(f"{shown} carries entries between machines: store.url must be {known}", key="bus.url")
    bus: Bus = integration.call(kind.make, url, key="bus.url")
    return bus


async def check_bus(url: str) -> None:
    """Raises `JournalError` where the bus that `bus.url` names does not answer."""
    if (found := bus_for(url)) is not None:
        integration, kind = found
        await integration.load(kind.ping, key="bus.url")(url)
