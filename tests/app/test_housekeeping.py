from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tailrace.app.housekeeping import (
    EVERY_S,
    FIRST_AFTER_S,
    SESSION_VALUES,
    Retention,
    retain,
    retention_loop,
    retention_of,
)
from tailrace.config.load import load
from tailrace.errors import RunNotFound
from tailrace.events import MessageChunk, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import NewRun, Run
from tailrace.testing.clock import driven

DAY_S = 86_400.0


async def ended(journal: MemoryJournal) -> Run:
    run, lease = await journal.start(NewRun("call"), "me")
    assert lease is not None
    journal.append(lease, [MessageChunk("a"), MessageChunk("b")])
    await journal.seal(lease, RunFinished("completed", "ab"))
    return await journal.get(run.id)


def test_the_config_says_how_long(tmp_path: Path) -> None:
    assert retention_of(load({}, tmp_path)) == Retention(7 * DAY_S, None, SESSION_VALUES)
    (tmp_path / "config.yaml").write_text("store: {compact_after_days: null, delete_after_days: 0.5}", encoding="utf-8")
    assert retention_of(load({}, tmp_path)) == Retention(None, DAY_S / 2, SESSION_VALUES)


async def test_the_title_and_the_metadata_of_a_session_go_with_its_last_run() -> None:
    journal, config = MemoryJournal(clock=lambda: 1000.0), Retention(None, DAY_S, SESSION_VALUES)
    run, lease = await journal.start(NewRun("call", session="s"), "me")
    assert lease is not None
    await journal.seal(lease, RunFinished("completed", ""))
    for namespace in ("sessions", "conversations"):
        await journal.swap_value(namespace, "s", None, b"{}")
    await retain(journal, config, 1000.0 + 2 * DAY_S)
    with pytest.raises(RunNotFound):
        await journal.get(run.id)
    assert [await journal.list_values(namespace) for namespace in ("sessions", "conversations")] == [{}, {}]


@driven
async def test_old_runs_are_compacted_and_older_ones_deleted_while_the_process_stays() -> None:
    now = 1_000_000.0
    journal = MemoryJournal(clock=lambda: now)
    run = await ended(journal)
    async with retention_loop(journal, Retention(DAY_S, 3 * DAY_S), clock=lambda: now):
        await asyncio.sleep(FIRST_AFTER_S + 1)
        assert (await journal.get(run.id)).first_seq == 1  # not old enough
        now += 2 * DAY_S
        await asyncio.sleep(EVERY_S)
        assert (await journal.get(run.id)).first_seq > 1
        now += 2 * DAY_S
        await asyncio.sleep(EVERY_S)
        with pytest.raises(RunNotFound):
            await journal.get(run.id)


async def test_what_is_kept_of_a_session_goes_with_its_last_run() -> None:
    now = 0.0
    journal = MemoryJournal(clock=lambda: now)
    retention = Retention(None, DAY_S, SESSION_VALUES)
    for session in ("gone", "gone", "alive"):
        _, lease = await journal.start(NewRun("agent", session=session), "me")
        assert lease is not None
        await journal.seal(lease, RunFinished("completed", ""))
        await journal.swap_value("editors.sessions", session, None, b'{"title":"a question"}')
    await journal.create(NewRun("agent", session="alive"))
    await retain(journal, retention, 2 * DAY_S)
    assert [*await journal.list_values("editors.sessions")] == ["alive"]


@driven
async def test_a_round_that_fails_does_not_end_the_rounds(caplog: pytest.LogCaptureFixture) -> None:
    class FailingOnce(MemoryJournal):
        failed = False

        async def compact(self, run_id: str) -> Run:
            if not self.failed:
                self.failed = True
                raise RuntimeError("once")
            return await super().compact(run_id)

    now = 1_000_000.0
    journal = FailingOnce(clock=lambda: now)
    run = await ended(journal)
    now += 2 * DAY_S
    async with retention_loop(journal, Retention(DAY_S, None), clock=lambda: now):
        await asyncio.sleep(FIRST_AFTER_S + EVERY_S + 1)
    assert (await journal.get(run.id)).first_seq > 1
    assert "once" in caplog.text


async def test_two_processes_that_clean_up_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    first = await SqliteJournal.open(tmp_path / "runs.db", clock=lambda: 1.0)
    second = await SqliteJournal.open(tmp_path / "runs.db", clock=lambda: 1.0)
    for number in range(60):
        _, lease = await first.start(NewRun("call", session=str(number)), "me")
        assert lease is not None
        await first.seal(lease, RunFinished("completed", ""))
    done = await asyncio.gather(*(retain(journal, Retention(None, 1.0), 100.0) for journal in (first, second)))
    assert sum(each.deleted for each in done) == 60
    assert await first.runs() == []
    await second.close()
    await first.close()
