"""Journals of every earlier storage format are read, and go on, with today's code.

`formats/format-N.sql` holds what the Tailrace that wrote format N left: rows, events and checksums as they were then.
A new format adds its file; nobody edits one that is there, nor a migration that has been released.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from journal.stores import AnyStored
from tailrace.errors import JournalError
from tailrace.events import MessageChunk, RunFinished
from tailrace.integrations.postgres import schema as postgres_schema
from tailrace.integrations.postgres.address import connect as connect_postgres
from tailrace.integrations.postgres.address import parse_address
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.fold import SEQUENCE, fold
from tailrace.journal.open_journal import open_journal
from tailrace.journal.sqlite import schema as sqlite_schema
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored.storage_format import OlderFormat
from tailrace.testing.conformance.journal import every_line, everything, written

FORMATS = sorted((Path(__file__).parent / "formats").glob("format-*.sql"))
RELEASED = {  # digests of the migrations, blanks aside
    "sqlite": ("82058335fd", "40441c53b3", "eead8ff6e9", "1673ed78df", "6ecc3a6a50", "39f6eca347", "5140b648ab"),
    "postgres": ("b21e33ec82", "12f17618c4", "9c6a3a5904"),
}


def look(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *command.split()],
        env={**os.environ, "TAILRACE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def number_of(file: Path) -> int:
    return int(file.stem.partition("-")[2])


def load(file: Path, target: Path | str = ":memory:") -> sqlite3.Connection:
    connection = sqlite3.connect(target)
    connection.executescript(file.read_text(encoding="utf-8"))
    return connection


def entries_in(file: Path) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """By run: what was stored then, with its numbers."""
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    with closing(load(file)) as connection:
        for run, first, events in connection.execute(
            "SELECT r.id, b.first_seq, b.events FROM runs AS r JOIN batches AS b ON b.run = r.num ORDER BY b.run, 2"
        ):
            lines = [json.loads(line) for line in events.splitlines()]
            found.setdefault(run, []).extend(enumerate(lines, start=first))
    return found


def names_in(file: Path) -> dict[str, str]:
    """The runs' ids, by the text they were asked."""
    with closing(load(file)) as connection:
        runs = connection.execute("SELECT id, kind, new FROM runs").fetchall()
    return {SEQUENCE if kind == SEQUENCE else json.loads(new)["input"]["text"]: run for run, kind, new in runs}


async def check_is_readable(journal: AnyStored, file: Path) -> None:
    stored, names = entries_in(file), names_in(file)
    assert sorted(run.id for run in await journal.runs()) == sorted(stored)
    for run_id, then in stored.items():
        run = await journal.get(run_id)
        now = await (journal.facts(run_id) if run_id == names["compacted"] else journal.read(run_id))
        assert [entry.seq for entry in now] == [seq for seq, _ in then]
        by_seq = {entry.seq: json.loads(msgspec.json.encode(entry.event)) for entry in now}
        for seq, event in then:
            shown = by_seq[seq]
            if run.new.kind == SEQUENCE and event["type"] == "run_finished":
                continue  # completed from the steps
            fields = {key: value for key, value in event.items() if value or key in shown}  # defaults are left out
            assert {key: shown.get(key) for key in fields} == fields, "each field as it was then"
    for name in ("ended", "compacted"):
        run = await journal.get(names[name])
        assert (run.state, run.new.input) == ("completed", {"text": name})
        assert await journal.run_with_key(name) == run
        assert (await journal.snapshot(run.id)).event.output == "Done."  # type: ignore[union-attr]
        last = (await everything(journal.tail(run.id)))[-1].event
        assert last == (await journal.read(run.id))[-1].event
        assert isinstance(last, RunFinished)
        assert (last.status, last.output) == ("completed", "Done.")
        assert await every_line(journal.tail_pages(run.id, snapshot=True))
    assert fold(await journal.read(names["ended"])).output == "Done."
    if SEQUENCE in names:
        sequence = fold(await journal.read(names[SEQUENCE]))
        assert json.loads(sequence.output) == {"x": {"text": "long " * 10}, "y": 2}
    assert (await journal.get(names["parked"])).parked is not None


