"""Work that signals interrupt: what listens for them, and from when on."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.journal.memory import MemoryJournal
from tailrace.ports import Signal
from tailrace.runs.signals import STOP, Stopped, run_signalled, stop_only
from tailrace.testing.clock import driven
from tailrace.testing.conformance.sample_runs import started


@driven
async def test_a_task_listens_from_the_first_signal_on() -> None:
    journal, heard = MemoryJournal(), asyncio.Event()
    run, lease = await started(journal)
    names: list[str] = []

    def hear(signal: Signal) -> None:
        names.append(signal.name)
        heard.set()

    async def work() -> int:
        before = len(asyncio.all_tasks())
        await journal.signal(run.id, Signal("go"))
        await heard.wait()
        assert len(asyncio.all_tasks()) == before + 1
        return 7

    tasks = len(asyncio.all_tasks())
    assert await run_signalled(work(), journal, lease, hear) == 7
    assert (names, len(asyncio.all_tasks())) == (["go"], tasks)
    await journal.close()


@driven
async def test_a_signal_from_before_the_work_counts_and_cancels_it() -> None:
    journal = MemoryJournal()
    run, lease = await started(journal)
    await journal.signal(run.id, Signal(STOP))
    with pytest.raises(Stopped):
        await run_signalled(asyncio.Event().wait(), journal, lease, stop_only)
    await journal.close()


@driven
async def test_work_that_ends_leaves_no_listener_behind() -> None:
    journal = MemoryJournal()
    run, lease = await started(journal)
    names: list[str] = []

    def hear(signal: Signal) -> None:
        names.append(signal.name)

    await run_signalled(asyncio.sleep(0), journal, lease, hear)
    await journal.signal(run.id, Signal("late"))
    await asyncio.sleep(1)
    assert names == []
    await journal.close()
