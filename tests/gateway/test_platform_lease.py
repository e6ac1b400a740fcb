"""One process at a time polls a platform and sends to it (L170)."""

from __future__ import annotations

import asyncio

from runs.test_processes import LEASE_S, hang, now
from tailrace.gateway.platform_lease import PlatformLease
from tailrace.journal.memory import MemoryJournal
from tailrace.runs.processes import Processes
from tailrace.testing.clock import driven


@driven
async def test_L170_a_lease_is_held_by_one_and_taken_over_at_once_when_it_is_given_up() -> None:
    journal = MemoryJournal()
    async with Processes(journal, "one", lease_s=LEASE_S) as one, Processes(journal, "other", lease_s=LEASE_S) as other:
        first, second = PlatformLease(journal, one, "telegram:x"), PlatformLease(journal, other, "telegram:x")
        held = [first.holds]
        assert await first.acquire() == ""
        assert [*held, first.holds] == [False, True]
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(20 * LEASE_S)
        assert (first.holds, waiting.done()) == (True, False)
        another = PlatformLease(journal, other, "telegram:y")
        assert await another.acquire() == "", "another account is another lease"
        before = now()
        await first.give_up()
        assert await waiting == ""
        assert now() == before
        assert (first.holds, second.holds) == (False, True)


@driven
async def test_L170_a_holder_that_hangs_loses_the_lease_and_knows_it_before_another_has_it() -> None:
    journal = MemoryJournal()
    async with Processes(journal, "one", lease_s=LEASE_S) as one, Processes(journal, "other", lease_s=LEASE_S) as other:
        first, second = PlatformLease(journal, one, "telegram:x"), PlatformLease(journal, other, "telegram:x")
        await first.acquire()
        taking = asyncio.create_task(second.acquire())
        await asyncio.sleep(LEASE_S)
        losing = asyncio.create_task(first.lost())
        await hang(one)
        hung_at = now()
        while not taking.done():
            assert first.holds == one.is_current
            assert not second.holds
            await asyncio.sleep(0.25)
        assert now() - hung_at < 2 * LEASE_S
        assert await taking == "one"
        assert (first.holds, second.holds) == (False, True)
        await one._beat()  # it goes on
        assert not first.holds, "a new heartbeat does not bring back what may have been lost meanwhile"
        await losing
        again = asyncio.create_task(first.acquire())
        await asyncio.sleep(5 * LEASE_S)
        assert not again.done()
        again.cancel()


@driven
async def test_L170_a_holder_that_hung_and_was_not_replaced_holds_it_again() -> None:
    journal = MemoryJournal()
    async with Processes(journal, "one", lease_s=LEASE_S) as one:
        lease = PlatformLease(journal, one, "telegram:x")
        await lease.acquire()
        await hang(one)
        await asyncio.sleep(2 * LEASE_S)
        await lease.lost()
        await one._beat()
        assert await lease.acquire() == "one"
        assert lease.holds
