"""Taking over after a death, putting aside what kills, keeping what must be kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.app.housekeeping import Retained, Retention, retain
from tailrace.errors import RunParked, RunSealed, StaleEpoch
from tailrace.events import (
    AnyEvent,
    Delivered,
    LlmDelta,
    MessageChunk,
    MessageRecorded,
    RunFailure,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    ToolOutputRecorded,
    UsageRecorded,
)
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.messages import SpentTokens, Usage, assistant
from tailrace.ports import Journal, NewRun, Signal
from tailrace.runs.lease import HeldLease
from tailrace.runs.recovery import follow, recover, stop
from tailrace.testing.conformance.sample_runs import finished_run, started, written
from tailrace.testing.conformance.wall_clock import WallClock


@pytest.fixture
def wall_clock() -> WallClock:
    return WallClock()


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path, wall_clock: WallClock) -> AsyncIterator[Journal]:
    journal: Journal
    if request.param == "memory":
        journal = MemoryJournal(clock=wall_clock)
    else:
        journal = await SqliteJournal.open(tmp_path / "runs.db", clock=wall_clock)
    yield journal
    await journal.close()


async def test_I106_an_unfinished_run_is_handed_over_with_its_log(journal: Journal, wall_clock: WallClock) -> None:
    run, lease = await started(journal)
    said, ran = MessageRecorded(assistant("I will")), ToolOutputRecorded("c1", "terminal", "done")
    await written(journal, lease, [MessageChunk("I will"), said, ran])
    untouched = await journal.create(NewRun("call"))
    finished = await finished_run(journal)
    wall_clock.now += 31.0
    found = {found.run.id: found async for found in recover(journal, "the next")}
    assert found.keys() == {run.id, untouched.id}
    assert finished.id not in found
    assert [entry.event for entry in found[run.id].entries][1:] == [MessageChunk("I will"), said, ran]
    assert isinstance(found[run.id].entries[0].event, RunStarted)
    assert (found[run.id].run.owner, found[run.id].run.kills) == ("the next", 0)  # the tool had run: it got further
    assert found[untouched.id].run.kills == 0
    with pytest.raises(StaleEpoch):
        journal.append(lease, [MessageChunk("late")])
    assert [found async for found in recover(journal, "a third")] == []


async def test_I102_a_run_that_killed_three_times_is_parked(journal: Journal, wall_clock: WallClock) -> None:
    run, _ = await started(journal)
    for kills in (1, 2):
        wall_clock.now += 31.0
        (found,) = [found async for found in recover(journal, f"life {kills}")]
        assert found.run.kills == kills
    wall_clock.now += 31.0
    assert [found async for found in recover(journal, "life 3")] == []
    run = await journal.get(run.id)
    assert run.state == "parked"
    assert run.parked is not None
    assert run.parked.kind == "crash_loop"
    assert run.parked.message.startswith("the process died 3 times while it executed this run")
    wall_clock.now += 31.0
    assert [found async for found in recover(journal, "life 4")] == []
    await journal.unpark(run.id)
    (again,) = [found async for found in recover(journal, "life 5")]
    assert again.run.kills == 0


async def test_I102_deaths_between_which_the_run_got_further_do_not_count(
    journal: Journal, wall_clock: WallClock
) -> None:
    run, lease = await started(journal)
    for life, progress in enumerate(PROGRESS * 2):
        journal.append(lease, [StepStarted("b"), LlmDelta("b", "x"), progress])
        await journal.commit(lease)
        wall_clock.now += 31.0
        (found,) = [found async for found in recover(journal, f"life {life}")]
        assert found.run.kills == 0
        lease = found.lease
    for life, kills in enumerate((1, 2)):  # what was done before its claim is no progress of this owner
        journal.append(lease, [StepStarted("b"), LlmDelta("b", "x"), ToolOutputRecorded("c", "t", "cut", ok=False)])
        await journal.commit(lease)
        wall_clock.now += 31.0
        (found,) = [found async for found in recover(journal, f"next life {life}")]
        assert found.run.kills == kills
        lease = found.lease
    wall_clock.now += 31.0
    assert [found async for found in recover(journal, "last life")] == []
    assert (await journal.get(run.id)).state == "parked"


async def test_an_owner_that_claims_its_own_run_again_has_not_died(journal: Journal) -> None:
    run, _ = await started(journal, owner="me")
    for _ in range(3):
        await journal.claim(run.id, "me")
    assert (await journal.get(run.id)).kills == 0


PROGRESS: tuple[AnyEvent, ...] = (
    StepFinished("a", 1),
    ToolOutputRecorded("c", "t", "done"),
    Delivered("k", "confirmed"),
)


async def test_what_was_given_back_counts_as_no_kill(journal: Journal) -> None:
    await started(journal)
    for _ in range(5):
        async for found in recover(journal, "me"):
            assert found.run.kills == 0
            await journal.release(found.lease)


async def test_stopping_a_run_nobody_executes_ends_it(journal: Journal, wall_clock: WallClock) -> None:
    run, lease = await started(journal)
    await written(journal, lease, [MessageChunk("so far"), UsageRecorded(Usage(1, 2))])
    wall_clock.now += 31.0
    stopped = await stop(journal, run.id, "me", at=wall_clock.now, by="ann", newer=True)
    assert stopped.state == "stopped"
    spent = (SpentTokens("", "", Usage(1, 2)),)
    why = RunFailure("stopped", "interrupted by a newer message", "newer_message", by="ann")
    assert stopped.finished == RunFinished("stopped", "so far", Usage(1, 2), why, wall_clock.now, spent)
    with pytest.raises(RunSealed):
        await stop(journal, run.id, "me", at=wall_clock.now)


async def test_stopping_a_parked_run_ends_it(journal: Journal, wall_clock: WallClock) -> None:
    run, _ = await started(journal)
    for _ in range(3):
        wall_clock.now += 31.0
        async for _ in recover(journal, f"at {wall_clock.now}"):
            pass
    assert (await journal.get(run.id)).state == "parked"
    assert (await stop(journal, run.id, "me", at=wall_clock.now)).state == "stopped"


async def test_a_stop_that_its_owner_takes_at_once_has_stopped_the_run() -> None:
    class Quick(MemoryJournal):
        """Its run's owner ends the run before the one who sent the signal goes on."""

        async def signal(self, run_id: str, signal: Signal) -> Signal:
            sent = await super().signal(run_id, signal)
            await self.seal(lease, RunFinished("stopped", ""))
            return sent

    journal = Quick()
    run, lease = await started(journal)
    assert (await stop(journal, run.id, "me", at=0.0)).state == "stopped"
    await journal.close()


