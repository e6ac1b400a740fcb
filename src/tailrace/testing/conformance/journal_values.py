"""What every journal must do with small state; a part of `JournalConformance`."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.errors import CorruptLog
from tailrace.journal.key_values import KeyValues
from tailrace.ports import Journal
from tailrace.testing.conformance.journal_counters import CountersConformance


class KeyValuesConformance(CountersConformance):
    """Small state by namespace and key."""

    async def test_a_value_is_swapped_only_where_it_is_what_the_caller_saw(self, journal: Journal) -> None:
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

    async def test_a_journal_that_can_be_written_says_nothing(self, journal: Journal) -> None:
        await journal.check()

    async def test_values_are_listed_by_namespace(self, journal: Journal) -> None:
        for namespace, key in (("a", "x"), ("a", "y"), ("b", "x")):
            assert await journal.swap_value(namespace, key, None, f"{namespace}{key}".encode())
        assert await journal.list_values("a") == {"x": b"ax", "y": b"ay"}
        assert await journal.list_values("b") == {"x": b"bx"}
        assert await journal.list_values("c") == {}

    async def test_updates_at_once_lose_nothing(self, journal: Journal) -> None:
        counter = KeyValues(journal, "n", int)
        await asyncio.gather(*(counter.update("k", lambda known: (known or 0) + 1) for _ in range(20)))
        assert await counter.get("k") == 20
        assert await counter.update("k", lambda _: None) is None
        assert await counter.all() == {}

    async def test_a_change_of_a_value_can_be_waited_for(self, journal: Journal) -> None:
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

    async def test_this_process_is_not_dead(self, journal: Journal) -> None:
        assert not journal.is_dead(journal.process)
        assert not journal.is_dead("")
        assert not journal.is_dead("never heard of")

    async def test_a_value_of_another_type_is_said(self, journal: Journal) -> None:
        await journal.swap_value("n", "k", None, b'"text"')
        with pytest.raises(CorruptLog, match="n: the value of 'k'"):
            await KeyValues(journal, "n", int).get("k")
