"""The lag of the loop is measured from outside the loop's own clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from tailrace.server.metrics import loop_lag


async def test_a_callback_that_holds_the_loop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_lag, "EVERY_S", 0.01)
    loop, late, seen = asyncio.get_running_loop(), list[float](), asyncio.Event()

    def observe(lag_s: float) -> None:
        late.append(lag_s)
        if lag_s > 0.1:
            seen.set()

    with loop_lag.observed_lag(observe):
        loop.call_soon(time.sleep, 0.15)  # a callback that computes for so long
        await asyncio.wait_for(seen.wait(), 5)
    observed = len(late)
    await asyncio.to_thread(lambda: None)
    assert len(late) == observed, "outside the block nothing is measured"
