"""Processes that share a journal: which of them live, which goes on with a run, and that a hand-over is heard of."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from tailrace.errors import StorageFailed
from tailrace.journal.memory import MemoryJournal
from tailrace.runs.processes import HEARTBEATS, Processes
from tailrace.testing.clock import driven

LEASE_S = 9.0


def now() -> float:
    return asyncio.get_running_loop().time()


async def hang(process: Processes) -> None:
    """As SIGSTOP does: its heartbeat is still there, and no longer changes."""
    for task in process._tasks:
        task.cancel()
    await asyncio.wait(process._tasks)


@driven
async def test_L145_a_process_is_gone_when_its_heartbeat_has_not_changed_for_a_lease() -> None:
    journal = MemoryJournal()
    one, other = (Processes(journal, name, lease_s=LEASE_S) for name in ("one", "other"))
    async with one, other:
        await asyncio.sleep(10 * LEASE_S)
        assert not await one.is_gone("other")
        await one.look()
        await hang(other)
        hung_at = now()
        for _ in range(100):
            if await one.is_gone("other"):
                break
            await asyncio.sleep(0.5)
        assert LEASE_S - one.interval_s <= now() - hung_at <= LEASE_S + 1.0
        assert not other.is_current, "it knows by itself that others may have taken it for dead"
        assert one.is_current
        assert list(one.successors()) == []
        await other._beat()
        assert (other.is_current, other.lapses) == (True, 1)
        assert not await one.is_gone("other")
        other._tasks = [asyncio.create_task(asyncio.sleep(0))]
    assert await journal.list_values(HEARTBEATS) == {}, "a process that ends in order says so"


@driven
async def test_a_heartbeat_is_written_without_reading_the_last_one() -> None:
    class Counted(MemoryJournal):
        reads = 0

        async def get_value(self, namespace: str, key: str) -> bytes | None:
            self.reads += namespace == HEARTBEATS
            return await super().get_value(namespace, key)

    journal = Counted()
    async with Processes(journal, "one", lease_s=LEASE_S) as one:
        before, journal.reads = one._own.beat, 0
        await asyncio.sleep(10 * LEASE_S)
        assert one._own.beat >= before + 29
        assert journal.reads == 0
        assert await journal.swap_value(HEARTBEATS, "one", await journal.get_value(HEARTBEATS, "one"), None)
        await asyncio.sleep(LEASE_S)
        assert await one._heartbeats.get("one") == one._own, "one that was removed is written again"


@driven
async def test_a_process_that_has_ended_or_never_was_is_gone_at_once() -> None:
    journal = MemoryJournal()
    async with Processes(journal, "one", lease_s=LEASE_S) as one:
        async with Processes(journal, "other", lease_s=LEASE_S):
            await one.look()
            assert list(one.successors()) == ["other"]
        assert await one.is_gone("other")
        assert await one.is_gone("never was")


@driven
async def test_the_heartbeat_of_one_that_was_killed_is_removed_in_the_end() -> None:
    journal = MemoryJournal()
    killed = Processes(journal, "killed", lease_s=LEASE_S)
    await killed._beat()
    async with Processes(journal, "one", lease_s=LEASE_S):
        await asyncio.sleep(40 * LEASE_S)
        assert list(await journal.list_values(HEARTBEATS)) == ["one"]


@driven
async def test_L145_runs_are_shared_and_a_leaving_process_gets_none() -> None:
    journal = MemoryJournal()
    names = ["a", "b", "c"]
    processes = [Processes(journal, name, lease_s=LEASE_S) for name in names]
    runs = [f"run_{number:024x}" for number in range(300)]

    def takers() -> list[list[str]]:
        return [[process.owner for process in processes if process.is_next(run)] for run in runs]

    async with AsyncExitStack() as stack:
        for process in processes:
            await stack.enter_async_context(process)
        await asyncio.sleep(LEASE_S)
        first = takers()
        assert all(len(taken) == 1 for taken in first), "everybody agrees"
        assert min(Counter(owner for [owner] in first).values()) > 70, "each gets about a third"
        await processes[0].leave()
        await asyncio.sleep(LEASE_S)
        second = takers()
    assert all(len(taken) == 1 and taken != ["a"] for taken in second)
    assert all(after == before for before, after in zip(first, second, strict=True) if before != ["a"])


@driven
async def test_a_hand_over_is_heard_of_at_once() -> None:
    journal = MemoryJournal()
    async with Processes(journal, "one", lease_s=LEASE_S) as one, Processes(journal, "other", lease_s=LEASE_S) as other:
        waiting = asyncio.create_task(one.wait_for_hand_over(1000.0, received=one.hand_overs))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        before = now()
        await other.announce_hand_over()
        await waiting
        assert now() == before
        await one.wait_for_hand_over(1000.0, received=one.hand_overs - 1)  # one that came while nothing waited
        assert now() == before
        await one.wait_for_hand_over(5.0, received=one.hand_overs)
        assert now() == before + 5.0


@driven
async def test_storage_that_fails_for_a_while_is_said_and_not_the_end(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryJournal):
        failing = True

        async def swap_value(self, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool:
            if self.failing:
                raise StorageFailed("the disk is full")
            return await super().swap_value(namespace, key, old, new)

    journal = Failing()
    async with Processes(journal, "one", lease_s=LEASE_S) as one:
        current = [one.is_current]
        journal.failing = False
        await asyncio.sleep(LEASE_S)
        assert [*current, one.is_current] == [False, True]
    assert "the heartbeat of this process was not written: the disk is full" in caplog.text
