"""What every journal that several processes share must do: subclass `SharedJournalConformance`, give it a fixture
`open_shared`, run it under pytest.

    class TestMyJournalShared(SharedJournalConformance):
        @pytest.fixture
        async def open_shared(self):
            opened = []

            async def open_shared(clock):
                opened.append(await MyJournal.open(..., clock=clock))
                return opened[-1]

            yield open_shared
            for journal in opened:
                await journal.close()

Each journal that `open_shared` opens stands for a process of its own: they have nothing in common but the storage.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import combinations

import pytest

from tailrace.errors import CursorAhead, RunOwned, RunSealed, StaleEpoch
from tailrace.events import MessageChunk, RunFinished
from tailrace.ports import Journal, NewRun, Run, Signal
from tailrace.testing.conformance.sample_runs import everything, started, texts_of, written
from tailrace.testing.conformance.wall_clock import WallClock

OpenShared = Callable[[Callable[[], float]], Awaitable[Journal]]
TURN = NewRun("agent", {"text": "hi"}, session="s")


class SharedJournalConformance:
    """Needs a fixture `open_shared`: a function that opens the same storage with the given wall clock."""

    @pytest.fixture
    async def one(self, open_shared: OpenShared) -> Journal:
        return await open_shared(time.time)

    @pytest.fixture
    async def other(self, open_shared: OpenShared) -> Journal:
        return await open_shared(time.time)

    async def test_I101_a_sessions_runs_are_ordered_by_their_commits_and_not_by_clocks(
        self, open_shared: OpenShared
    ) -> None:
        now = time.time()
        ahead, behind = await open_shared(WallClock(now + 3600.0)), await open_shared(WallClock(now))
        runs = [await journal.create(TURN) for journal in (behind, ahead, behind, behind, ahead)]
        assert [run.id for run in await behind.runs(session="s")] == [run.id for run in reversed(runs)]
        elsewhere = await behind.create(NewRun("agent", session="another"))
        assert elsewhere.id < runs[1].id  # no other session has to wait for the clock that is ahead

    async def test_I101_each_of_two_runs_at_once_is_before_or_after_the_other(
        self, one: Journal, other: Journal
    ) -> None:
        """And the later one can see the earlier one by then: at no moment do both believe to be alone."""

        async def start(journal: Journal) -> tuple[Run, set[str]]:
            run, _ = await journal.start(TURN, f"owner {id(journal)}")
            return run, {before.id for before in await journal.runs(session="s", before=run.id)}

        for _ in range(10):
            pairs = await asyncio.gather(*(start(journal) for journal in (one, other) * 5))
            for (first, _), (second, before_second) in combinations(sorted(pairs, key=lambda pair: pair[0].id), 2):
                assert first.id in before_second, (first.id, second.id)

    async def test_an_idempotency_key_names_one_run_in_every_process(self, one: Journal, other: Journal) -> None:
        new = NewRun("call", idempotency_key="k")
        begun = await asyncio.gather(*(journal.start(new, "me") for journal in (one, other) * 5))
        assert len({run.id for run, _ in begun}) == 1
        assert len([lease for _, lease in begun if lease is not None]) == 1

    async def test_a_claim_by_another_process_fences_the_first_one_off(self, one: Journal, other: Journal) -> None:
        run, lease = await started(one)
        await written(one, lease, [MessageChunk("a")])
        with pytest.raises(RunOwned):
            await other.claim(run.id, "other")
        await one.release(lease)
        newer = await other.claim(run.id, "other")
        with pytest.raises(StaleEpoch):
            await written(one, lease, [MessageChunk("late")])
        await written(other, newer, [MessageChunk("b")])
        assert texts_of(await one.read(run.id)) == ["a", "b"]

    async def test_a_signal_from_another_process_reaches_the_owner(self, one: Journal, other: Journal) -> None:
        run, lease = await started(one)
        waiting = asyncio.ensure_future(one.signals(lease))
        await asyncio.sleep(0)
        sent = await other.signal(run.id, Signal("stop", by="a person"))
        assert await waiting == [sent]

    async def test_a_change_of_a_value_in_another_process_can_be_waited_for(self, one: Journal, other: Journal) -> None:
        for number in range(10):
            known, new = b"%d" % number if number else None, b"%d" % (number + 1)
            waiting = asyncio.ensure_future(one.next_value("n", "k", known))
            await asyncio.sleep(0)
            assert await other.swap_value("n", "k", known, new)
            assert await waiting == new

    async def test_processes_that_count_at_once_are_given_different_numbers(self, one: Journal, other: Journal) -> None:
        adding = [journal.add_to_counters({"n": 1, "m": 1}) for journal in (one, other) * 20]
        seen = await asyncio.gather(*adding)
        assert sorted(numbers["n"] for numbers in seen) == list(range(1, 41))
        assert await one.counters("n") == {"n": 40}

    async def test_a_run_that_another_process_begins_in_a_session_can_be_waited_for(
        self, one: Journal, other: Journal
    ) -> None:
        after = ""
        for number in range(10):
            session = "chat ü;,*" if number % 2 else "s"  # no name breaks a wake-up
            waiting = asyncio.ensure_future(one.next_run(session, "agent", after))
            await asyncio.sleep(0)
            await other.create(NewRun("agent", session="another"))
            begun = await other.create(NewRun("agent", session=session))
            async with asyncio.timeout(10.0):
                assert (await waiting).id == begun.id
            after = begun.id

    async def test_a_living_process_is_not_dead(self, one: Journal, other: Journal) -> None:
        assert not one.is_dead(other.process)

    async def test_I104_a_viewer_that_moves_between_processes_sees_each_entry_once(
        self, one: Journal, other: Journal
    ) -> None:
        """Its cursor is never ahead: a process that has not heard of an entry yet waits for it."""
        run, lease = await started(one)
        seen = [1]
        for number in range(50):
            await written(one, lease, [MessageChunk(f"{number} "), MessageChunk("x")])
            viewer = (other, one)[number % 2].tail(run.id, after=seen[-1])
            seen += [entry.seq for entry in await anext(viewer)]
        text = "".join(texts_of(await one.read(run.id)))
        watching = asyncio.ensure_future(everything(other.tail(run.id, after=seen[-1])))
        await one.seal(lease, RunFinished("completed", text))
        seen += [entry.seq for entry in await watching]
        assert seen == [*range(1, 103)]
        with pytest.raises(CursorAhead):
            await anext(other.tail(run.id, after=103))

    async def test_I104_viewers_at_the_process_that_lost_a_run_see_what_the_next_one_writes(
        self, open_shared: OpenShared
    ) -> None:
        """Also what that wrote before the first process has noticed: it hung, and hears of it all at once."""
        clock = WallClock(time.time())
        one, other = await open_shared(clock), await open_shared(clock)
        run, lease = await started(one)
        await written(one, lease, [MessageChunk("a")])
        watching = asyncio.ensure_future(everything(one.tail(run.id)))
        clock.now += 3600.0
        newer = await other.claim(run.id, "other")
        await written(other, newer, [MessageChunk("b")])
        await other.seal(newer, RunFinished("completed", "ab"))
        with pytest.raises((StaleEpoch, RunSealed)):
            await written(one, lease, [MessageChunk("late")])
        async with asyncio.timeout(10.0):
            assert texts_of(await watching) == ["a", "b"]
