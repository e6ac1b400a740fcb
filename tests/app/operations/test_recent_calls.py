"""How providers have answered lately."""

from __future__ import annotations

from tailrace.app.operations.recent_calls import WINDOW_S, RecentCallsLog, together
from tailrace.errors import Retryable, Unavailable
from tailrace.providers.call_listener import AttemptOutcome


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def ended(log: RecentCallsLog, error: Retryable | None = None, **fields: object) -> None:
    log.note(AttemptOutcome(1, "p", "m", error=error, **fields))  # type: ignore[arg-type]


def test_a_provider_that_asks_to_be_left_alone_is_benched_until_it_answers() -> None:
    clock = Clock()
    log = RecentCallsLog(clock=clock)
    ended(log, first_token_s=0.5)
    ended(log, Unavailable("slow down", status=429, retry_after_s=30.0))
    seen = log.summaries()["p"]
    assert (seen.calls, seen.failed, seen.first_token_s) == (2, 1, 0.5)
    assert (seen.problem, seen.problem_at, seen.wait_until) == ("429: slow down", 1000.0, 1030.0)
    assert seen.is_failing
    ended(log, first_token_s=0.7)
    seen = log.summaries()["p"]
    assert (seen.failed, seen.is_failing, seen.wait_until, seen.first_token_s) == (1, False, 0.0, 0.6)
    assert (seen.problem, seen.problem_at) == ("429: slow down", 1000.0), "the newest failure stays shown"


def test_only_the_last_minutes_count_and_what_was_interrupted_says_nothing() -> None:
    clock = Clock()
    log = RecentCallsLog(clock=clock)
    ended(log, Retryable("away"))
    clock.now += WINDOW_S + 1
    ended(log, interrupted=True)
    assert (log.summaries()["p"].calls, log.summaries()["p"].problem) == (0, "")


def test_what_several_processes_have_seen_is_one() -> None:
    first, second = RecentCallsLog(clock=Clock()), RecentCallsLog(clock=Clock())
    for seconds in (1.0, 2.0):
        ended(first, first_token_s=seconds)
    ended(second, first_token_s=9.0)
    ended(second, Retryable("away"))
    both = together([first.summaries()["p"], second.summaries()["p"]])
    assert (both.calls, both.failed, both.first_token_s, both.problem) == (4, 1, 2.0, "away")
    assert both.is_failing
