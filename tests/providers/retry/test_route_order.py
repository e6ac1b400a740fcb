"""Who is asked next after a failure, and when."""

from __future__ import annotations

import random

import pytest

from tailrace.config.sections import CallPolicy
from tailrace.errors import ProviderError, Rejected, Unavailable
from tailrace.providers.retry.route_order import RouteOrder


class NoJitter(random.Random):
    def random(self) -> float:
        return 0.0


LATER = Unavailable("not now", status=429, retry_after_s=20.0)
BROKEN = Unavailable("broken", status=500)
NEVER = Rejected("no", status=401)


@pytest.mark.parametrize(
    ("failures", "order"),
    [
        ([BROKEN] * 6, [0, 0, 1, 1, 2, 2]),
        ([NEVER] * 3, [0, 1, 2]),
        ([LATER] * 6, [0, 1, 2, 0, 1, 2]),
        ([LATER, BROKEN, LATER, BROKEN, LATER, BROKEN], [0, 1, 1, 2, 2, 0]),
        ([BROKEN, LATER, NEVER, LATER, LATER], [0, 0, 1, 2, 2]),
    ],
)
def test_who_is_asked_next(failures: list[ProviderError], order: list[int]) -> None:
    itinerary = RouteOrder([CallPolicy(max_attempts=2)] * 3, NoJitter())
    now, asked = 0.0, []
    for failure in failures:
        leg = itinerary.next(now)
        assert leg is not None
        asked.append(leg[0])
        now += leg[1]
        itinerary.failed(failure, now)
    assert asked == order
    assert itinerary.next(now) is None


def test_nobody_waits_while_somebody_is_free() -> None:
    itinerary = RouteOrder([CallPolicy()] * 2, random.Random(1))
    assert itinerary.next(0.0) == (0, 0.0)
    itinerary.failed(LATER, 0.0)
    assert itinerary.next(0.0) == (1, 0.0)
    itinerary.failed(LATER, 0.0)
    leg = itinerary.next(5.0)
    assert leg is not None
    assert 15.0 <= leg[1] <= 17.0


def test_whether_a_stand_in_is_left() -> None:
    assert not RouteOrder([CallPolicy()], NoJitter()).has_other_route
    order = RouteOrder([CallPolicy(max_attempts=2)] * 2, NoJitter())
    left = []
    for failure in (BROKEN, BROKEN, NEVER):
        order.next(0.0)
        left.append(order.has_other_route)
        order.failed(failure, 0.0)
    assert left == [True, True, False]


def test_the_order_prints_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    def ask() -> None:
        order = RouteOrder([CallPolicy(max_attempts=2)] * 2, NoJitter())
        for failure in (LATER, NEVER, BROKEN):
            order.next(0.0)
            order.failed(failure, 0.0)
        assert order.next(0.0) is None

    with caplog.at_level("INFO", "tailrace.providers"):
        ask()
    assert not caplog.messages
    with caplog.at_level("DEBUG", "tailrace.providers"):
        ask()
    assert caplog.messages == [
        "begin -> route 0 in 0 s",
        "route 0: Unavailable 429 -> route 1 in 0 s",
        "route 1: Rejected 401, closed -> route 0 in 20 s",
        "route 0: Unavailable 500, closed -> no route left",
    ]
