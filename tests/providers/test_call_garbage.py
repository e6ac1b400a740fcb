"""A call leaves nothing for the garbage collector, however it ends: a cycle per call is a pause under load."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable

import pytest

from providers.faulty_calls import ASK, DIALECTS, Bench, Told, faulty
from tailrace.errors import ProviderError
from tailrace.messages import Dialect
from tailrace.providers.call import Caller


async def garbage_of(call: Callable[[], Awaitable[None]]) -> list[str]:
    """What only the collector would free after the call, as far as it is ours: the provider of the tests is not."""
    await call()  # what is made once is not a call's
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await call()
        await asyncio.sleep(0)
        gc.collect()
        kinds = [type(each) for each in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
    return sorted(name for name in names if name.startswith("tailrace.") and not name.startswith("tailrace.testing."))


def finishing(bench: Bench, dialect: Dialect, model: str) -> Callable[[], Awaitable[None]]:
    """Without a listener: one that keeps an error is in its own frames."""

    async def call() -> None:
        with contextlib.suppress(ProviderError):
            await Caller().complete(ASK, [bench.route(dialect, model=model, max_attempts=2, backoff_s=0.001)])

    return call


@pytest.mark.parametrize("model", ["ok", "status-500", "status-400", "error-server", "ok+cut@60%"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_that_ended_leaves_no_cycle(dialect: Dialect, model: str) -> None:
    async with faulty() as bench:
        assert await garbage_of(finishing(bench, dialect, model)) == []


async def test_a_call_that_was_cancelled_leaves_no_cycle() -> None:
    async with faulty() as bench:

        async def cancelled() -> None:
            told = Told()
            task = asyncio.create_task(bench.call(bench.route(model="ok+stall@50%"), told=told))
            await told.heard.wait()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        assert await garbage_of(cancelled) == []
