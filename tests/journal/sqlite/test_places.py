"""Rows get their places later, many at once; until then they are read all the same."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.events import MessageChunk, RunFinished, StepFinished
from tailrace.journal.fold import SEQUENCE, outputs_text
from tailrace.journal.sqlite import commits, queries, statements
from tailrace.journal.sqlite.integrity import translation
from tailrace.journal.sqlite.places import INDEX_ROWS, index_rows
from tailrace.journal.sqlite.schema import SCHEMA, connect
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import Lease, NewRun, Run, RunFilter
from tailrace.testing.conformance.sample_runs import finished_sequence, started, texts_of, written


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SqliteJournal]:
    journal = await SqliteJournal.open(path)
    yield journal
    await journal.close()


def query(path: Path, sql: str) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchone()[0]


def stored_texts(path: Path, run_id: str) -> list[str]:
    """From the file: the process that writes a run has its newest entries in memory."""
    with closing(connect(path, writer=False)) as connection:
        return texts_of(list(queries.all_entries(connection, run_id)))


def unplaced(path: Path) -> int:
    """How many rows no place names."""
    return int(query(path, "SELECT count(*) FROM batches WHERE id NOT IN (SELECT id FROM places)"))


async def write_rows(journal: SqliteJournal, lease: Lease, count: int) -> list[str]:
    """So many rows in one group: a row ends where the attempt changes."""
    texts = [f"{number} " for number in range(count)]
    for number, text in enumerate(texts):
        journal.append(lease, [MessageChunk(text)], attempt=1 + number % 2)
    await journal.commit(lease)
    return texts


async def test_many_rows_get_their_places_together(path: Path, journal: SqliteJournal) -> None:
    (one, first), (other, second) = await started(journal), await started(journal)
    texts = await write_rows(journal, first, 100)
    await written(journal, second, [MessageChunk("x")])
    assert query(path, "SELECT count(*) FROM places") == 0, "it is not worth it yet"
    texts += await write_rows(journal, first, INDEX_ROWS)
    await written(journal, second, [MessageChunk("y")])
    left = unplaced(path)
    assert left <= 1, "one where the writer's thread wrote the many: then it gave them their places at once"
    texts += await write_rows(journal, first, 3)
    assert unplaced(path) == left + 3
    assert stored_texts(path, one.id) == texts
    assert stored_texts(path, other.id) == ["x", "y"]


async def filled(journal: SqliteJournal) -> list[str]:
    """A sequence that has ended, a run under way and one that has ended, their rows between each other's."""
    plain, lease = await started(journal)
    await write_rows(journal, lease, 3)
    sequence, *_ = await finished_sequence(journal)
    await write_rows(journal, lease, 2)
    ended, last = await started(journal)
    await write_rows(journal, last, 2)
    await written(journal, lease, [StepFinished("x", 1)])
    await journal.seal(last, RunFinished("completed", "0 1 "))
    await write_rows(journal, lease, 1)
    return [sequence.id, plain.id, ended.id]


def everything_read(connection: sqlite3.Connection, runs: list[str]) -> list[Any]:
    found: list[Any] = [queries.list_runs(connection, limit=100)]
    for run in runs:
        last = queries.run_of(connection, run).last_seq
        found += [last, queries.facts_of(connection, run), queries.times_of(connection, run)]
        for after in range(last + 1):
            found += [tuple(queries.read_page(connection, run, after)), queries.read_lines(connection, run, after)]
        for claimed in range(last + 1):
            head = statements.head_of(connection, run)._replace(claimed_seq=claimed)
            found.append(statements._has_progress(connection, head))
    return found


