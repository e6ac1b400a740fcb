"""M154: an instance that has ended says why, at whatever moment it is looked at."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flows.stages import Doing, sequence, service, step
from tailrace.events import Entry, RunFinished
from tailrace.flows.engine.instance_state import instance_states
from tailrace.flows.engine.service import Instance
from tailrace.flows.steps.base import StepError
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import JsonObject
from tailrace.ports import Lease, Run


def fail(_params: JsonObject) -> None:
    raise StepError("no such tree")


def whole(instance: Instance) -> bool:
    return (instance.state == "failed") == (instance.error is not None) == (instance.finished_at is not None)


async def test_M154_an_instance_looked_at_while_its_end_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = MemoryJournal()
    seal, looking = journal.seal, list[asyncio.Future[Instance]]()
    async with service(tmp_path, journal, Doing(fail)) as flows:

        async def slow_seal(lease: Lease, finished: RunFinished) -> Entry:
            looking.append(asyncio.ensure_future(flows.instance(lease.run_id)))
            for _ in range(20):
                await asyncio.sleep(0)
            return await seal(lease, finished)

        monkeypatch.setattr(journal, "seal", slow_seal)
        run = await flows.start(sequence(step("a")))
        while (instance := await flows.instance(run.id)).state != "failed":
            assert whole(instance)
            await asyncio.sleep(0)
        assert whole(instance)
        assert whole(await looking[0])


async def test_M154_an_instance_that_ends_in_another_process_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = MemoryJournal()
    async with service(tmp_path, journal, Doing(fail)) as flows:
        run = await flows.start(sequence(step("a")))
        await flows.finished(run.id)

        async def get_late(_run_id: str) -> Run:
            return run  # as it was when the read began

        monkeypatch.setattr(journal, "get", get_late)
        async with service(tmp_path, journal) as elsewhere:
            instance = await elsewhere.instance(run.id)
    assert instance.state == "failed"
    assert whole(instance)


async def test_M154_a_list_never_has_failed_before_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of an instance that ended after the list was read, and not while its end is stored."""
    journal = MemoryJournal()
    seal, seen = journal.seal, list[str]()
    async with service(tmp_path, journal, Doing(fail)) as flows:

        async def listed(runs: list[Run]) -> str:
            return (await instance_states(journal, runs))[runs[0].id]

        async def slow_seal(lease: Lease, finished: RunFinished) -> Entry:
            before = await flows.instances()
            seen.append(await listed(before))
            sealed = await seal(lease, finished)
            seen.append(await listed(before))
            return sealed

        monkeypatch.setattr(journal, "seal", slow_seal)
        run = await flows.start(sequence(step("a")))
        await flows.finished(run.id)
        after = await flows.instances()
    assert (len(seen), "failed" in seen) == (2, False)
    assert (await listed(after), after[0].finished is not None) == ("failed", True)
