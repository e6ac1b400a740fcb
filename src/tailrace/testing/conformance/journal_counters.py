"""What every journal must do with numbers that processes share; a part of `JournalConformance`."""

from __future__ import annotations

import asyncio

from tailrace.ports import Journal


class CountersConformance:
    """Numbers by name."""

    async def test_amounts_are_added_and_the_new_numbers_returned(self, journal: Journal) -> None:
        assert await journal.add_to_counters({"a/x": 2, "b": 0.5}) == {"a/x": 2, "b": 0.5}
        assert await journal.add_to_counters({"a/x": 1.5, "a/y": 1}) == {"a/x": 3.5, "a/y": 1}
        assert await journal.add_to_counters({"a/x": 0, "a/z": 0}) == {"a/x": 3.5, "a/z": 0}

    async def test_counters_are_listed_by_the_beginning_of_their_names(self, journal: Journal) -> None:
        await journal.add_to_counters({"a/x": 1, "a/ä 日": 2, "a0": 3, "ab": 4, "b": 5})
        assert await journal.counters("a/") == {"a/x": 1, "a/ä 日": 2}
        assert await journal.counters("c") == {}

    async def test_counters_are_listed_from_a_name_on(self, journal: Journal) -> None:
        await journal.add_to_counters({"day/1/é": 1, "day/2": 2, "day/3/é": 3, "days": 4})
        assert await journal.counters("day/", "day/2") == {"day/2": 2, "day/3/é": 3}
        assert await journal.counters("day/", "a") == await journal.counters("day/")
        assert await journal.counters("day/", "e") == {}

    async def test_additions_at_once_are_all_counted_and_each_sees_another_number(self, journal: Journal) -> None:
        seen = await asyncio.gather(*(journal.add_to_counters({"n": 1, f"own/{index}": 1}) for index in range(40)))
        assert sorted(numbers["n"] for numbers in seen) == list(range(1, 41))

    async def test_old_ones_are_removed_and_others_are_not(self, journal: Journal) -> None:
        await journal.add_to_counters({"rate/k/1": 1, "rate/k/2": 1, "rate/k/3": 1, "rate/l/1": 1, "raste": 1})
        await journal.remove_counters("rate/k/", "rate/k/3")
        assert await journal.counters("ra") == {"rate/k/3": 1, "rate/l/1": 1, "raste": 1}
        await journal.remove_counters("rate/k/", "z")
        assert await journal.counters("ra") == {"rate/l/1": 1, "raste": 1}
