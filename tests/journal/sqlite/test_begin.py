"""A run that begins without a wait: its first entries and the run itself are one commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tailrace.errors import JournalError, RunNotFound, StorageFailed
from tailrace.events import AttemptStarted, MessageChunk, RunFinished, RunStarted
from tailrace.journal.sqlite import commits
from tailrace.journal.sqlite.schema import connect, prepare
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored import journal as stored_journal
from tailrace.journal.wakeup_pipe import WakeupPipe
from tailrace.messages import JsonObject
from tailrace.ports import Lease, NewRun, Run
from tailrace.testing.conformance.sample_runs import started, texts_of


@pytest.fixture
async def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteJournal]:
    monkeypatch.setattr(commits, "SLOW_S", 3600.0)  # however busy the machine is
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    await started(journal)  # its statements are compiled
    yield journal
    await journal.close()


def statements(journal: SqliteJournal) -> list[str]:
    """What the writer's connection is told from here on."""
    told: list[str] = []
    journal._connection.set_trace_callback(told.append)
    return told


def begun(journal: SqliteJournal, given: JsonObject | None = None) -> tuple[Run, Lease]:
    began = journal.begin(NewRun("call", given or {}), "me")
    assert began is not None
    return began


async def test_a_run_that_begins_at_once_is_created_by_the_commit_of_its_first_text(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_journal, "BEGIN_S", 3600.0)
    told = statements(journal)
    run, lease = begun(journal)
    viewing = asyncio.ensure_future(anext(journal.tail(run.id)))
    journal.append(lease, [AttemptStarted("p", "m")])
    await asyncio.sleep(0)
    assert told == []
    assert not viewing.done()
    with pytest.raises(RunNotFound):
        await journal.get(run.id)
    journal.append(lease, [MessageChunk("a")])
    shown = await viewing
    assert [statement.split()[0] for statement in told] == ["BEGIN", "INSERT", "INSERT", "INSERT", "COMMIT"]
    assert [type(entry.event) for entry in shown] == [RunStarted, AttemptStarted, MessageChunk]
    assert shown == await journal.read(run.id)
    assert await journal.get(run.id) == msgspec.structs.replace(run, last_seq=3)
    await journal.seal(lease, RunFinished("completed", "a"))
    assert (await journal.get(run.id)).state == "completed"


async def test_a_run_that_begins_and_ends_at_once_is_one_commit(journal: SqliteJournal) -> None:
    told = statements(journal)
    run, lease = begun(journal)
    journal.append(lease, [MessageChunk("a")])
    await journal.seal(lease, RunFinished("completed", "a"))
    assert told.count("COMMIT") == 1
    assert texts_of(await journal.read(run.id)) == ["a"]


@pytest.mark.parametrize("new", [NewRun("call", session="s"), NewRun("call", idempotency_key="k")])
async def test_a_run_with_runs_to_look_for_before_it_does_not_begin_at_once(
    journal: SqliteJournal, new: NewRun
) -> None:
    assert journal.begin(new, "me") is None


async def test_the_viewer_of_a_run_that_storage_does_not_take_gets_the_reason(tmp_path: Path) -> None:
    """And neither the run's own writes nor its release say anything else."""
    path = tmp_path / "full.db"
    prepare(path)
    connection = connect(path, writer=True)
    journal = SqliteJournal(path, WakeupPipe(path), connection, time.time)
    connection.execute("PRAGMA max_page_count = 1")
    run, lease = begun(journal, {"text": "x" * 100_000})
    journal.append(lease, [MessageChunk("a")])
    with pytest.raises(StorageFailed, match="no space left"):
        await anext(journal.tail(run.id))
    with pytest.raises(JournalError, match="no space left"):
        journal.append(lease, [MessageChunk("b")])
    await journal.release(lease)
    assert journal.begin(NewRun("call"), "me") is None  # before storage has taken anything again
    await journal.close()
