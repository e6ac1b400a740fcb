"""Deadlines of many things: none is early, none is more than a tick late, none is for what has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tailrace.server.http.timer_wheel import NOT_TIMED, TimerWheel

TICK_S = 0.5


class DrivenLoop(asyncio.SelectorEventLoop):
    """Its clock goes on to the next timer as soon as nothing else is to be done."""

    now = 100.0

    def time(self) -> float:
        return self.now

    def run_timers(self) -> None:
        while timers := [timer for timer in self._scheduled if not timer.cancelled()]:  # type: ignore[attr-defined]
            self.now = max(self.now, min(timer.when() for timer in timers))
            self.call_soon(self.stop)
            self.run_forever()


class Thing:
    """Notes when it is called; has a deadline again after each of `pauses`."""

    def __init__(self, loop: DrivenLoop, pauses: list[float]) -> None:
        self.tick = NOT_TIMED
        self.called: list[float] = []
        self.due: list[float] = []
        self._loop, self._pauses = loop, iter(pauses)

    def on_deadline(self, now: float) -> float | None:
        assert now == self._loop.now
        self.called.append(now)
        return self.next_due()

    def next_due(self) -> float | None:
        pause = next(self._pauses, None)
        if pause is None:
            return None
        self.due.append(self._loop.now + pause)
        return self.due[-1]


def driven() -> Iterator[DrivenLoop]:
    loop = DrivenLoop()
    try:
        yield loop
    finally:
        loop.close()


@given(st.lists(st.lists(st.floats(0, 20), min_size=1, max_size=4), max_size=6))
def test_a_deadline_is_never_early_and_at_most_a_tick_late(pauses: list[list[float]]) -> None:
    for loop in driven():
        wheel = TimerWheel(loop, tick_s=TICK_S)
        things = [Thing(loop, each) for each in pauses]
        for thing in things:
            due = thing.next_due()
            assert due is not None
            wheel.add(thing, due)
        loop.run_timers()
        for thing, each in zip(things, pauses, strict=True):
            assert len(thing.called) == len(each)
            assert all(0 <= at - due <= TICK_S + 1e-6 for at, due in zip(thing.called, thing.due, strict=True))


def test_what_has_left_is_not_called() -> None:
    for loop in driven():
        wheel = TimerWheel(loop, tick_s=TICK_S)
        stays, leaves = Thing(loop, []), Thing(loop, [])
        wheel.add(stays, 101.0)
        wheel.add(leaves, 101.0)
        wheel.discard(leaves)
        wheel.discard(leaves)
        loop.run_timers()
        assert (len(stays.called), leaves.called) == (1, [])
        wheel.add(stays, loop.now + 1)
        wheel.close()
        loop.run_timers()
        assert len(stays.called) == 1


def test_one_that_fails_keeps_no_other_from_its_deadline() -> None:
    class Broken(Thing):
        def on_deadline(self, now: float) -> float | None:
            super().on_deadline(now)
            raise ValueError("broken")

    reported: list[BaseException] = []
    for loop in driven():
        wheel = TimerWheel(loop, tick_s=TICK_S)
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        broken = [Broken(loop, []) for _ in range(3)]
        others = [Thing(loop, [1.0]) for _ in range(3)]
        later = Thing(loop, [])
        for thing in (*broken, *others):
            wheel.add(thing, 101.0)
        wheel.add(later, 103.0)
        loop.run_timers()
        assert [len(thing.called) for thing in (*broken, *others, later)] == [1, 1, 1, 2, 2, 2, 1]
    assert [str(error) for error in reported] == ["broken"] * 3
