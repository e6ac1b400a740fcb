"""The tables.

Owns the storage format. `batches` and `heads` are as in SQLite's file; a row of `heads` is locked for each write to its
run. `writers` has the number of the last transaction of each process: after a lost connection it says whether the
transaction in flight was committed. `wall_clock` counts leases by the database's clock, unless a test gives another
time; `newest_in_session` lets one transaction at a time create runs of a session.
"""

from __future__ import annotations

from pathlib import Path

from tailrace.integrations.postgres.address import Address, Connection, translated
from tailrace.journal.stored.storage_format import FORMAT, ForeignStore, NothingStored, check_format

APPLICATION = "tailrace"
SCHEMA_LOCK = 0x7A11_4ACE  # an advisory lock: one process creates the tables, the others wait
SCHEMA_TIMEOUT_S = 600.0

SCHEMA = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")


async def prepare(connection: Connection, address: Address, *, make: bool = True) -> None:
    """Creates the tables in a new schema. Raises `JournalError` for a schema that is not ours or of another format, and
    `NothingStored` for a new one that it may not `make`; none of them is written to."""
    with translated(address):
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})", timeout=SCHEMA_TIMEOUT_S)
            version = await _version(connection, address)
            where = f"the database at {address.shown}"
            check_format(where, version)
            if version == 0:
                if not make:  # what `_version` has made is rolled back
                    raise NothingStored(f"there is no journal yet in {where}")
                await connection.execute(SCHEMA, timeout=SCHEMA_TIMEOUT_S)
                await connection.execute("UPDATE format SET version = $1", FORMAT)


async def _version(connection: Connection, address: Address) -> int:
    """The format of the schema; it is made where there is none."""
    known = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'format')", address.schema
    )
    if known:
        row = await connection.fetchrow("SELECT * FROM format")
        if row is None or row.get("application") != APPLICATION:
            raise _not_ours(address)
        version: int = row["version"]
        return version
    relations = await connection.fetchval(
        "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1)", f'"{address.schema}"'
    )
    if relations:
        raise _not_ours(address)
    # IF NOT EXISTS would ask for the right to make it also where an administrator has made it for this user.
    if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", f'"{address.schema}"'):
        await connection.execute(f'CREATE SCHEMA "{address.schema}"')
    await connection.execute("CREATE TABLE format (application text NOT NULL, version integer NOT NULL)")
    await connection.execute("INSERT INTO format VALUES ($1, 0)", APPLICATION)
    return 0


def _not_ours(address: Address) -> ForeignStore:
    return ForeignStore(
        f"the schema {address.schema} at {address.shown} is another program's; add ?schema=NAME to store.url"
    )