async def check_goes_on(journal: AnyStored, names: dict[str, str]) -> None:
    unfinished = names["unfinished"]
    assert unfinished in {run.id for run in await journal.orphans()}
    lease = await journal.claim(unfinished, "now")
    [signal] = await journal.signals(lease)
    assert (signal.name, signal.payload, signal.by) == ("stop", {"why": "x"}, "me")
    await written(journal, lease, [MessageChunk(" and on")])
    await journal.seal(lease, RunFinished("completed", "so far and on"))
    assert fold(await journal.read(unfinished)).output == "so far and on"
    await journal.compact(names["ended"])
    assert (await journal.snapshot(names["ended"])).event.output == "Done."  # type: ignore[union-attr]
    await journal.delete(names["compacted"])
    assert (await journal.unpark(names["parked"])).state == "pending"
    assert await journal.swap_value("new", "key", None, b"value")


@pytest.mark.parametrize("file", FORMATS, ids=lambda file: file.stem)
async def test_a_file_of_each_format_is_read_and_goes_on(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "tailrace.db"
    load(file, path).close()
    journal = await SqliteJournal.open(path)
    await check_is_readable(journal, file)
    if number_of(file) >= 2:
        assert await journal.list_values("chats") == {"k": b"v\0"}
    counted = 1.5 if number_of(file) >= 6 else 0
    assert await journal.add_to_counters({"a": 1}) == {"a": counted + 1}
    await check_goes_on(journal, names_in(file))
    await journal.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(sqlite_schema.MIGRATIONS),)


@pytest.mark.parametrize("file", [FORMATS[0], FORMATS[-1]], ids=lambda file: file.stem)
@pytest.mark.parametrize("version", range(1, len(postgres_schema.MIGRATIONS) + 1))
async def test_a_database_of_each_format_is_read_and_goes_on(file: Path, version: int, postgres_url: str) -> None:
    """With events as they were first written: `tailrace migrate` brings them there."""
    address = parse_address(postgres_url)
    connection = await connect_postgres(address, "test")
    await postgres_schema.prepare(connection, address, postgres_schema.MIGRATIONS[:version])
    with closing(load(file)) as rows:
        for table in ("runs", "heads", "batches", "snapshots", "signals"):
            there = {
                row["column_name"]
                for row in await connection.fetch(
                    "SELECT column_name FROM information_schema.columns WHERE table_schema = $1 AND table_name = $2",
                    address.schema,
                    table,
                )
            }
            columns = [name for (_, name, *_) in rows.execute(f"PRAGMA table_info({table})") if name in there]
            found = rows.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()  # noqa: S608
            await connection.copy_records_to_table(table, records=found, columns=columns)
    await connection.close()
    journal = await PostgresJournal.open(postgres_url)
    await check_is_readable(journal, file)
    await check_goes_on(journal, names_in(file))
    await journal.close()


def test_each_format_has_a_file_and_no_released_migration_is_edited() -> None:
    assert [number_of(file) for file in FORMATS] == list(range(1, len(sqlite_schema.MIGRATIONS) + 1))
    for store, migrations in (("sqlite", sqlite_schema.MIGRATIONS), ("postgres", postgres_schema.MIGRATIONS)):
        digests = tuple(hashlib.sha256(" ".join(script.split()).encode()).hexdigest()[:10] for script in migrations)
        assert digests == RELEASED[store], "databases out there have been made by it: add a migration instead"


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


async def test_what_keeps_something_makes_the_journal_although_it_may_not_upgrade(postgres_url: str) -> None:
    async with open_journal(postgres_url, None, upgrade=False) as nothing:
        await nothing.swap_value("new", "key", None, b"value")
    async with open_journal(postgres_url, None, upgrade=False, make=True) as journal:
        assert await journal.list_values("new") == {}
        await journal.swap_value("new", "key", None, b"value")
    async with open_journal(postgres_url, None, upgrade=False) as journal:
        assert await journal.list_values("new") == {"key": b"value"}


