"""`tailrace backup FILE`: a copy of the journal that is whole, made while `tailrace serve` runs and writes.

Thin: shows the progress. `journal.sqlite.backup` copies; an integration's store has a program of its own for it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tailrace.cli.main import DONE, USAGE, print_error
from tailrace.config.load import Config
from tailrace.plugins.installed import store_for

SHOWN_EVERY_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="where to; the config is not part of it")
    parser.add_argument("--force", action="store_true", help="replace FILE where it exists")
    parser.epilog = (
        "To restore it: docs/operations.md. For a store of many machines, this prints the command that makes one."
    )


def run(args: argparse.Namespace, config: Config) -> int:
    """0 done, 2 a store that is backed up otherwise. Raises `JournalError` where it fails; FILE is then as it was."""
    if str(args.file) == "-":
        print_error("a backup is a file, which is checked when it is complete: name one")
        return USAGE
    if not config.store_is_kept:
        print_error("store.url is memory://: there is nothing to back up")
        return USAGE
    if config.database is None:
        print_error(_otherwise(config, args.file))
        return USAGE
    from tailrace.journal.sqlite.backup import back_up

    made = back_up(config.database, args.file.expanduser(), force=args.force, on_progress=_Progress())
    runs, size_mb = made.runs, made.size_bytes / 1e6
    print(f"{args.file} has {runs} run{'' if runs == 1 else 's'} ({size_mb:.1f} MB), verified")  # noqa: T201 - the output
    return DONE


def _otherwise(config: Config, file: Path) -> str:
    """How an integration's store is backed up."""
    found = store_for(config.store.url)
    if found is None or not found[1].backup_command:
        return "the store has no backup of its own; use the tools of its database"
    integration, kind = found
    command: str = integration.call(kind.backup_command, config.store.url, file, key="store.url")
    return f"the store is {integration.integration.shown}; back it up with: (umask 077; {command})"


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
