"""The deadlines of an attempt: how long each is, and the watch that keeps them, without a provider."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext as does_not_raise
from typing import Any

import pytest

from tailrace.config.sections import CallPolicy
from tailrace.errors import TimedOut
from tailrace.providers.deadlines import (
    STOOD_STILL_S,
    AttemptDeadlines,
    DeadlineWatch,
    Purpose,
    deadlines_of,
    idle_timeout_s,
)
from tailrace.testing.clock import driven


@pytest.mark.parametrize(
    ("seconds", "how"),
    [
        (180.0, {}),
        (180.0, {"context_tokens": 50_000}),
        (240.0, {"context_tokens": 50_001}),
        (300.0, {"context_tokens": 100_001}),
        (900.0, {"local": True}),
        (900.0, {"local": True, "context_tokens": 200_000}),
        (30.0, {"purpose": "step"}),
        (30.0, {"purpose": "step", "local": True, "context_tokens": 200_000}),
    ],
)
def test_how_long_a_stream_may_be_silent(seconds: float, how: dict[str, Any]) -> None:
    assert idle_timeout_s(None, **how) == seconds
    assert idle_timeout_s(7.0, **how) == 7.0


def test_a_local_endpoints_other_deadlines_grow_unless_they_were_set() -> None:
    policy = CallPolicy()
    assert deadlines_of(policy, purpose="turn", context_tokens=0, local=False) == AttemptDeadlines(
        120.0, 180.0, 300.0, 1800.0
    )
    assert deadlines_of(policy, purpose="turn", context_tokens=0, local=True) == AttemptDeadlines(
        900.0, 900.0, 900.0, 1800.0, idle_from_opening=False
    )
    assert deadlines_of(policy, purpose="step", context_tokens=0, local=True) == AttemptDeadlines(
        120.0, 30.0, 300.0, 1800.0, idle_from_opening=False
    )
    same_as_default = CallPolicy(first_token_timeout_s=120.0, progress_timeout_s=300.0)
    assert deadlines_of(same_as_default, purpose="turn", context_tokens=200_000, local=True) == AttemptDeadlines(
        120.0, 900.0, 300.0, 1800.0, idle_from_opening=False
    )
    chosen = CallPolicy(first_token_timeout_s=5.0, progress_timeout_s=None, total_timeout_s=None)
    assert deadlines_of(chosen, purpose="turn", context_tokens=0, local=True) == AttemptDeadlines(
        5.0, 900.0, None, None, idle_from_opening=False
    )


@pytest.mark.parametrize(("tokens", "seconds"), [(50_000, 120.0), (50_001, 240.0), (100_001, 300.0)])
@pytest.mark.parametrize("purpose", ["turn", "step"])
def test_E61_the_first_token_of_a_large_context_is_given_more_time(
    purpose: Purpose, tokens: int, seconds: float
) -> None:
    def first_token_s(policy: CallPolicy) -> float | None:
        return deadlines_of(policy, purpose=purpose, context_tokens=tokens, local=False).first_token_s

    assert first_token_s(CallPolicy()) == seconds
    assert first_token_s(CallPolicy(first_token_timeout_s=120.0)) == 120.0
    assert first_token_s(CallPolicy(first_token_timeout_s=None)) is None


@pytest.mark.parametrize(
    ("limits", "opened", "deadline", "after_s"),
    [
        (AttemptDeadlines(10, 5, 20, 100), True, "idle", 8),  # three seconds to the head of the response
        (AttemptDeadlines(10, 5, 20, 100), False, "first_token", 10),
        (AttemptDeadlines(7, 5, 20, 100), True, "first_token", 7),
    ],
)
@driven
async def test_E61_idle_counts_from_the_moment_the_stream_is_open(
    limits: AttemptDeadlines, opened: bool, deadline: str, after_s: float
) -> None:
    began = asyncio.get_running_loop().time()

    async def open_and_fall_silent() -> None:
        with DeadlineWatch(limits) as watch:
            await asyncio.sleep(3)
            if opened:
                watch.note_open()
            await asyncio.sleep(1000)

    with pytest.raises(TimedOut) as caught:
        await open_and_fall_silent()
    assert caught.value.deadline == deadline
    assert asyncio.get_running_loop().time() - began == pytest.approx(after_s)


async def beat(watch: DeadlineWatch, *, every_s: float, times: int, advanced: bool) -> None:
    for _ in range(times):
        await asyncio.sleep(every_s)
        watch.note_bytes(advanced=advanced)


@pytest.mark.parametrize(
    ("limits", "advanced", "deadline", "after_s"),
    [
        (AttemptDeadlines(10, 5, 20, 100), False, "first_token", 10),
        (AttemptDeadlines(10, 5, 20, 100), True, "total", 100),
        (AttemptDeadlines(None, 5, 20, 100), False, "progress", 20),
        (AttemptDeadlines(None, 1, 20, 100), False, "idle", 1),
        (AttemptDeadlines(None, None, None, 50), False, "total", 50),
    ],
)
@driven
async def test_each_deadline_by_itself(limits: AttemptDeadlines, advanced: bool, deadline: str, after_s: float) -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimedOut) as caught, DeadlineWatch(limits, provider="p") as watch:
        await beat(watch, every_s=2, times=1000, advanced=advanced)
    assert (caught.value.deadline, caught.value.provider) == (deadline, "p")
    assert asyncio.get_running_loop().time() - began == pytest.approx(after_s)


class SuspendedLoop(asyncio.SelectorEventLoop):
    """Its clock goes on while its process does not."""

    suspended_s = 0.0

    def time(self) -> float:
        return super().time() + self.suspended_s


@pytest.mark.parametrize("arrived", [True, False])
def test_L146_a_process_that_comes_back_right_at_a_deadline_reads_before_it_judges(arrived: bool) -> None:
    async def back_a_moment_after_the_deadline() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SuspendedLoop)
        with DeadlineWatch(AttemptDeadlines(first_token_s=5, idle_s=5, progress_s=5)) as watch:
            loop.suspended_s += 5.01
            for _ in range(5):  # the socket is read, its reader wakes, what it has read is decoded
                await asyncio.sleep(0)
            if arrived:
                watch.note_bytes(advanced=True)
            for _ in range(20):
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=SuspendedLoop) as runner, does_not_raise() if arrived else pytest.raises(TimedOut):
        runner.run(back_a_moment_after_the_deadline())


@pytest.mark.parametrize("arrived", [True, False])
def test_L146_a_process_that_was_suspended_reads_before_it_judges(arrived: bool) -> None:
    async def suspended_in_mid_answer() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SuspendedLoop)
        with DeadlineWatch(AttemptDeadlines(first_token_s=5, idle_s=5, progress_s=5)) as watch:
            watch.note_bytes(advanced=True)
            loop.suspended_s += 3600
            await asyncio.sleep(0)  # the timer is due before anything is read, as on uvloop
            await asyncio.sleep(0)
            if arrived:
                watch.note_bytes(advanced=True)
            else:
                loop.suspended_s += STOOD_STILL_S * 1.5
            for _ in range(20):
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=SuspendedLoop) as runner, does_not_raise() if arrived else pytest.raises(TimedOut):
        runner.run(suspended_in_mid_answer())


@driven
async def test_idle_counts_from_the_first_token_on_even_if_it_is_nearer() -> None:
    began = asyncio.get_running_loop().time()

    async def fall_silent() -> None:
        with DeadlineWatch(AttemptDeadlines(first_token_s=100, idle_s=5)) as watch:
            await beat(watch, every_s=50, times=1, advanced=True)
            await asyncio.sleep(1000)

    with pytest.raises(TimedOut) as caught:
        await fall_silent()
    assert caught.value.deadline == "idle"
    assert asyncio.get_running_loop().time() - began == pytest.approx(55)


@driven
async def test_a_watch_without_deadlines_never_interrupts() -> None:
    with DeadlineWatch(AttemptDeadlines()) as watch:
        await beat(watch, every_s=1e6, times=3, advanced=False)


@driven
async def test_what_lengthens_a_deadline_is_asked_once_when_it_is_about_to_pass() -> None:
    began, asked = asyncio.get_running_loop().time(), list[float]()

    class LargeContext:
        def is_thinking(self) -> bool:
            return False

        def relayed_at(self) -> float:
            return 0.0

        def lengthened(self, deadlines: AttemptDeadlines) -> AttemptDeadlines:
            asked.append(asyncio.get_running_loop().time() - began)
            return AttemptDeadlines(first_token_s=300, total_s=deadlines.total_s)

    async def wait_for_a_token() -> None:
        with DeadlineWatch(AttemptDeadlines(first_token_s=120, total_s=1800), leniency=LargeContext()):
            await asyncio.sleep(1000)

    with pytest.raises(TimedOut, match="no first token within 300 s"):
        await wait_for_a_token()
    assert asyncio.get_running_loop().time() - began == pytest.approx(300)
    assert asked == [pytest.approx(120)]


@pytest.mark.parametrize("thinks", [False, True])
@driven
async def test_whether_the_model_thinks_is_asked_once_for_a_verdict(thinks: bool) -> None:
    """The answer so far is rebuilt for it, however often the loop looks for bytes before the verdict."""
    began, asked = asyncio.get_running_loop().time(), list[float]()

    class Thinker:
        def is_thinking(self) -> bool:
            asked.append(asyncio.get_running_loop().time() - began)
            return thinks and len(asked) == 1

        def relayed_at(self) -> float:
            return 0.0

        def lengthened(self, deadlines: AttemptDeadlines) -> AttemptDeadlines:
            return deadlines

    with pytest.raises(TimedOut) as caught, DeadlineWatch(AttemptDeadlines(progress_s=20), leniency=Thinker()) as watch:
        await beat(watch, every_s=3, times=1000, advanced=False)
    assert caught.value.deadline == "progress"
    assert asked == [pytest.approx(at) for at in ((20, 38) if thinks else (20,))]


@driven
async def test_a_stream_that_goes_on_sets_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def counted(when: float, *arguments: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *arguments, **more)

    with DeadlineWatch(deadlines_of(CallPolicy(), purpose="turn", context_tokens=0, local=False)) as watch:
        monkeypatch.setattr(loop, "call_at", counted)
        watch.note_open()
        for _ in range(100):
            watch.note_bytes(advanced=True)
        assert timers == []


@driven
async def test_nested_cancels_are_counted_right() -> None:
    """An outer time-out that passes while ours is passing is not swallowed, nor is its count left behind."""

    async def both() -> None:
        async with asyncio.timeout(5):
            with DeadlineWatch(AttemptDeadlines(total_s=5.0)):
                try:
                    await asyncio.sleep(100)
                finally:
                    await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        await both()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
