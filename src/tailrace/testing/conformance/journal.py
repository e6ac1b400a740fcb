"""What every journal must do: subclass `JournalConformance`, give it a `journal` fixture, run it under pytest.

The suite of one port (`journal_runs`, `journal_log`, `journal_signals`, `journal_state`) can be run by itself.

    class TestMyJournal(JournalConformance):
        @pytest.fixture
        async def journal(self, wall_clock):
            journal = await MyJournal.open(..., clock=wall_clock)
            yield journal
            await journal.close()

The suite drives `wall_clock` and never sleeps. It needs pytest and pytest-asyncio in auto mode.
"""

from __future__ import annotations

import pytest

from tailrace.ports import Journal
from tailrace.testing.conformance.journal_log import LogTailConformance
from tailrace.testing.conformance.journal_runs import RunStoreConformance
from tailrace.testing.conformance.journal_sessions import SessionsConformance
from tailrace.testing.conformance.journal_signals import SignalsConformance
from tailrace.testing.conformance.journal_state import SmallStateConformance
from tailrace.testing.conformance.wall_clock import WallClock


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
