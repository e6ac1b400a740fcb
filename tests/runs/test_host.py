"""The host of runs: how a run comes in, how it leaves, and that none is executed twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from tailrace.errors import (
    ConfigError,
    CorruptLog,
    ForkRefused,
    JournalError,
    RunNotFound,
    RunParked,
    StorageFailed,
    TailraceError,
)
from tailrace.events import MessageChunk, MessageStop, RunFailure, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import Batch, Lease, NewRun, Run, Signal
from tailrace.runs.host import LONGEST_PAUSE_S, SUSPECTED, RunHost, keep_recovering
from tailrace.runs.lease import RENEWALS_PER_LEASE
from tailrace.runs.processes import Processes
from tailrace.runs.recovery import ClaimedRun, finished
from tailrace.runs.signals import Stopped, listen, run_beside, stop_only
from tailrace.testing.clock import driven

LEASE_S = 10.0
log = logging.getLogger("tailrace.test")


def now() -> float:
    return asyncio.get_running_loop().time()


async def ends(journal: MemoryJournal, claimed: ClaimedRun) -> RunFinished | None:
    """What most runs here do: say two words, and end."""
    journal.append(claimed.lease, [MessageChunk("a "), MessageChunk("b"), MessageStop(final=True)])
    end = RunFinished("completed", "a b")
    await journal.seal(claimed.lease, end)
    return end


async def hangs(_journal: MemoryJournal, _claimed: ClaimedRun) -> RunFinished | None:
    await asyncio.Event().wait()
    return None


Does = Callable[[MemoryJournal, ClaimedRun], Awaitable[RunFinished | None]]


class Doing:
    def __init__(self, journal: MemoryJournal, claimed: ClaimedRun, does: Does) -> None:
        self._journal, self.claimed, self._does = journal, claimed, does

    async def run(self) -> RunFinished | None:
        return await self._does(self._journal, self.claimed)


class Host(RunHost[Doing]):
    """Hosts runs of one kind, and remembers them."""

    def __init__(self, journal: MemoryJournal, does: Does = ends, *, kind: str = "call") -> None:
        self.ended: list[tuple[str, RunFinished]] = []
        self.claimed: list[ClaimedRun] = []
        self._does = does
        super().__init__(journal, kind, owner="me", log=log, lease_s=LEASE_S, on_end=self._report, clock=now)

    def _execution(self, claimed: ClaimedRun) -> Doing:
        self.claimed.append(claimed)
        if claimed.run.new.input:
            raise ValueError("no such input")
        assert isinstance(self._journal, MemoryJournal)
        return Doing(self._journal, claimed, self._does)

    def _report(self, run: Run, end: RunFinished) -> None:
        self.ended.append((run.id, end))


@driven
async def test_a_run_is_executed_to_its_end_reported_and_forgotten() -> None:
    journal = MemoryJournal(clock=now)
    reported = Host(journal)
    async with reported as host:
        run = await host.start_run(NewRun("call", idempotency_key="k"))
        assert run.id in host.running
        end = await finished(journal, run.id)
        assert (await host.start_run(NewRun("call", idempotency_key="k"))).id == run.id
        await host.drain(5.0)
        assert not host.running
    assert reported.ended == [(run.id, end)]
    assert len(reported.claimed) == 1


@driven
@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (TailraceError("no model"), RunFailure("error", "no model")),
        (ConfigError("is missing", key="k"), RunFailure("error", "k: is missing", "not_configured")),
        (ForkRefused("no such entry"), RunFailure("error", "no such entry", "not_forkable")),
        (ZeroDivisionError("by 0"), RunFailure("internal", "ZeroDivisionError: by 0")),
    ],
)
async def test_a_failure_seals_the_run_with_what_it_has_shown(error: Exception, failure: RunFailure) -> None:
    async def fails(journal: MemoryJournal, claimed: ClaimedRun) -> RunFinished | None:
        journal.append(claimed.lease, [MessageChunk("so far")])
        raise error

    journal = MemoryJournal(clock=now)
    reported = Host(journal, fails)
    async with reported as host:
        run = await host.start_run(NewRun("call"))
        await host.drain(5.0)
    end = (await journal.get(run.id)).finished
    assert end == RunFinished("failed", "so far", error=failure, at=now())
    assert reported.ended == [(run.id, end)]


@driven
async def test_a_run_whose_lease_is_void_after_a_refusal_is_claimed_anew_and_sealed() -> None:
    class Refusing(MemoryJournal):
        """Storage has refused an entry: nothing can be written under the first lease any more."""

        def append(self, lease: Lease, events: Any, *, attempt: int = 1) -> int:
            if lease.epoch == 1:
                raise JournalError("disk full")
            return super().append(lease, events, attempt=attempt)

    journal = Refusing(clock=now)
    async with Host(journal) as host:
        run = await host.start_run(NewRun("call"))
        await host.drain(5.0)
    ended = await journal.get(run.id)
    assert (ended.state, ended.claims) == ("failed", 2)
    assert ended.finished is not None
    assert ended.finished.error == RunFailure("error", "disk full", "journal_unavailable")


@driven
async def test_a_run_that_another_process_took_over_is_never_sealed_here(caplog: pytest.LogCaptureFixture) -> None:
    async def goes_on(journal: MemoryJournal, claimed: ClaimedRun) -> RunFinished | None:
        return await run_beside(hangs(journal, claimed), listen(journal, claimed.lease, stop_only))

    journal = MemoryJournal(clock=now)
    reported = Host(journal, goes_on)
    async with reported as host:
        run = await host.start_run(NewRun("call"))
        await asyncio.sleep(0)
        await journal.release(reported.claimed[0].lease)
        await journal.claim(run.id, "another")
        await host.drain(5.0)
        assert host.running == ()
    assert (await journal.get(run.id)).owner == "another"
    assert reported.ended == []
    assert caplog.messages == [f"run {run.id} was taken over by another process"]


@driven
async def test_what_runs_when_the_host_is_closed_is_given_back() -> None:
    journal = MemoryJournal(clock=now)
    async with Host(journal, hangs) as host:
        run = await host.start_run(NewRun("call"))
        await asyncio.sleep(1.0)
    assert (await journal.get(run.id)).state == "pending"


@driven
async def test_a_stop_reaches_a_run_here_and_ends_one_that_no_process_executes() -> None:
    async def listens(journal: MemoryJournal, claimed: ClaimedRun) -> RunFinished | None:
        with suppress(Stopped):
            await run_beside(hangs(journal, claimed), listen(journal, claimed.lease, stop_only))
        end = RunFinished("stopped")
        await journal.seal(claimed.lease, end)
        return end

    journal = MemoryJournal(clock=now)
    abandoned = await journal.create(NewRun("call"))
    async with Host(journal, listens) as host:
        run = await host.start_run(NewRun("call"))
        await journal.signal(run.id, Signal("something else"))
        for run_id in (run.id, abandoned.id):
            assert host.stopping(run_id) is None
            await host.stop(run_id)
            assert (await finished(journal, run_id)).status == "stopped"
            await host.stop(run_id)  # a no-op: it has ended


@driven
async def test_a_run_whose_execution_cannot_be_made_fails_and_no_other() -> None:
    journal = MemoryJournal(clock=now)
    async with Host(journal) as host:
        runs = [await journal.create(NewRun("call", fields)) for fields in ({"a": 1}, {})]
        assert await host.recover() == [run.id for run in runs]
        ended = [await host.finished(run.id) for run in runs]
    assert [end.status for end in ended] == ["failed", "completed"]
    assert ended[0].error == RunFailure("internal", "ValueError: no such input")


# ── takeover ─────────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_L145_a_dead_owners_runs_go_on_within_two_leases_the_oldest_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    journal = MemoryJournal(clock=now)
    reported = Host(journal)
    dead = []
    for kind in ("call", "agent", "call"):
        dead.append((await journal.start(NewRun(kind), "another", lease_s=LEASE_S))[0])
        await asyncio.sleep(0.001)
    began = now()
    async with reported as host:
        taking_over = asyncio.create_task(host.keep_recovering())
        await finished(journal, dead[2].id)
        assert now() - began <= 2 * LEASE_S
        taking_over.cancel()
    assert [claimed.run.id for claimed in reported.claimed] == [dead[0].id, dead[2].id]
    assert [claimed.run.kills for claimed in reported.claimed] == [1, 1]
    assert (await journal.get(dead[1].id)).owner == "another", "of another kind"
    told = [f"going on with run {run.id}, whose process is gone or silent" for run in (dead[0], dead[2])]
    assert [message for message in caplog.messages if message.startswith("going on")] == told


@driven
async def test_L145_a_run_whose_claim_took_most_of_its_lease_is_not_lost_to_another_process() -> None:
    """Storage was busy, or this process was kept from running; it lives all the same."""
    renewed: list[float] = []

    class Slow(MemoryJournal):
        async def _answer_late(self) -> None:
            await asyncio.sleep(0.9 * LEASE_S)

        async def start(self, new: NewRun, owner: str, *, lease_s: float = 30.0) -> tuple[Run, Lease | None]:
            begun = await super().start(new, owner, lease_s=lease_s)
            await self._answer_late()
            return begun

        async def claim(self, run_id: str, owner: str, *, lease_s: float = 30.0) -> Lease:
            lease = await super().claim(run_id, owner, lease_s=lease_s)
            await self._answer_late()
            return lease

        async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
            renewed.append(now())
            await super().renew(lease, lease_s=lease_s)

    journal = Slow(clock=now)
    async with Host(journal, hangs) as host:
        await host.start_run(NewRun("call"))
        await asyncio.sleep(LEASE_S / 5)
        assert await journal.orphans() == []
        left = await journal.create(NewRun("call"))
        assert await host.take_over(left.id)
        await asyncio.sleep(LEASE_S / 5)
        assert await journal.orphans() == []
    assert len(renewed) >= 2


@driven
async def test_L146_a_process_never_claims_its_own_live_run() -> None:
    """After a suspend its leases have run out, and the journal lists its runs as abandoned."""

    class Suspended(MemoryJournal):
        async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
            raise JournalError("too late")

    going = asyncio.Event()

    async def waits(journal: MemoryJournal, claimed: ClaimedRun) -> RunFinished | None:
        await going.wait()
        return await ends(journal, claimed)

    journal = Suspended(clock=now)
    reported = Host(journal, waits)
    async with reported as host:
        run = await host.start_run(NewRun("call"))
        await asyncio.sleep(2 * LEASE_S)
        assert [orphan.id for orphan in await journal.orphans()] == [run.id]
        assert await host.recover() == []
        assert await host.take_over(run.id) is False
        going.set()
        await finished(journal, run.id)
    assert (await journal.get(run.id)).claims == 1
    assert len(reported.ended) == 1


@driven
async def test_two_recoveries_at_once_claim_a_run_once() -> None:
    class Slow(MemoryJournal):
        async def get(self, run_id: str) -> Run:
            await asyncio.sleep(1.0)
            return await super().get(run_id)

    journal = Slow(clock=now)
    run = await journal.create(NewRun("call"))
    reported = Host(journal, hangs)
    async with reported as host:
        found = await asyncio.gather(host.recover(), host.recover(), host.take_over(run.id))
    assert tuple(found) == ([run.id], [], False)
    assert len(reported.claimed) == 1


@driven
async def test_looking_for_abandoned_runs_goes_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryJournal):
        failures = 3

        async def orphans(self) -> list[Run]:
            if self.failures:
                self.failures -= 1
                raise JournalError("the disk is away")
            return await super().orphans()

    journal = Failing(clock=now)
    run = await journal.create(NewRun("call"))
    async with Host(journal) as host:
        taking_over = asyncio.create_task(host.keep_recovering(at_once=True))
        assert (await finished(journal, run.id)).status == "completed"
        taking_over.cancel()
    assert caplog.messages[:3] == ["abandoned runs cannot be looked for: the disk is away"] * 3


@driven
async def test_one_look_for_abandoned_runs_serves_every_kind() -> None:
    class Counted(MemoryJournal):
        looks = 0

        async def orphans(self) -> list[Run]:
            self.looks += 1
            return await super().orphans()

    journal = Counted(clock=now)
    calls, agents = Host(journal), Host(journal, kind="agent")
    dead = [(await journal.start(NewRun(kind), "another", lease_s=LEASE_S))[0] for kind in ("agent", "call")]
    async with calls, agents, Processes(journal, "me", lease_s=LEASE_S) as processes:
        looking = asyncio.create_task(keep_recovering([calls, agents], processes))
        for run in dead:
            assert (await finished(journal, run.id)).status == "completed"
        before, journal.looks = now(), 0
        await asyncio.sleep(10 * LEASE_S)
        assert journal.looks <= 1 + (now() - before) / (LEASE_S / RENEWALS_PER_LEASE)
        looking.cancel()


@driven
async def test_I102_waiting_for_a_run_ends_when_it_is_parked() -> None:
    journal = MemoryJournal(clock=now)
    run, lease = await journal.start(NewRun("call"), "me")
    assert lease is not None
    waiting = asyncio.create_task(finished(journal, run.id))
    await asyncio.sleep(1.0)
    await journal.park(lease, RunFailure("crash_loop", "it kept crashing"))
    for wait in (waiting, finished(journal, run.id)):
        with pytest.raises(RunParked, match="it kept crashing"):
            await wait


@driven
async def test_L144_a_run_that_storage_failed_is_taken_up_again() -> None:
    async def fails_once(journal: MemoryJournal, claimed: ClaimedRun) -> RunFinished | None:
        if len(host.claimed) == 1:
            raise StorageFailed("the disk is full")
        return await ends(journal, claimed)

    journal = MemoryJournal(clock=now)
    async with Host(journal, fails_once) as host, asyncio.TaskGroup() as group:
        looking = group.create_task(host.keep_recovering())
        run = await host.start_run(NewRun("call"))
        end = await finished(journal, run.id)
        looking.cancel()
    assert end.status == "completed"
    assert [claimed.run.id for claimed in host.claimed] == [run.id, run.id]


@driven
async def test_a_run_that_another_try_cannot_help_is_not_taken_up_again() -> None:
    async def fails(_journal: MemoryJournal, _claimed: ClaimedRun) -> RunFinished | None:
        raise RunNotFound("what was to be shown is deleted")

    journal = MemoryJournal(clock=now)
    async with Host(journal, fails) as host:
        run = await host.start_run(NewRun("call"))
        await host.drain(5.0)
    assert (await journal.get(run.id)).state == "failed"


@driven
async def test_a_run_that_keeps_failing_is_tried_less_and_less_often_and_others_are_not() -> None:
    tries: list[float] = []

    async def fails(journal: MemoryJournal, claimed: ClaimedRun) -> RunFinished | None:
        if claimed.run.new.session == "good":
            return await ends(journal, claimed)
        tries.append(now())
        raise StorageFailed("the disk is full")

    journal = MemoryJournal(clock=now)
    async with Host(journal, fails) as host, asyncio.TaskGroup() as group:
        looking = group.create_task(host.keep_recovering())
        await host.start_run(NewRun("call"))
        await asyncio.sleep(120.0)
        good = await journal.create(NewRun("call", session="good"))
        before = now()
        await finished(journal, good.id)
        assert now() - before <= LEASE_S
        looking.cancel()
    pauses = [round(after - before, 3) for before, after in pairwise(tries)]
    assert len(pauses) > 5
    assert pauses == sorted(pauses)
    assert LONGEST_PAUSE_S <= pauses[-1] <= LONGEST_PAUSE_S + LEASE_S


@driven
async def test_a_run_that_cannot_be_read_keeps_no_other_from_being_taken_over(caplog: pytest.LogCaptureFixture) -> None:
    class Damaged(MemoryJournal):
        async def read(self, run_id: str, *, after: int = 0) -> Batch:
            if run_id == bad.id:
                raise CorruptLog("checksum")
            return await super().read(run_id, after=after)

    journal = Damaged(clock=now)
    bad = await journal.create(NewRun("call"))
    good = await journal.create(NewRun("call"))
    async with Host(journal) as host:
        assert await host.recover() == [good.id]
        assert await host.recover() == []
    assert caplog.messages == [f"run {bad.id} cannot be taken over: checksum"]
    assert (await journal.get(bad.id)).state == "pending"


@driven
async def test_I102_of_runs_that_another_death_would_park_one_is_taken_over_at_a_time() -> None:
    """A run that kills its process takes none of its neighbours with it."""
    journal = MemoryJournal(clock=now)
    runs = [await twice_orphaned(journal) for _ in range(4)]
    (hung, *others), began_at = runs, now()

    async def does(journal: MemoryJournal, claimed: ClaimedRun) -> RunFinished | None:
        return await (hangs if claimed.run.id == hung.id else ends)(journal, claimed)

    async with Host(journal, does) as host:
        looking = asyncio.create_task(host.keep_recovering(at_once=True))
        await asyncio.sleep(0.9 * LEASE_S)
        assert [claimed.run.id for claimed in host.claimed] == [hung.id]
        assert host.must_wait(await journal.get(others[0].id))
        for run in others:
            await finished(journal, run.id)
        assert now() - began_at < 2 * LEASE_S, "it is alone for a lease at most, and one that ends makes room at once"
        looking.cancel()
    assert {claimed.run.kills for claimed in host.claimed} == {SUSPECTED}


async def twice_orphaned(journal: MemoryJournal) -> Run:
    """Two processes died while they had it."""
    run = await journal.create(NewRun("call"))
    for owner in ("one", "another"):
        await journal.claim(run.id, owner, lease_s=LEASE_S)
        await asyncio.sleep(LEASE_S + 1)
    return run
