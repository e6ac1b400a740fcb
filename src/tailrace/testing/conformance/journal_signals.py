"""What every `Signals` must do; a part of `JournalConformance`."""

from __future__ import annotations

import asyncio

from tailrace.errors import (
    RunSealed,
    StaleEpoch,
)
from tailrace.events import (
    RunFinished,
)
from tailrace.ports import (
    Journal,
    Signal,
)
from tailrace.testing.conformance.sample_runs import (
    refused,
    started,
)
from tailrace.testing.conformance.wall_clock import WallClock


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
