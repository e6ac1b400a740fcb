"""Interrupting a call: the provider's connection is gone within 100 ms, whatever it was doing, and nothing leaks."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from pathlib import Path

import pytest

from providers.faulty_calls import DIALECTS, Bench, Told, faulty
from tailrace.errors import TimedOut
from tailrace.messages import Dialect
from tailrace.providers.attempt import Route
from tailrace.testing.clock import driven

CANCELS = 750 * int(os.environ.get("TAILRACE_SOAK", "1"))  # what leaks one file in a hundred is seen
AT_ONCE = 250
PROMPT_S = 0.1


async def interrupted(bench: Bench, route: Route, told: Told, *, after: asyncio.Event | None = None) -> float:
    """Seconds from the cancel until the provider saw the client leave."""
    task = asyncio.create_task(bench.call(route, told=told))
    request = await bench.server.request(len(bench.server.requests))
    if after is not None:
        await after.wait()
    cancelled_at = asyncio.get_running_loop().time()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(request.over.wait(), 30)
    assert request.disconnected_at is not None, "the server went on to the end"
    return request.disconnected_at - cancelled_at


@driven
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("scenario", ["silence", "ok+stall@0", "ok+slow-headers@60", "only-comments"])
async def test_F68_before_the_first_token(dialect: Dialect, scenario: str) -> None:
    async with faulty() as bench:
        told = Told()
        assert await interrupted(bench, bench.route(dialect, model=scenario), told) < PROMPT_S
        assert told.attempts[0].interrupted


@driven
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("scenario", ["long+stall@50%", "long+pings@50%", "long+pace@0.001", "tools+stall@70%"])
async def test_F68_in_the_middle_and_while_it_is_silent(dialect: Dialect, scenario: str) -> None:
    async with faulty() as bench:
        told = Told()
        assert await interrupted(bench, bench.route(dialect, model=scenario), told, after=told.heard) < PROMPT_S
        assert told.attempts[0].interrupted


async def test_while_it_waits_for_the_next_attempt() -> None:
    async with faulty() as bench:
        told = Told()
        task = asyncio.create_task(bench.call(bench.route(model="status-429-after-60"), told=told))
        await bench.server.request()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(bench.server.requests) == 1


@pytest.mark.parametrize("scenario", ["silence", "long+stall@50%", "status-500+stall@3"])
async def test_F71_cancelled_twice_is_still_closed(scenario: str) -> None:
    async with faulty() as bench:
        task = asyncio.create_task(bench.call(bench.route(model=scenario)))
        request = await bench.server.request()
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(request.over.wait(), 30)
        assert request.disconnected_at is not None


async def test_a_cancel_is_not_taken_for_a_deadline() -> None:
    """Both at once: the caller's cancel wins, or a task group would lose it."""
    async with faulty() as bench:
        route = bench.route(model="silence", first_token_timeout_s=0.05, max_attempts=1)

        async def both() -> None:
            async with asyncio.timeout(0.05):
                await bench.call(route)

        for _ in range(20):
            with pytest.raises((TimeoutError, TimedOut)):
                await both()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0


FILES = Path("/proc/self/fd")


def open_files() -> int:
    return len(list(FILES.iterdir()))


@pytest.mark.skipif(not FILES.is_dir(), reason="counts open files in /proc")
async def test_F70_thousands_of_cancels_leak_nothing() -> None:
    """At random moments of connecting, waiting, streaming, failing and retrying, over real sockets."""
    chance = random.Random(20261115)
    scenarios = ("ok", "silence", "tools+stall@50%", "ok+pings@30%", "status-500", "tools+cut@50%", "html", "ok+json")
    files_before = open_files()
    cancelled = 0
    async with faulty() as bench:
        routes = [
            bench.route(dialect, model=scenario, backoff_s=0.001) for dialect in DIALECTS for scenario in scenarios
        ]
        while cancelled < CANCELS:
            calls = [asyncio.create_task(bench.call(chance.choice(routes))) for _ in range(AT_ONCE)]
            chance.shuffle(calls)
            for call in calls:
                for _ in range(chance.choice((0, 0, 1, 1, 2))):
                    await asyncio.sleep(0)
                cancelled += call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        for request in bench.server.requests:
            await asyncio.wait_for(request.over.wait(), 30)
        assert len(bench.server.requests) > CANCELS / 2, "too many were cancelled before they had begun"
        assert any(request.disconnected_at for request in bench.server.requests)
        assert (await bench.call(bench.route())).completion.text.startswith("The mill")
    gc.collect()  # a socket that was dropped while open would warn here, and a warning is an error
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert open_files() == files_before
