"""What every journal must hold about owners that lose a run and come back: part of `JournalConformance`."""

from __future__ import annotations

import pytest

from tailrace.errors import RunSealed, StaleEpoch
from tailrace.events import MessageChunk, RunFailure, RunFinished
from tailrace.ports import CRASH_LOOP, Journal, NewRun
from tailrace.testing.conformance.wall_clock import WallClock


class ClaimsConformance:
    """Needs the fixtures of `JournalConformance`."""

    async def test_I102_a_run_is_not_parked_by_an_old_count(self, journal: Journal, wall_clock: WallClock) -> None:
        """An owner that seemed dead comes back between the count and the park."""
        run, first = await journal.start(NewRun("agent"), "0")
        assert first is not None
        wall_clock.now += 31.0
        await journal.claim(run.id, "1")
        wall_clock.now += 31.0
        last = await journal.claim(run.id, "2")
        counted = (await journal.get(run.id)).kills
        await journal.release(first)
        await journal.park(last, RunFailure(CRASH_LOOP, "it kept crashing"), kills=counted)
        run = await journal.get(run.id)
        assert (counted, run.state, run.parked, run.kills) == (2, "pending", None, 1)
        await journal.claim(run.id, "3")

    async def test_I102_an_owner_that_comes_back_has_not_died(self, journal: Journal, wall_clock: WallClock) -> None:
        """A busy machine renews its leases too late: whoever is refused and gives back has lived all the time."""
        run, first = await journal.start(NewRun("agent"), "0")
        assert first is not None
        leases = [first]
        for number in (1, 2, 3):
            wall_clock.now += 31.0
            leases.append(await journal.claim(run.id, str(number)))
        assert (await journal.get(run.id)).kills == 3
        await journal.release(first)
        await journal.release(first)  # the same one again
        assert (await journal.get(run.id)).kills == 2
        await journal.park(leases[3], RunFailure(CRASH_LOOP, "it kept crashing"))
        await journal.release(leases[3])  # it has parked the run itself
        assert (await journal.get(run.id)).state == "parked"
        await journal.release(leases[1])
        run = await journal.get(run.id)
        assert (run.state, run.parked, run.kills) == ("pending", None, 1)
        await journal.release(leases[2])
        assert (await journal.get(run.id)).kills == 0
        await journal.claim(run.id, "4")

    async def test_a_writer_appends_until_its_lease_is_lost(self, journal: Journal) -> None:
        run, lease = await journal.start(NewRun("agent"), "me")
        assert lease is not None
        write = journal.writer(lease)
        write(1, [MessageChunk("a")])
        journal.append(lease, [MessageChunk("b")])
        write(2, [MessageChunk("c"), MessageChunk("d")])
        await journal.commit(lease)
        entries = (await journal.read(run.id))[1:]
        assert [entry.event for entry in entries] == [MessageChunk(text) for text in "abcd"]
        assert [entry.attempt for entry in entries] == [1, 1, 2, 2]
        await journal.release(lease)
        other = await journal.claim(run.id, "other")
        for late in (write, journal.writer(lease)):
            with pytest.raises(StaleEpoch):
                late(2, [MessageChunk("late")])
        await journal.seal(other, RunFinished("completed", "abcd"))
        with pytest.raises(RunSealed):
            journal.writer(other)(2, [MessageChunk("late")])
