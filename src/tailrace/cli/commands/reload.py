"""`tailrace reload`: the running processes take up the platforms, keys and models of the config file."""

from __future__ import annotations

import argparse
import asyncio
import sys

from tailrace.cli.main import DONE
from tailrace.config.load import Config
from tailrace.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Runs go on. Each process says in its log what it took up; kill -HUP asks one process alone."


def run(_args: argparse.Namespace, config: Config) -> int:
    """A mistake in the file is told here, before a process is asked. Raises `ConfigError`, `JournalError`."""
    if not config.store_is_kept:
        raise ConfigError("no other process sees this store; send the server SIGHUP instead", key="store.url")
    asyncio.run(_ask(config))
    sys.stdout.write(
        "asked every process on this store to read its config file again; each says in its log what it took up\n"
    )
    return DONE


async def _ask(config: Config) -> None:
    from tailrace.cli.config_reload import ask_for_reload
    from tailrace.cli.own_journal import own_journal

    async with own_journal(config) as journal:
        await ask_for_reload(journal)
