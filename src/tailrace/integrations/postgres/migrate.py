"""`tailrace migrate SOURCE TARGET`: takes the journal of a SQLite file along to PostgreSQL.

Thin: reads the addresses and shows the progress. `copy_journal` copies.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tailrace.cli.main import DONE, USAGE, print_error
from tailrace.config.load import Config
from tailrace.config.sections import without_credentials
from tailrace.errors import ConfigError
from tailrace.system.extras import install_command

SHOWN_EVERY_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", help="sqlite:///tailrace.db in the home directory, or sqlite:////an/absolute/path"
    )
    parser.add_argument(
        "target", metavar="TARGET", help="postgresql://user:password@host:5432/database, where no journal is yet"
    )


def run(args: argparse.Namespace, config: Config) -> int:
    """0 copied, 2 an address that is none. Raises `JournalError` where it cannot be done; nothing is copied then."""
    source, target = urlsplit(args.source), urlsplit(args.target)
    if source.scheme != "sqlite" or not source.path.strip("/"):
        print_error("SOURCE must be sqlite:///FILE")
        return USAGE
    if target.scheme not in ("postgresql", "postgres"):
        print_error("TARGET must be postgresql://…")
        return USAGE
    try:
        from tailrace.integrations.postgres.copy_journal import copy_journal
    except ModuleNotFoundError as exc:
        if exc.name != "asyncpg":
            raise
        raise ConfigError(f"PostgreSQL needs an extra: {install_command('postgres')}") from exc
    file: Path = config.path(unquote(source.path[1:]))
    copied = asyncio.run(copy_journal(file, args.target, on_progress=_Progress()))
    shown = without_credentials(args.target)
    print(f"copied {copied['runs']} runs to {shown}; set store.url to it, and start tailrace")  # noqa: T201 - the output
    return DONE


class _Progress:
    """A line on stderr for each table that is done, and once a second meanwhile."""

    def __init__(self) -> None:
        self._shown_at = time.monotonic()

    def __call__(self, table: str, copied: int, total: int) -> None:
        now = time.monotonic()
        if copied == total or now - self._shown_at >= SHOWN_EVERY_S:
            self._shown_at = now
            sys.stderr.write(f"{table}: {copied} of {total}\n")
