"""What a query costs does not grow with the runs in the store: counted in the steps of SQLite's machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from bench.growth.fill import add_samples, fill_sqlite

from tailrace.journal.sqlite import queries
from tailrace.journal.sqlite.schema import connect
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import RunState

FEW, MANY = 2_000, 20_000
Query = Callable[[sqlite3.Connection], object]
STOPPED: tuple[RunState, ...] = ("stopped",)
ASKED: dict[str, Query] = {
    "the newest": partial(queries.list_runs, limit=50),
    "of a kind": partial(queries.list_runs, kind="agent", limit=50),
    "of a kind that is rare": partial(queries.list_runs, kind="delivery", states=("pending", "running")),
    "of a session": partial(queries.list_runs, session="s1", kind="agent", limit=1),
    "under way in a session": partial(queries.list_runs, session="s1", kind="agent", states=("pending", "running")),
    "under way": partial(queries.list_runs, states=("pending", "running", "parked")),
    "stopped, which none is": partial(queries.list_runs, kind="agent", states=STOPPED),
    "to be compacted, which none is": partial(queries.list_runs, ended_before=1.0, compacted=False),
    "compacted, which none is": partial(queries.list_runs, ended_before=9e9, compacted=True),
    "to be deleted, which none is": partial(queries.list_runs, ended_before=1.0),
    "to be compacted, which all are": partial(queries.list_runs, ended_before=9e9, compacted=False, limit=50),
    "conversations": partial(queries.list_sessions, kind="agent", limit=20),
    "a conversation": partial(queries.session_of, session="s1", kind="agent"),
    "the next run of a conversation": partial(queries.run_after, session="s1", kind="agent", after=""),
    "unfinished": queries.unfinished_runs,
    "with a key": partial(queries.run_with_key, idempotency_key="none"),
}


def steps_of(path: Path, query: Query) -> int:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(connect(path, writer=False)) as connection:
        connection.set_progress_handler(count, 10)
        query(connection)
    return 10 * steps


@pytest.fixture
async def stores(tmp_path: Path) -> tuple[Path, Path]:
    few, many = tmp_path / "few.db", tmp_path / "many.db"
    for path, runs in ((few, FEW), (many, MANY)):
        await add_samples(partial(SqliteJournal.open, path))
        fill_sqlite(path, runs)
    return few, many


async def test_no_list_costs_more_for_more_runs_in_the_store(stores: tuple[Path, Path]) -> None:
    few, many = ({name: steps_of(path, query) for name, query in ASKED.items()} for path in stores)
    grown = {name: (few[name], many[name]) for name in ASKED if many[name] > 1.3 * few[name] + 300}
    assert not grown
    failed = partial(queries.list_runs, states=("failed", "incomplete"), limit=50)
    assert 0 < steps_of(stores[1], failed) < 3_000  # as many as have failed, each once
