"""A caller that is cancelled while its commit is in flight: storage has what it wrote, and this process knows of it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from journal.stores import AnyStored, Store
from tailrace.errors import RunNotFound
from tailrace.ports import Signal
from tailrace.testing.conformance.journal import started


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


async def test_a_run_is_told_of_a_signal_whose_sender_is_cancelled(store: Store) -> None:
    journal = await store.open()
    run, lease = await started(journal)
    waiting = asyncio.ensure_future(journal.signals(lease))
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
