"""Answers whose tokens their provider has not counted are estimated: cut ones, left ones, and those of a provider that
never counts."""

from __future__ import annotations

import asyncio

import pytest

from providers.faulty_calls import ASK, DIALECTS, Told, faulty
from providers.test_reattach import OK, Kept, kept_route
from tailrace.messages import Dialect, Usage
from tailrace.providers.attempt import Route
from tailrace.wire.token_estimate import input_tokens


async def test_a_provider_that_never_counts_is_estimated() -> None:
    async with faulty() as bench:
        provider = bench.provider(extra_body={"stream_options": {}})
        result = await bench.call(Route(provider, "ok"), told=(told := Told()))
    (attempt,) = told.attempts
    asked, answered = input_tokens(ASK), len(OK) // 4
    assert attempt.usage == result.usage == Usage(asked, answered, estimated_tokens=asked + answered)
    assert result.completion.usage == Usage(), "what the client is told is the provider's own"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_cut_attempt_is_counted_beside_the_one_that_follows(dialect: Dialect) -> None:
    async with faulty("ok+cut@70%", "ok") as bench:
        await bench.call(bench.route(dialect, backoff_s=0.001), told=(told := Told()))
    cut, whole = (attempt.usage for attempt in told.attempts)
    assert cut.output_tokens > 0 < cut.estimated_tokens
    assert (cut.input_tokens > 0, whole.estimated_tokens) == (True, 0)


async def test_a_count_that_came_before_the_cut_is_the_providers() -> None:
    async with faulty("ok+cut@99%", "ok") as bench:
        await bench.call(bench.route("anthropic", backoff_s=0.001), told=(told := Told()))
    assert [attempt.error is None for attempt in told.attempts] == [False, True]
    assert [attempt.usage.estimated_tokens for attempt in told.attempts] == [0] * len(told.attempts)
    assert all(attempt.usage.output_tokens for attempt in told.attempts)


async def test_an_attempt_that_was_refused_costs_nothing() -> None:
    async with faulty("status-503", "ok") as bench:
        await bench.call(bench.route(backoff_s=0.001), told=(told := Told()))
    assert told.attempts[0].usage == Usage()


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_cancelled_attempt_counts_its_answer_unless_a_later_one_reattaches(goes_on: bool) -> None:
    async with faulty("ok+stall@90%") as bench:
        told = Kept()
        told.goes_on = goes_on
        task = asyncio.create_task(bench.call(kept_route(bench), told=told))
        while len(told.text) < 40:
            told.heard.clear()
            await told.heard.wait()
        task.cancel()
        await asyncio.wait([task])
    (attempt,) = told.attempts
    if goes_on:
        assert attempt.usage == Usage()
    else:
        assert attempt.usage.output_tokens >= 10
        assert attempt.usage.input_tokens == input_tokens(ASK)
