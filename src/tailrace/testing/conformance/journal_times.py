"""What every journal must know of the times of its entries; a part of `JournalConformance`."""

from __future__ import annotations

import pytest

from tailrace.errors import RunNotFound
from tailrace.events import AnyEvent, MessageChunk, MessageRecorded, RunFinished, ToolOutputRecorded
from tailrace.messages import assistant
from tailrace.ports import Durability, Journal, NewRun
from tailrace.testing.conformance.wall_clock import WallClock


class TimesConformance:
    """Needs the fixtures of `JournalConformance`."""

    @pytest.mark.parametrize("durability", ["memory", "committed", "fsync"])
    async def test_each_commit_has_its_time_and_keeps_it(
        self, journal: Journal, wall_clock: WallClock, durability: Durability
    ) -> None:
        began = wall_clock.now
        run, lease = await journal.start(NewRun("agent", durability=durability), "me")
        assert lease is not None
        commits: list[list[AnyEvent]] = [
            [MessageChunk("Hel"), MessageChunk("lo")],  # 2, 3
            [ToolOutputRecorded("call", "terminal", "done")],  # 4
            [MessageRecorded(assistant("Hello")), MessageChunk("!")],  # 5, 6
        ]
        for events in commits:
            wall_clock.now += 2.0
            journal.append(lease, events)
            await journal.commit(lease)
        live = [(1, began), (2, began + 2.0), (4, began + 4.0), (5, began + 6.0)]
        assert await journal.times(run.id) == live
        wall_clock.now += 2.0
        await journal.seal(lease, RunFinished("completed", "Hello!"))
        assert await journal.times(run.id) == [*live, (7, began + 8.0)]
        wall_clock.now += 60.0
        await journal.compact(run.id)
        facts = [entry.seq for entry in await journal.facts(run.id)]
        assert facts == [1, 4, 5, 7]
        assert await journal.times(run.id) == [(1, began), (4, began + 4.0), (5, began + 6.0), (7, began + 8.0)]

    async def test_only_a_run_that_exists_has_times(self, journal: Journal) -> None:
        with pytest.raises(RunNotFound):
            await journal.times("run_0")