async def test_stopping_a_run_that_lives_asks_its_owner(journal: Journal) -> None:
    run, lease = await started(journal)
    asked = await stop(journal, run.id, "me", at=0.0, by="a person")
    assert asked.state == "running"
    (signal,) = await journal.signals(lease)
    assert (signal.name, signal.by) == ("stop", "a person")


async def test_a_held_run_is_given_back_or_ended_with_the_block(journal: Journal) -> None:
    run, lease = await started(journal)
    with pytest.raises(ZeroDivisionError):
        async with HeldLease(journal, lease):
            raise ZeroDivisionError
    assert (await journal.get(run.id)).state == "pending"
    async with HeldLease(journal, await journal.claim(run.id, "me")) as again:
        await journal.seal(again, RunFinished("completed"))
    assert (await journal.get(run.id)).state == "completed"


async def test_a_held_lease_is_renewed(journal: Journal, wall_clock: WallClock) -> None:
    run, lease = await started(journal)
    renewed = asyncio.Event()
    renew = journal.renew

    async def counted(lease: object, *, lease_s: float) -> None:
        await renew(lease, lease_s=100.0)  # type: ignore[arg-type]
        renewed.set()

    journal.renew = counted  # type: ignore[method-assign, assignment]
    async with HeldLease(journal, lease, lease_s=0.003):
        await renewed.wait()
        wall_clock.now += 99.0
        assert await journal.orphans() == []
    assert [orphan.id for orphan in await journal.orphans()] == [run.id]


