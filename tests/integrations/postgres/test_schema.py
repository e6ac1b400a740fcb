"""The database as it is opened: made once, or refused in one clear line."""

from __future__ import annotations

import asyncio
import secrets
import sys

import pytest
from asyncpg.exceptions import InternalClientError

from postgres_server import LOCKED_PASSWORD, LOCKED_USER, USER, PostgresServer, free_port
from tailrace.errors import ConfigError, JournalError, StorageFailed, TailraceError
from tailrace.integrations.postgres.address import away, connect, parse_address
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.open_journal import open_journal
from tailrace.ports import NewRun
from tailrace.testing.conformance.sample_runs import finished_run

OPENER = """
import asyncio, sys
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.ports import NewRun

async def main():
    journal = await PostgresJournal.open(sys.argv[1])
    await journal.create(NewRun("call"))
    await journal.close()

asyncio.run(main())
"""


async def test_several_processes_that_open_a_new_database_make_it_once(postgres_url: str) -> None:
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", OPENER, postgres_url, stderr=asyncio.subprocess.PIPE)
        for _ in range(4)
    ]
    journals = await asyncio.gather(*(PostgresJournal.open(postgres_url) for _ in range(4)))
    said = await asyncio.gather(*(process.communicate() for process in processes))
    assert [process.returncode for process in processes] == [0] * 4, said
    assert len(await journals[0].runs()) == 4
    for journal in journals:
        await journal.close()


@pytest.mark.parametrize("table", ["customers (id integer)", "format (id integer)"])
async def test_another_programs_schema_is_refused_and_not_written_to(
    postgres_server: PostgresServer, postgres_url: str, table: str
) -> None:
    schema = parse_address(postgres_url).schema
    postgres_server.sql(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table}")
    with pytest.raises(JournalError, match="is another program's; add"):
        await PostgresJournal.open(postgres_url)
    assert len(postgres_server.sql(f"\\dt {schema}.*").splitlines()) == 1


async def refusal(url: str) -> TailraceError:
    with pytest.raises(TailraceError) as refused:
        async with open_journal(url, None):
            pass
    assert LOCKED_PASSWORD not in str(refused.value)
    assert "\n" not in str(refused.value)
    return refused.value


async def test_J114_what_is_wrong_with_the_address_is_said_in_one_line(postgres_server: PostgresServer) -> None:
    at = f"127.0.0.1:{postgres_server.port}"
    for url in (
        "postgresql://ann:hunter2@with@sign@db/x",
        "postgresql://ann:hunter2@[db/x",
        "postgresql://db/x?hunter2",
        "postgresql://db/x#hunter2",
        "postgresql://ann:1/hunter2@db/x",
    ):
        assert "store.url: is no address of a database" in str(await refusal(url))
    for url, said in {
        "postgresql://ann:hunter2@db:port/x": "the port of the database must be a number from 1 to 65535",
        "postgresql://ann:hunter2@one:5432,two:99999/x": "the port of the database must be a number from 1 to 65535",
        "postgresql://ann:hunter2@db/x?sslmode=hunter2": (
            "sslmode must be one of: disable, allow, prefer, require, verify-ca, verify-full"
        ),
        "postgresql://ann:hunter2@db/x?target_session_attrs=standby": (
            "target_session_attrs must be one of: read-write, primary, any"
        ),
    }.items():
        assert str(await refusal(url)) == f"store.url: {said}"
    plain = await refusal(f"postgresql://{USER}:hunter2@{at}/postgres?sslmode=require")
    assert str(plain) == f"PostgreSQL at {at}/postgres cannot be reached: it offers no TLS, which sslmode asks for"
    unknown = await refusal("postgresql://ann:hunter2@no-such-host.invalid/x")
    assert str(unknown) == "PostgreSQL at no-such-host.invalid/x cannot be reached: its host name is unknown"
    for schema in ("Mine", "pg_mine", "a-b", "a" * 64, '"'):
        assert "schema must be lower-case letters" in str(await refusal(f"postgresql://db/x?schema={schema}"))
    wrong = await refusal(f"postgresql://{LOCKED_USER}:wrong@{at}/postgres")
    assert isinstance(wrong, ConfigError)
    assert str(wrong) == (
        f'store.url: PostgreSQL at {at}/postgres refuses: password authentication failed for user "{LOCKED_USER}"'
    )
    missing = await refusal(f"postgresql://{USER}@{at}/nowhere")
    assert str(missing) == f'store.url: PostgreSQL at {at}/nowhere refuses: database "nowhere" does not exist'
    forbidden = await refusal(f"postgresql://{LOCKED_USER}:{LOCKED_PASSWORD}@{at}/postgres")
    assert str(forbidden).endswith(
        "refuses: permission denied for database postgres; allow its user to make the schema tailrace (GRANT CREATE ON"
        " DATABASE … TO …), or make it for that user (CREATE SCHEMA tailrace AUTHORIZATION …)"
    )


