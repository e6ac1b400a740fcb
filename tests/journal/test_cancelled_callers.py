"""A caller that is cancelled while its commit is in flight: storage has what it wrote, and this process knows of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from journal.stores import AnyStored, Store
from tailrace.errors import RunNotFound, RunSealed, StaleEpoch
from tailrace.events import MessageChunk, RunFinished
from tailrace.ports import NewRun, Signal
from tailrace.testing.conformance.sample_runs import started

T = TypeVar("T")


async def cancelled_in_flight(journal: AnyStored, work: Coroutine[Any, Any, object]) -> None:
    """Cancels the work when its commit is in flight, and returns when that commit is settled."""
    commits, in_flight, settled = journal._commits, asyncio.Event(), asyncio.Event()
    write, settle = commits._write, commits._settle

    def write_later(group: Any) -> None:
        in_flight.set()
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, write, group)

    def settle_and_tell(group: Any) -> None:
        settle(group)
        settled.set()

    commits._write, commits._settle = write_later, settle_and_tell  # type: ignore[method-assign]
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(60):
        await in_flight.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settled.wait()
    commits._write, commits._settle = write, settle  # type: ignore[method-assign]


async def waits(journal: AnyStored, read: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """The work as a task, once this read of the journal has found nothing for it."""
    query, has_read = getattr(journal, read), asyncio.Event()

    async def read_and_tell(*args: object) -> object:
        try:
            return await query(*args)
        finally:
            has_read.set()

    setattr(journal, read, read_and_tell)
    task = asyncio.ensure_future(work)
    await has_read.wait()
    setattr(journal, read, query)
    return task


async def test_a_run_is_told_of_a_signal_whose_sender_is_cancelled(store: Store) -> None:
    journal = await store.open()
    run = await journal.create(NewRun("agent"))
    lease = await journal.claim(run.id, "a")
    waiting = await waits(journal, "_signals_after", journal.signals(lease))
    await cancelled_in_flight(journal, journal.signal(run.id, Signal("stop", by="a person")))
    async with asyncio.timeout(60):
        assert [(each.name, each.by) for each in await waiting] == [("stop", "a person")]
    await journal.close()


async def test_closing_leaves_no_task_of_a_signal_whose_sender_is_cancelled(store: Store) -> None:
    before = asyncio.all_tasks()
    journal = await store.open()
    run, _ = await started(journal)
    sending = asyncio.ensure_future(journal.signal(run.id, Signal("stop")))
    await asyncio.sleep(0)
    sending.cancel()
    await journal.close()
    assert asyncio.all_tasks() - {sending} == before
    later = await store.open()
    assert [each.name for each in await later.signals(await later.claim(run.id, "me"))] == ["stop"]
    await later.close()


async def test_what_a_sender_that_was_cancelled_is_not_told_is_no_warning(store: Store) -> None:
    journal, complaints = await store.open(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    await cancelled_in_flight(journal, journal.signal("run_0", Signal("stop")))
    await journal.close()
    gc.collect()
    assert complaints == []
    with pytest.raises(RunNotFound):
        await (again := await store.open()).signal("run_0", Signal("stop"))
    await again.close()


async def test_a_run_that_is_begun_for_nobody_is_given_back_at_once(store: Store) -> None:
    journal = await store.open()
    await cancelled_in_flight(journal, journal.start(NewRun("agent"), "a", lease_s=3600.0))
    await journal._shielded_writes.end()
    (run,) = await journal.runs()
    assert (run.state, run.owner, journal._logs) == ("pending", "", {})
    assert (await journal.claim(run.id, "another")).epoch == run.claims + 1
    await journal.close()


async def test_a_claim_for_nobody_is_given_back_at_once(store: Store) -> None:
    journal = await store.open()
    run = await journal.create(NewRun("agent"))
    await cancelled_in_flight(journal, journal.claim(run.id, "a", lease_s=3600.0))
    await journal._shielded_writes.end()
    assert (await journal.get(run.id)).state == "pending"
    assert journal._logs == {}
    await journal.close()


async def test_a_claim_that_was_left_and_is_slow_does_not_take_the_log_of_a_newer_one(store: Store) -> None:
    journal, goes_on, reads = await store.open(), asyncio.Event(), asyncio.Event()
    run = await journal.create(NewRun("agent"))
    fold_log = journal._fold_log

    async def fold_slowly(run_id: str) -> Any:
        journal._fold_log = fold_log  # type: ignore[method-assign]
        reads.set()
        await goes_on.wait()
        return await fold_log(run_id)

    journal._fold_log = fold_slowly  # type: ignore[method-assign]
    left = asyncio.ensure_future(journal.claim(run.id, "a"))
    async with asyncio.timeout(60):
        await reads.wait()
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    lease = await journal.claim(run.id, "a")
    goes_on.set()
    await journal._shielded_writes.end()
    await journal.renew(lease)
    assert (await journal.get(run.id)).state == "running"
    await journal.close()


async def test_closing_gives_back_what_was_claimed_for_nobody(store: Store) -> None:
    journal = await store.open()
    run = await journal.create(NewRun("agent"))
    claiming = asyncio.ensure_future(journal.claim(run.id, "a", lease_s=3600.0))
    await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.wait([claiming])
    await journal.close()
    later = await store.open()
    assert (await later.get(run.id)).state == "pending"
    await later.close()


async def test_a_log_whose_seal_nobody_awaits_is_not_held(store: Store) -> None:
    journal = await store.open()
    run, lease = await started(journal)
    await cancelled_in_flight(journal, journal.seal(lease, RunFinished("stopped")))
    assert journal._logs == {}
    assert (await journal.get(run.id)).state == "stopped"
    await journal.release(lease)
    with pytest.raises(RunSealed):
        await journal.claim(run.id, "another")
    await journal.close()


async def test_O178_a_lost_lease_holds_nothing_of_the_writer_that_was_refused(store: Store) -> None:
    """The reason is kept for a late writer: an error with its traceback would hold every frame that it passed."""

    class Answer:
        """What the writer has in memory."""

    async def write_late() -> weakref.ref[Answer]:
        answer = Answer()
        with contextlib.suppress(StaleEpoch):
            journal.append(lease, [MessageChunk("late")])
            pytest.fail("a released run took an entry")
        return weakref.ref(answer)

    journal = await store.open()
    _, lease = await started(journal)
    await journal.release(lease)
    seen = [await write_late() for _ in range(3)]
    gc.collect()
    assert [answer() for answer in seen] == [None] * 3
    await journal.close()


async def test_who_waits_for_a_value_hears_of_a_change_whose_caller_is_cancelled(store: Store) -> None:
    journal = await store.open()
    waiting = await waits(journal, "get_value", journal.next_value("n", "k", None))
    await cancelled_in_flight(journal, journal.swap_value("n", "k", None, b"1"))
    async with asyncio.timeout(60):
        assert await waiting == b"1"
    await journal.close()


async def test_who_waits_for_a_session_hears_of_a_run_whose_creator_is_cancelled(store: Store) -> None:
    journal = await store.open()
    waiting = await waits(journal, "_run_after", journal.next_run("s", "agent", ""))
    await cancelled_in_flight(journal, journal.create(NewRun("agent", session="s")))
    async with asyncio.timeout(60):
        assert (await waiting).new.session == "s"
    await journal.close()
