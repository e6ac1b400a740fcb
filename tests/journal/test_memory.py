"""The memory journal keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tailrace.journal.memory import MemoryJournal
from tailrace.ports import Journal
from tailrace.testing.journal import JournalConformance, WallClock


class TestMemoryJournal(JournalConformance):
    @pytest.fixture
    async def journal(self, wall_clock: WallClock) -> AsyncIterator[Journal]:
        journal = MemoryJournal(clock=wall_clock)
        yield journal
        await journal.close()