async def test_a_schema_that_was_made_for_the_user_is_enough(postgres_server: PostgresServer) -> None:
    schema = f"made_{secrets.token_hex(4)}"
    postgres_server.sql(f"CREATE SCHEMA {schema} AUTHORIZATION {LOCKED_USER}")
    url = f"postgresql://{LOCKED_USER}:{LOCKED_PASSWORD}@127.0.0.1:{postgres_server.port}/postgres?schema={schema}"
    journal = await PostgresJournal.open(url)
    run = await finished_run(journal)
    assert [each.id for each in await journal.runs()] == [run.id]
    await journal.close()


def test_a_driver_that_is_out_of_step_has_lost_its_connection() -> None:
    """asyncpg says so where the server ends a connection that it is about to use."""
    found = away(
        parse_address("postgresql://db/x"), InternalClientError("cannot switch to state 12; another operation (2)")
    )
    assert str(found) == "PostgreSQL at db/x cannot be reached: the connection was lost"


async def test_J114_a_database_that_is_not_there_is_said_in_one_line() -> None:
    port = free_port()
    refused = await refusal(f"postgres://ann:hunter2@127.0.0.1:{port}/x")
    assert isinstance(refused, StorageFailed)
    assert str(refused) == f"PostgreSQL at 127.0.0.1:{port}/x cannot be reached: connection refused"
    assert refused.reason == (
        "the database cannot be reached right now (connection refused); what waits goes on when it can"
    )
    several = await refusal(f"postgres://ann:hunter2@localhost:{port}/x")  # by each of its addresses
    assert str(several) == f"PostgreSQL at localhost:{port}/x cannot be reached: connection refused"


async def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for module in [name for name in sys.modules if name.startswith("tailrace.integrations.postgres.")]:
        monkeypatch.delitem(sys.modules, module)
    refused = str(await refusal("postgresql://ann:hunter2@db/x"))
    assert refused.startswith("store.url: the library of PostgreSQL is not installed (")
    assert "[postgres]" in refused


async def test_a_damaged_row_is_said(postgres_url: str) -> None:
    journal = await PostgresJournal.open(postgres_url)
    run = await finished_run(journal)
    connection = await connect(parse_address(postgres_url), "test")
    await connection.execute("UPDATE batches SET events = events || '{}' WHERE first_seq = 1")
    with pytest.raises(JournalError, match="damaged"):
        await journal.read(run.id)
    await connection.execute("DELETE FROM batches WHERE first_seq = 2")
    with pytest.raises(JournalError, match="entries 2-2 are missing"):
        await journal.read(run.id, after=1)
    await connection.close()
    await journal.close()


async def test_leases_are_counted_by_the_databases_clock(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is an hour ahead neither takes a run that is held nor keeps its own for an hour."""
    ahead = await PostgresJournal.open(postgres_url)
    monkeypatch.setattr("tailrace.integrations.postgres.store.time.time", lambda: 4e9)
    run = await ahead.create(NewRun("call"))
    await ahead.claim(run.id, "ahead", lease_s=30.0)
    connection = await connect(parse_address(postgres_url), "test")
    assert 25 < await connection.fetchval("SELECT lease_until - wall_clock(NULL) FROM heads") <= 30
    await connection.close()
    await ahead.close()
