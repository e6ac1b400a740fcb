"""Calls through random bad days: always one answer or one typed error, and what was shown is what it says."""

from __future__ import annotations

import asyncio
import random

import pytest

from providers.faulty_calls import DIALECTS, Bench, Told, faulty
from tailrace.errors import ProviderError
from tailrace.messages import AnyDelta, TextDelta
from tailrace.providers.attempt import Route
from tailrace.providers.call import CallResult
from tailrace.providers.call_listener import AttemptOutcome, Verdict
from tailrace.testing.clock import driven

DAYS = 150
POLICIES: tuple[Verdict, ...] = ("continue", "restart", "keep")
OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."
FAULTS = (
    *("status-429", "status-429-after-3", "status-500", "status-503-html", "status-529", "status-401", "html", "drop"),
    *("silence", "ok+slow-headers@500", "only-comments", "no-streaming", "ok+json", "ok", "ok+crlf+drip@17", "ok+gzip"),
    *("error-overloaded", "error-server", "error-invalid", "first-error-rate-limit", "ok+no-ending", "ok+glued"),
)


def a_fault(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return chance.choice(FAULTS)
    kind = chance.choice(("cut", "reset", "end", "stall", "pings"))
    return f"ok+{kind}@{chance.randrange(0, 100)}%"


class Standing(Told):
    """What a viewer that can redraw has on its screen."""

    def __init__(self, on_cut: Verdict) -> None:
        super().__init__(on_cut)
        self._shown: dict[int, str] = {}

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        super().attempt_started(number, provider, model)
        self._shown[number] = ""

    def deltas(self, deltas: list[AnyDelta]) -> None:
        super().deltas(deltas)
        self._shown[max(self._shown)] += "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))

    def attempt_discarded(self, number: int, reason: str) -> None:
        super().attempt_discarded(number, reason)
        assert reason
        del self._shown[number]

    @property
    def screen(self) -> str:
        return "".join(self._shown.values())


def check(outcome: CallResult | ProviderError, told: Standing, attempts: list[AttemptOutcome]) -> None:
    assert [attempt.number for attempt in attempts] == list(range(1, len(attempts) + 1))
    if isinstance(outcome, ProviderError):
        assert told.screen.strip() == ""
        assert outcome.tried
        return
    text = outcome.completion.text
    assert outcome.attempts == tuple(attempts)
    if outcome.attempts[-1].streamed or told.screen:
        assert told.screen == text
    assert outcome.completion.tool_calls == ()
    if outcome.incomplete is None:
        assert text == OK
        assert attempts[-1].error is None
    else:
        assert OK.startswith(text)
        assert all(attempt.error is not None for attempt in attempts)


async def one_day(bench: Bench, chance: random.Random) -> str:
    bench.server.extend(*(a_fault(chance) for _ in range(chance.randrange(0, 8))))
    routes: list[Route] = [
        bench.route(chance.choice(DIALECTS), f"p{number}", max_attempts=chance.randrange(1, 4))
        for number in range(chance.randrange(1, 4))
    ]
    told = Standing(chance.choice(POLICIES))
    outcome: CallResult | ProviderError
    try:
        async with asyncio.timeout(20_000):
            outcome = await bench.call(
                *routes, told=told, purpose=chance.choice(("turn", "step")), budget_s=chance.choice((None, None, 400.0))
            )
    except ProviderError as exc:
        outcome = exc
    check(outcome, told, told.attempts)
    assert len(told.attempts) <= sum(route.policy.max_attempts for route in routes)
    if isinstance(outcome, ProviderError):
        return "raised"
    return "incomplete" if outcome.incomplete else "complete"


@pytest.mark.parametrize("seed", range(4))
@driven
async def test_a_bad_day(seed: int) -> None:
    chance = random.Random(seed)
    outcomes = []
    for _ in range(DAYS):
        async with faulty() as bench:
            outcomes.append(await one_day(bench, chance))
    assert {"complete", "incomplete", "raised"} == set(outcomes)
