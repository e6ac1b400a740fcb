"""What a query costs does not grow with the runs in the store: counted in the rows that PostgreSQL looks at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import asyncpg
import msgspec
from bench.growth.fill import add_samples, fill_postgres

from postgres_server import PostgresServer
from tailrace.integrations.postgres import queries
from tailrace.integrations.postgres.address import Connection
from tailrace.integrations.postgres.commits import APPEND, SETTINGS
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.ports import NewRun, RunState

RUNS = 20_000
Query = Callable[[Connection], Awaitable[object]]
STOPPED: tuple[RunState, ...] = ("stopped",)
ASKED: dict[str, tuple[int, Query]] = {
    "the newest": (300, partial(queries.list_runs, limit=50)),
    "of a kind": (500, partial(queries.list_runs, kind="agent", limit=50)),
    "of a session": (100, partial(queries.list_runs, session="s1", kind="agent", limit=50)),
    "under way": (0, partial(queries.list_runs, states=("pending", "running", "parked"))),
    "stopped, which none is": (RUNS // 1000 + 1, partial(queries.list_runs, states=STOPPED)),
    "to be compacted, which none is": (0, partial(queries.list_runs, ended_before=1.0, compacted=False)),
    "conversations": (4_000, partial(queries.list_sessions, kind="agent", limit=20)),
}


class Counting:
    """Rows that the plans of the queries on a connection have looked at."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.rows = 0.0

    async def fetch(self, sql: str, *values: Any) -> Any:
        told = await self._connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *values)
        (plan,) = msgspec.json.decode(told)
        self.rows += _rows_of(plan["Plan"])
        return await self._connection.fetch(sql, *values)

    async def fetchrow(self, sql: str, *values: Any) -> Any:
        return next(iter(await self.fetch(sql, *values)), None)


def _rows_of(node: dict[str, Any]) -> float:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
    own = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return float(own) + sum(map(_rows_of, node.get("Plans", ())))


async def test_a_commit_compares_no_row_with_the_runs_of_others(postgres_server: PostgresServer) -> None:
    url, runs = postgres_server.url(), 100
    journal = await PostgresJournal.open(url)
    for _ in range(runs):
        await journal.start(NewRun("call"), "bench")
    await journal.close()
    settings = {"search_path": url.partition("schema=")[2], **SETTINGS}
    connection = await asyncpg.connect(url.partition("?")[0], server_settings=settings)
    try:
        nums = [num for (num,) in await connection.fetch("SELECT num FROM heads")]
        claims = (nums, [1] * runs, [""] * runs, [2] * runs)  # released when the journal was closed
        rows = (nums, [2] * runs, [2] * runs, [1] * runs, [0] * runs, [b"{}\n"] * runs, [0.0] * runs)
        counting = Counting(connection)
        assert len((await counting.fetchrow(APPEND, *claims, *rows, "channel", ""))[0]) == runs
    finally:
        await connection.close()
    assert counting.rows < 20 * runs


async def test_no_list_looks_at_more_rows_than_it_needs(postgres_server: PostgresServer) -> None:
    url = postgres_server.url()
    schema = url.partition("schema=")[2]
    await add_samples(partial(PostgresJournal.open, url))
    fill_postgres(postgres_server.sql, schema, RUNS)
    connection = await asyncpg.connect(url.partition("?")[0], server_settings={"search_path": schema})
    seen = {}
    try:
        for name, (most, query) in ASKED.items():
            counting = Counting(connection)
            await query(cast("Connection", counting))
            if counting.rows > most:
                seen[name] = counting.rows
    finally:
        await connection.close()
    assert not seen