@pytest.mark.parametrize("command", [*LOOKS, "gateway --paired"])
def test_looking_does_not_upgrade_what_an_older_version_may_still_use(command: str, tmp_path: Path) -> None:
    path, known = tmp_path / "tailrace.db", len(sqlite_schema.MIGRATIONS)
    load(FORMATS[3], path).close()
    done = look(command, tmp_path)
    assert f"is of an older Tailrace (format 4, this one has {known})" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if command != "doctor":  # which has other findings too
        assert done.returncode == 1
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (4,)


async def test_a_database_that_is_only_looked_at_keeps_its_format(postgres_url: str) -> None:
    address = parse_address(postgres_url)
    connection = await connect_postgres(address, "test")
    await postgres_schema.prepare(connection, address, postgres_schema.MIGRATIONS[:1])
    with pytest.raises(OlderFormat, match=r"\(format 1, this one has"):
        await PostgresJournal.open(postgres_url, upgrade=False)
    assert await connection.fetchval("SELECT version FROM format") == 1
    await connection.close()


async def test_the_log_says_once_that_a_store_has_a_new_format(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tailrace.journal")
    path, address = tmp_path / "tailrace.db", parse_address(postgres_url)
    load(FORMATS[3], path).close()
    connection = await connect_postgres(address, "test")
    await postgres_schema.prepare(connection, address, postgres_schema.MIGRATIONS[:1])
    await connection.close()
    for _ in range(2):  # the second start finds the new format
        await (await SqliteJournal.open(path)).close()
        await (await PostgresJournal.open(postgres_url)).close()
    await (await SqliteJournal.open(tmp_path / "new.db")).close()  # it had no older one
    records = [record for record in caplog.records if record.name == "tailrace.journal"]
    said = [re.sub(r"after \d+\.\d s", "after T", record.getMessage()) for record in records]
    newest, before = len(sqlite_schema.MIGRATIONS), "is being brought to format"
    after = "has format {} now, after T; an older Tailrace cannot use it any more"
    assert said == [
        f"{path} has format 4, with about 22 rows, and {before} {newest}",
        f"{path} had format 4 and {after.format(newest)}",
        f"the database at {address.shown} had format 1 and {after.format(len(postgres_schema.MIGRATIONS))}",
    ], "the one without a run is done at once"


async def test_the_log_says_it_before_a_database_with_runs_has_a_new_format(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tailrace.journal")
    address = parse_address(postgres_url)
    connection = await connect_postgres(address, "test")
    await postgres_schema.prepare(connection, address, postgres_schema.MIGRATIONS[:1])
    await connection.execute("INSERT INTO batches VALUES (1, 0, 1, 1, 1, '')")
    for counted in ("", ", with about 1 rows"):
        caplog.clear()
        await connection.execute("UPDATE format SET version = 2")
        await postgres_schema.prepare(connection, address, (*postgres_schema.MIGRATIONS[:2], "SELECT 1"))
        assert caplog.messages[0] == (
            f"the database at {address.shown} has format 2{counted}, and is being brought to format 3"
        )
        await connection.execute("ANALYZE batches")
    await connection.close()


async def test_a_downgrade_is_refused_with_what_to_do(tmp_path: Path, postgres_url: str) -> None:
    path, known = tmp_path / "tailrace.db", number_of(FORMATS[-1])
    load(FORMATS[-1], path).close()
    for version in (known + 1, 99):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        before = path.read_bytes()
        with pytest.raises(JournalError) as refused:
            await SqliteJournal.open(path)
        assert str(refused.value) == (
            f"{path} was written by a newer Tailrace (format {version}, this one knows {known}); upgrade Tailrace,"
            " or restore a backup from before that upgrade"
        )
        assert path.read_bytes() == before, "it is not written to"
    await (await PostgresJournal.open(postgres_url)).close()
    database = await connect_postgres(parse_address(postgres_url), "test")
    await database.execute("UPDATE format SET version = 99")
    await database.close()
    with pytest.raises(JournalError, match=r"upgrade Tailrace, or restore a backup from before that upgrade$"):
        await PostgresJournal.open(postgres_url)
