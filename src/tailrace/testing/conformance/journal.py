"""What every journal must do: subclass `JournalConformance`, give it a `journal` fixture, run it under pytest.

The suite of one port (`RunStoreConformance` and so on) can be run by itself.

    class TestMyJournal(JournalConformance):
        @pytest.fixture
        async def journal(self, wall_clock):
            journal = await MyJournal.open(..., clock=wall_clock)
            yield journal
            await journal.close()

The suite drives `wall_clock` and never sleeps. It needs pytest and pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio

import pytest

from tailrace.errors import CorruptLog, RunSealed, StaleEpoch
from tailrace.events import RunFinished
from tailrace.journal.key_values import KeyValues
from tailrace.ports import Journal, Signal, SmallState
from tailrace.testing.conformance.journal_log import LogTailConformance
from tailrace.testing.conformance.journal_runs import RunStoreConformance, SessionsConformance
from tailrace.testing.conformance.sample_runs import refused, started
from tailrace.testing.conformance.wall_clock import WallClock


class SmallStateConformance:
    """Values by namespace and key, and counters by name. Needs a fixture `journal` alone."""

    async def test_a_value_is_swapped_only_where_it_is_what_the_caller_saw(self, journal: SmallState) -> None:
        assert await journal.get_value("n", "k") is None
        assert await journal.swap_value("n", "k", None, b"1")
        assert not await journal.swap_value("n", "k", None, b"2")
        assert not await journal.swap_value("n", "k", b"0", b"2")
        assert await journal.get_value("n", "k") == b"1"
        assert await journal.swap_value("n", "k", b"1", b"2")
        assert await journal.get_value("n", "k") == b"2"
        assert not await journal.swap_value("n", "k", b"1", None)
        assert await journal.swap_value("n", "k", b"2", None)
        assert await journal.get_value("n", "k") is None

    async def test_values_are_listed_by_namespace(self, journal: SmallState) -> None:
        for namespace, key in (("a", "x"), ("a", "y"), ("b", "x")):
            assert await journal.swap_value(namespace, key, None, f"{namespace}{key}".encode())
        assert await journal.list_values("a") == {"x": b"ax", "y": b"ay"}
        assert await journal.list_values("b") == {"x": b"bx"}
        assert await journal.list_values("c") == {}

    async def test_updates_at_once_lose_nothing(self, journal: SmallState) -> None:
        counter = KeyValues(journal, "n", int)
        await asyncio.gather(*(counter.update("k", lambda known: (known or 0) + 1) for _ in range(20)))
        assert await counter.get("k") == 20
        assert await counter.update("k", lambda _: None) is None
        assert await counter.all() == {}

    async def test_a_change_of_a_value_can_be_waited_for(self, journal: SmallState) -> None:
        waiting = asyncio.ensure_future(journal.next_value("n", "k", None))
        await asyncio.sleep(0)
        await journal.swap_value("n", "other", None, b"0")
        await journal.swap_value("n", "k", None, b"1")
        assert await waiting == b"1"
        assert await journal.next_value("n", "k", None) == b"1"  # it has changed already
        waiting = asyncio.ensure_future(journal.next_value("n", "k", b"1"))
        await asyncio.sleep(0)
        await journal.swap_value("n", "k", b"1", None)
        assert await waiting is None

    async def test_a_value_of_another_type_is_said(self, journal: SmallState) -> None:
        await journal.swap_value("n", "k", None, b'"text"')
        with pytest.raises(CorruptLog, match="n: the value of 'k'"):
            await KeyValues(journal, "n", int).get("k")

    async def test_amounts_are_added_and_the_new_numbers_returned(self, journal: SmallState) -> None:
        assert await journal.add_to_counters({"a/x": 2, "b": 0.5}) == {"a/x": 2, "b": 0.5}
        assert await journal.add_to_counters({"a/x": 1.5, "a/y": 1}) == {"a/x": 3.5, "a/y": 1}
        assert await journal.add_to_counters({"a/x": 0, "a/z": 0}) == {"a/x": 3.5, "a/z": 0}

    async def test_counters_are_listed_by_the_beginning_of_their_names(self, journal: SmallState) -> None:
        await journal.add_to_counters({"a/x": 1, "a/ä 日": 2, "a0": 3, "ab": 4, "b": 5})
        assert await journal.counters("a/") == {"a/x": 1, "a/ä 日": 2}
        assert await journal.counters("c") == {}

    async def test_counters_are_listed_from_a_name_on(self, journal: SmallState) -> None:
        await journal.add_to_counters({"day/1/é": 1, "day/2": 2, "day/3/é": 3, "days": 4})
        assert await journal.counters("day/", "day/2") == {"day/2": 2, "day/3/é": 3}
        assert await journal.counters("day/", "a") == await journal.counters("day/")
        assert await journal.counters("day/", "e") == {}

    async def test_additions_at_once_are_all_counted_and_each_sees_another_number(self, journal: SmallState) -> None:
        seen = await asyncio.gather(*(journal.add_to_counters({"n": 1, f"own/{index}": 1}) for index in range(40)))
        assert sorted(numbers["n"] for numbers in seen) == list(range(1, 41))

    async def test_old_ones_are_removed_and_others_are_not(self, journal: SmallState) -> None:
        await journal.add_to_counters({"rate/k/1": 1, "rate/k/2": 1, "rate/k/3": 1, "rate/l/1": 1, "raste": 1})
        await journal.remove_counters("rate/k/", "rate/k/3")
        assert await journal.counters("ra") == {"rate/k/3": 1, "rate/l/1": 1, "raste": 1}
        await journal.remove_counters("rate/k/", "z")
        assert await journal.counters("ra") == {"rate/l/1": 1, "raste": 1}


class SignalsConformance:
    """Messages to the owner of a run."""

    async def test_a_signal_reaches_the_owner_of_the_run(self, journal: Journal) -> None:
        run, lease = await started(journal)
        assert await journal.kept_signals(lease) == []  # without a wait
        waiting = asyncio.ensure_future(journal.signals(lease))
        await asyncio.sleep(0)
        sent = await journal.signal(run.id, Signal("stop", {"why": "enough"}, by="a person"))
        assert await waiting == [sent]
        assert sent.id > 0
        more = await journal.signal(run.id, Signal("go"))
        assert await journal.signals(lease, after=sent.id) == [more]
        await journal.release(lease)
        await refused(StaleEpoch, journal.signals(lease), journal.kept_signals(lease))
        lease = await journal.claim(run.id, "other")
        assert await journal.signals(lease) == await journal.kept_signals(lease) == [sent, more]

    async def test_a_wait_for_signals_ends_with_the_lease_or_the_run(
        self, journal: Journal, wall_clock: WallClock
    ) -> None:
        run, lease = await started(journal)
        fenced = asyncio.ensure_future(journal.signals(lease))
        await asyncio.sleep(0)
        wall_clock.now += 31.0
        lease = await journal.claim(run.id, "other")
        await refused(StaleEpoch, fenced)
        ended = asyncio.ensure_future(journal.signals(lease))
        await asyncio.sleep(0)
        await journal.seal(lease, RunFinished("stopped"))
        await refused(RunSealed, ended, journal.signal(run.id, Signal("stop")), journal.kept_signals(lease))


class JournalConformance(
    RunStoreConformance, SessionsConformance, LogTailConformance, SignalsConformance, SmallStateConformance
):
    """Needs a fixture `journal`: an empty one that takes its time from the fixture `wall_clock`."""

    @pytest.fixture
    def wall_clock(self) -> WallClock:
        return WallClock()

    async def test_a_journal_that_can_be_written_says_nothing(self, journal: Journal) -> None:
        await journal.check()

    async def test_this_process_is_not_dead(self, journal: Journal) -> None:
        assert not journal.is_dead(journal.process)
        assert not journal.is_dead("")
        assert not journal.is_dead("never heard of")
