"""Where the commands about runs print: tables and timelines to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console

from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.config.load import Config


def console_for(file: TextIO) -> Console:
    """Colours in a terminal alone, and not where NO_COLOR is set."""
    return Console(file=file, highlight=False, markup=False, emoji=False, no_color=bool(os.environ.get("NO_COLOR")))


def print_note(text: str) -> None:
    """A line that is no part of the result."""
    sys.stderr.write(f"{sanitized_line(text, 1000)}\n")
    sys.stderr.flush()


def place_of(config: Config) -> str:
    """The store, without what is secret in its address."""
    if config.database is not None:
        return str(config.database)
    scheme, _, rest = config.store.url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
