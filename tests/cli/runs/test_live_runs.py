"""What `tailrace top` finds in a journal, again and again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tailrace.cli.runs.live_runs import LiveRuns, ProviderHealth
from tailrace.events import (
    AnyEvent,
    ApprovalAsked,
    AttemptDiscarded,
    AttemptStarted,
    MessageChunk,
    MessageRecorded,
    RunFailure,
    RunFinished,
)
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import assistant, user
from tailrace.ports import Lease, NewRun
from tailrace.testing.conformance.wall_clock import WallClock


class Stage:
    def __init__(self) -> None:
        self.clock = WallClock()
        self.journal = MemoryJournal(clock=self.clock)
        self.live = LiveRuns(self.journal)

    async def start(self, question: str, *, lease_s: float = 30.0) -> Lease:
        given = {"message": msgspec.to_builtins(user(question))}
        _, lease = await self.journal.start(NewRun("agent", given, "fake/small"), "me", lease_s=lease_s)
        assert lease is not None
        self.clock.now += 1.0
        return lease

    async def write(self, lease: Lease, *events: AnyEvent) -> None:
        self.journal.append(lease, events)
        await self.journal.commit(lease)

    async def states(self) -> list[tuple[str, str]]:
        return [(each.overview.question, each.overview.state) for each in (await self.live.look(self.clock.now)).runs]


async def test_live_runs_come_first_and_each_says_how_it_stands() -> None:
    stage = Stage()
    ended, dead, parked = (
        await stage.start("ended"),
        await stage.start("dead", lease_s=2.0),
        await stage.start("parked"),
    )
    await stage.journal.seal(ended, RunFinished("completed"))
    await stage.journal.park(parked, RunFailure("crash_loop", "it kept dying"))
    asking = await stage.start("asking")
    await stage.write(asking, ApprovalAsked("a", "terminal", "rm x", "d"))
    await stage.start("running")
    await stage.journal.create(NewRun("delivery"))
    assert await stage.states() == [
        ("running", "running"),
        ("asking", "asking"),
        ("parked", "parked"),
        ("dead", "orphaned"),
        ("ended", "completed"),
    ]
    await stage.journal.renew(dead)
    await stage.journal.seal(asking, RunFinished("stopped"))
    assert (await stage.states())[:3] == [("running", "running"), ("parked", "parked"), ("dead", "running")]


async def test_tokens_per_second_are_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    lease = await stage.start("fast")
    await stage.write(lease, MessageChunk("x" * 4000))
    reads: list[int] = []
    read = stage.journal.read

    async def counted(run_id: str, *, after: int = 0, limit: int | None = None) -> object:
        reads.append(after)
        return await read(run_id, after=after, limit=limit)

    monkeypatch.setattr(stage.journal, "read", counted)
    rates: list[float | None] = []
    for chars in (0, 400, 400, 400, 0, 0, 0):
        if chars:
            await stage.write(lease, MessageChunk("x" * chars))
        (row,) = (await stage.live.look(stage.clock.now)).runs
        rates.append(row.tokens_per_s)
        stage.clock.now += 1.0
    assert rates == [None, 100.0, 100.0, 100.0, pytest.approx(200 / 3), pytest.approx(100 / 3), None]
    assert reads == [0, 2, 3, 4], "nothing is read twice"


def _failed(reason: str) -> Sequence[AnyEvent]:
    return (AttemptStarted("fake", "small"), AttemptStarted("back", "big", previous_failure=reason))


async def test_providers_are_judged_by_the_newest_runs() -> None:
    stage = Stage()
    first = await stage.start("a")
    await stage.write(first, *_failed("HTTP 500"), MessageRecorded(assistant("ok")))
    await stage.journal.seal(first, RunFinished("completed"))
    second = await stage.start("b")
    cut = AttemptStarted("back", "big", previous_failure="cut")
    await stage.write(second, *_failed("HTTP 503"), AttemptDiscarded("cut"), cut)
    await stage.journal.seal(second, RunFinished("failed", error=RunFailure("retryable", "gone")))
    look = await stage.live.look(stage.clock.now)
    assert look.providers == (
        ProviderHealth("back", attempts=3, failures=2, last_failure="gone"),
        ProviderHealth("fake", attempts=2, failures=2, last_failure="HTTP 503"),
    )
