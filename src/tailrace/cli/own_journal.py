"""The journal of the config for commands that look at it or signal through it, and execute nothing."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager

from tailrace.config.load import Config
from tailrace.journal.open_journal import open_journal
from tailrace.ports import Journal


def own_journal(config: Config, *, make: bool = False) -> AbstractAsyncContextManager[Journal]:
    """`make`: creates the store where there is none; looking creates nothing."""
    return open_journal(
        config.store.url, config.database, password=config.store_password, bus_url=config.bus.url, make=make
    )


def is_agreed(question: str) -> bool:
    """Asks on the terminal; anything but a yes is a no."""
    sys.stdout.flush()
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        return False