async def test_retention_compacts_then_deletes(journal: Journal, wall_clock: WallClock) -> None:
    old = await finished_run(journal)
    wall_clock.now += 100.0
    new = await finished_run(journal)
    open_run, _ = await started(journal)
    policy = Retention(compact_after_s=50.0, delete_after_s=500.0)
    assert await retain(journal, policy, wall_clock.now) == Retained(compacted=1)
    assert (await journal.get(old.id)).first_seq == old.last_seq
    assert (await journal.get(new.id)).first_seq == 1
    assert await retain(journal, policy, wall_clock.now) == Retained()
    wall_clock.now += 450.0
    assert await retain(journal, policy, wall_clock.now) == Retained(compacted=1, deleted=1)
    assert {run.id for run in await journal.runs()} == {new.id, open_run.id}
    assert await retain(journal, Retention(None, None), wall_clock.now + 1e9) == Retained()


async def test_retention_goes_through_every_page(journal: Journal, wall_clock: WallClock) -> None:
    for _ in range(205):
        _, lease = await started(journal)
        await journal.seal(lease, RunFinished("completed"))
    assert await retain(journal, Retention(0.0, None), wall_clock.now + 1) == Retained(compacted=205)
    assert await retain(journal, Retention(None, 0.0), wall_clock.now + 1) == Retained(deleted=205)
    assert await journal.runs() == []


async def test_I102_a_follower_is_told_that_the_run_was_parked(journal: Journal) -> None:
    """While it follows, when it comes later, and with nothing new to read."""
    run, lease = await started(journal)
    await written(journal, lease, [MessageChunk("I will")])
    seqs: list[int] = []

    async def seen(after: int = 0, *, park: bool = False) -> None:
        seqs.clear()
        async for batch in follow(journal, run.id, after=after):
            seqs.extend(entry.seq for entry in batch)
            if park and MessageChunk("I will") in [entry.event for entry in batch]:
                await journal.park(lease, RunFailure("crash_loop", "it kept crashing"))

    with pytest.raises(RunParked, match="it kept crashing"):
        await seen(park=True)
    last_seq = (await journal.get(run.id)).last_seq
    assert seqs == list(range(1, last_seq + 1))
    with pytest.raises(RunParked):
        await seen()
    assert seqs == list(range(1, last_seq + 1))
    with pytest.raises(RunParked):
        await seen(last_seq)
    assert seqs == []
    ended = await finished_run(journal)
    assert [batch async for batch in follow(journal, ended.id)]


async def test_I102_a_follower_that_has_the_run_from_before_it_was_parked_is_told_too(journal: Journal) -> None:
    run, lease = await started(journal)
    await journal.park(lease, RunFailure("crash_loop", "it kept crashing"))
    with pytest.raises(RunParked, match="it kept crashing"):
        async for _ in follow(journal, run.id, run=run):
            pass


async def test_a_follower_of_a_run_that_began_here_asks_storage_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("storage was asked")

    journal = await SqliteJournal.open(tmp_path / "runs.db")
    run, lease = await started(journal)
    monkeypatch.setattr(journal, "get", refuse)
    monkeypatch.setattr(journal, "page", refuse)
    following = follow(journal, run.id, run=run)
    seen = [entry.seq for entry in await anext(following)]
    await written(journal, lease, [MessageChunk("Hello.")])
    seen += [entry.seq for entry in await anext(following)]
    await journal.seal(lease, RunFinished("completed", "Hello."))
    seen += [entry.seq async for batch in following for entry in batch]
    assert seen == [1, 2, 3]
    await journal.close()
