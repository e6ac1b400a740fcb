"""`tailrace backup FILE`: a copy of the journal that is whole, made while `tailrace serve` runs and writes.

Thin: shows the progress. `journal.sqlite.backup` copies; PostgreSQL has a program of its own for it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tailrace.cli.main import DONE, USAGE, print_error
from tailrace.config.load import Config
from tailrace.errors import ConfigError
from tailrace.system.extras import install_command

SHOWN_EVERY_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="where to; the config is not part of it")
    parser.add_argument("--force", action="store_true", help="replace FILE where it exists")
    parser.epilog = "To restore it: docs/operations.md. For PostgreSQL, this prints the command that makes a backup."


def run(args: argparse.Namespace, config: Config) -> int:
    """0 done, 2 a store that is backed up otherwise. Raises `JournalError` where it fails; FILE is then as it was."""
    if str(args.file) == "-":
        print_error("a backup is a file, which is checked when it is complete: name one")
        return USAGE
    if not config.store_is_kept:
        print_error("store.url is memory://: there is nothing to back up")
        return USAGE
    if config.database is None:
        print_error(f"the store is PostgreSQL; back it up with: (umask 077; {_dump_command(config, args.file)})")
        return USAGE
    from tailrace.journal.sqlite.backup import back_up

    made = back_up(config.database, args.file.expanduser(), force=args.force, on_progress=_Progress())
    runs, size_mb = made.runs, made.size_bytes / 1e6
    print(f"{args.file} has {runs} run{'' if runs == 1 else 's'} ({size_mb:.1f} MB), verified")  # noqa: T201 - the output
    return DONE


def _dump_command(config: Config, file: Path) -> str:
    try:
        from tailrace.integrations.postgres.address import dump_command
    except ModuleNotFoundError as exc:
        if exc.name != "asyncpg":
            raise
        raise ConfigError(f"PostgreSQL needs an extra: {install_command('postgres')}", key="store.url") from exc
    return dump_command(config.store.url, file)


class _Progress:
    """A line on stderr once a second, for a backup that takes that long."""

    def __init__(self) -> None:
        self._shown_at = time.monotonic()

    def __call__(self, doing: str, number_bytes: int, total_bytes: int) -> None:
        now = time.monotonic()
        if now - self._shown_at >= SHOWN_EVERY_S:
            self._shown_at = now
            so_far = f"{number_bytes / 1e6:.0f} of " if number_bytes else ""
            sys.stderr.write(f"{doing} {so_far}{total_bytes / 1e6:.0f} MB\n")