async def test_what_is_read_does_not_depend_on_which_rows_have_a_place(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    runs = await filled(journal)
    await journal.close()
    with closing(connect(path, writer=True)) as connection:
        (newest,) = connection.execute("SELECT max(id) FROM batches").fetchone()
        placed = everything_read(connection, runs)
        assert len(placed) > 50
        for upto in range(newest + 1):
            connection.execute("DELETE FROM places WHERE id > ?", (newest - upto,))
            connection.execute("UPDATE indexed SET upto = ?", (newest - upto,))
            assert everything_read(connection, runs) == placed
        assert connection.execute("SELECT count(*) FROM places").fetchone() == (0,)
        index_rows(connection)
        assert everything_read(connection, runs) == placed


@pytest.mark.parametrize("how", ["delete", "compact"])
async def test_rows_that_take_the_ids_of_removed_ones_are_read(how: str, path: Path, journal: SqliteJournal) -> None:
    """SQLite gives the highest ids again when the newest rows are gone."""
    kept, lease = await started(journal)
    await write_rows(journal, lease, 5)
    removed, its_lease = await started(journal)
    gone = await write_rows(journal, its_lease, 20)
    await journal.seal(its_lease, RunFinished("completed", "".join(gone)))
    await getattr(journal, how)(removed.id)
    new, new_lease = await started(journal)
    texts = await write_rows(journal, new_lease, 5)
    more = await write_rows(journal, lease, 2)
    assert stored_texts(path, new.id) == texts
    assert stored_texts(path, kept.id)[-2:] == more
    texts += await write_rows(journal, new_lease, INDEX_ROWS)
    texts += await write_rows(journal, new_lease, 1)
    assert unplaced(path) <= 1
    assert stored_texts(path, new.id) == texts
    assert query(path, "SELECT count(*) FROM places WHERE id NOT IN (SELECT id FROM batches)") == 0


async def test_a_process_that_ends_leaves_no_row_without_a_place(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    _, lease = await started(journal)
    await write_rows(journal, lease, 3)
    assert unplaced(path) == 4
    looking = await SqliteJournal.open(path)
    assert len(await looking.runs()) == 1
    await looking.close()
    assert unplaced(path) == 4, "who has only looked has written nothing"
    await journal.close()
    assert unplaced(path) == 0


async def test_what_killed_processes_left_gets_its_place_at_the_next_start(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    run, lease = await started(journal)
    texts = await write_rows(journal, lease, 2 * INDEX_ROWS)
    await journal.close()
    with closing(connect(path, writer=True)) as connection:  # as if none of them had lived so long
        connection.execute("DELETE FROM places")
        connection.execute("UPDATE indexed SET upto = 0")
    journal = await SqliteJournal.open(path)
    await started(journal)  # the writer has begun
    assert unplaced(path) <= 1
    assert stored_texts(path, run.id) == texts
    await journal.close()


async def test_rows_of_a_file_that_was_recovered_without_all_places_are_read(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    run, lease = await started(journal)
    texts = await write_rows(journal, lease, INDEX_ROWS)
    await journal.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM places WHERE first_seq > 100")  # a damaged page of them
    advice = re.findall(r"sqlite3 recovered\.db '(.*)'", str(translation(path, sqlite3.DatabaseError("malformed"))))
    with closing(sqlite3.connect(path)) as connection:
        for script in advice:
            connection.executescript(script)
    assert stored_texts(path, run.id) == texts
    journal = await SqliteJournal.open(path)
    await started(journal)
    assert unplaced(path) <= 1
    assert stored_texts(path, run.id) == texts
    await journal.close()


class _BusyForDays(sqlite3.Connection):
    """Its count of changes is about to start over: SQLite's is an `int` of C."""

    @property
    def total_changes(self) -> int:
        counted = super().total_changes + 2**31 - 100
        return counted - 2**32 if counted >= 2**31 else counted


async def test_rows_get_their_places_after_two_thousand_million_changes_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: real(*args, **(more | {"factory": _BusyForDays})))
    journal = await SqliteJournal.open(path)
    _, lease = await started(journal)
    for _ in range(3):
        await write_rows(journal, lease, INDEX_ROWS)
        await write_rows(journal, lease, 1)
        assert unplaced(path) <= 1
    await journal.close()


async def test_a_group_is_committed_where_its_rows_can_get_no_place(
    path: Path, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(connection: sqlite3.Connection) -> None:
        index_rows(connection)
        raise sqlite3.OperationalError("database or disk is full")

    run, lease = await started(journal)
    with monkeypatch.context() as refusing:
        refusing.setattr(commits, "index_rows", refused)
        texts = await write_rows(journal, lease, INDEX_ROWS)
        texts += await write_rows(journal, lease, 1)
    assert query(path, "SELECT count(*) FROM places") == 0
    texts += await write_rows(journal, lease, INDEX_ROWS)
    texts += await write_rows(journal, lease, 1)
    assert unplaced(path) <= 1
    assert stored_texts(path, run.id) == texts


def thousands_of_steps(path: Path, wanted: RunFilter) -> tuple[list[Run], int]:
    """The runs that are listed, and how many thousand steps of SQLite's machine that took."""
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    with closing(connect(path, writer=False)) as connection:
        connection.set_progress_handler(tick, 1000)
        return queries.list_runs(connection, **wanted), ticks


async def test_a_list_of_runs_looks_through_the_rows_without_a_place_once(path: Path, journal: SqliteJournal) -> None:
    runs = [await started(journal) for _ in range(100)]
    await write_rows(journal, runs[0][1], INDEX_ROWS // 2)
    assert unplaced(path) > INDEX_ROWS // 2
    found, steps = thousands_of_steps(path, {"states": ["running"], "limit": 100})
    assert [run.last_seq for run in found] == [1] * 99 + [1 + INDEX_ROWS // 2]
    assert steps < 50, "for each run it would be 300"


async def test_the_outputs_of_steps_that_have_a_place_are_found_without_looking_through_the_others(
    path: Path, journal: SqliteJournal
) -> None:
    sequence, lease = await started(journal, NewRun(SEQUENCE))
    outputs = {f"step{number}": number for number in range(100)}
    await written(journal, lease, [StepFinished(step, output) for step, output in outputs.items()])
    await journal.seal(lease, RunFinished("completed", outputs_text(outputs)))
    _, other = await started(journal)
    await write_rows(journal, other, INDEX_ROWS)
    await write_rows(journal, other, 1)
    assert unplaced(path) <= 1
    await write_rows(journal, other, INDEX_ROWS // 2)
    [found], steps = thousands_of_steps(path, {"kind": SEQUENCE})
    assert found == await journal.get(sequence.id)
    assert found.finished is not None
    assert found.finished.output == outputs_text(outputs)
    assert steps < 50, "for each step's output it would be 150"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/io")
async def test_O178_a_page_reads_none_of_the_rows_behind_it(path: Path, journal: SqliteJournal) -> None:
    """Sorted with all that was in them, rows without a place took 80 MB and a second of an answer of 8 MB."""

    def read_bytes() -> int:
        return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])

    run, lease = await started(journal)
    for _ in range(40):
        await written(journal, lease, [MessageChunk("x" * 200_000)])
    with closing(connect(path, writer=False)) as connection:
        before = read_bytes()
        assert len(queries.read_lines(connection, run.id, 0)) == 1
        assert read_bytes() - before < 1_000_000


def test_no_query_looks_through_more_than_the_rows_without_a_place() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    asked = {
        **{name: value for name, value in vars(queries).items() if name.startswith(("_ROW", "_TIMES", "_NEWEST"))},
        **{name: value for name, value in vars(statements).items() if name in ("_CLAIM", "_ROWS_SINCE")},
        "_RUN": queries._RUN + " WHERE r.id = ?1",
    }
    for name, sql in asked.items():
        if " FROM " not in sql:
            continue
        values = [1] * max(number for number in range(1, 7) if f"?{number}" in sql)
        plan = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        few = ("SCAN indexed", "SCAN CONSTANT ROW", "SCAN f")  # `f` are the rows that were found
        scans = [step for step in plan if step.startswith("SCAN") and step not in few]
        assert not scans, (name, plan)
        assert any("batches" in step or step.startswith("SEARCH b ") for step in plan), (name, plan)
    connection.close()
