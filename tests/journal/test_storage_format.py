"""A store of another format is refused in one clear line and not written to; a command that only reads creates none."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.errors import JournalError
from tailrace.integrations.postgres.address import connect as connect_postgres
from tailrace.integrations.postgres.address import parse_address
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.open_journal import open_journal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored.storage_format import FORMAT


def look(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *command.split()],
        env={**os.environ, "TAILRACE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


LOOKS = ("runs", "show last", "tail last", "top --once", "usage", "flow ls", "approvals", "doctor")


@pytest.mark.parametrize("command", LOOKS)
async def test_looking_makes_no_journal_in_a_database(command: str, tmp_path: Path, postgres_url: str) -> None:
    """An operator looks, and restores a dump afterwards: `pg_restore` takes no schema that is there."""
    (tmp_path / "config.yaml").write_text(f"store: {{url: '{postgres_url}'}}\n", encoding="utf-8")
    done = await asyncio.to_thread(look, command, tmp_path)
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    if command == "doctor":  # which has other findings too
        assert "no journal is there yet; the first run makes it" in said
    else:
        assert done.returncode == (1 if command.endswith("last") else 0), said
    address = parse_address(postgres_url)
    connection = await connect_postgres(address, "test")
    assert await connection.fetchval("SELECT to_regnamespace($1)", address.schema) is None
    await connection.close()


async def test_only_what_keeps_something_makes_the_journal(postgres_url: str) -> None:
    async with open_journal(postgres_url, None, make=False) as nothing:
        await nothing.swap_value("new", "key", None, b"value")
    async with open_journal(postgres_url, None) as journal:
        assert await journal.list_values("new") == {}
        await journal.swap_value("new", "key", None, b"value")
    async with open_journal(postgres_url, None, make=False) as journal:
        assert await journal.list_values("new") == {"key": b"value"}


REFUSED = r"storage format 7 and this Tailrace reads format 1: use the version of Tailrace that wrote it, or set store"


async def test_a_file_of_another_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "tailrace.db"
    await (await SqliteJournal.open(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
        connection.execute("PRAGMA user_version = 7")
    before = path.read_bytes()
    with pytest.raises(JournalError, match=REFUSED):
        await SqliteJournal.open(path)
    assert path.read_bytes() == before, "it is not written to"


async def test_a_database_of_another_format_is_refused_with_what_to_do(postgres_url: str) -> None:
    await (await PostgresJournal.open(postgres_url)).close()
    database = await connect_postgres(parse_address(postgres_url), "test")
    await database.execute("UPDATE format SET version = 7")
    with pytest.raises(JournalError, match=REFUSED):
        await PostgresJournal.open(postgres_url)
    await database.close()
