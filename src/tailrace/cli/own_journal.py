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
    return ask_line(f"{question} [y/N] ").lower() in ("y", "yes")


def ask_line(question: str) -> str:
    """The line that is typed on the terminal, without blanks at its ends; empty where nothing more can be typed."""
    sys.stdout.flush()
    try:  # before the question is seen: Ctrl-C may come at once
        sys.stderr.write(question)
        sys.stderr.flush()
        return input().strip()
    except EOFError:
        return ""
    except KeyboardInterrupt:
        sys.stderr.write("\n")  # the shell's prompt stands on a line of its own
        raise
