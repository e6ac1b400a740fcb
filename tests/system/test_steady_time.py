"""A run took as long as it took, also where the wall clock was set back meanwhile."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from server.http_server import running_server
from tailrace.system import steady_time as module
from tailrace.system.steady_time import clock_offset, steady_time
from tailrace.testing.clock import driven

NOON = 1_795_176_000.0


class WallClock:
    """Stands where it is put."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOON
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: self.now))


@driven
async def test_a_wall_clock_that_is_set_back_is_read_as_if_it_had_not_been(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = WallClock(monkeypatch)
    offset = clock_offset()
    await asyncio.sleep(12)
    wall.now = NOON + 12 - 3600
    assert steady_time(offset) == pytest.approx(NOON + 12)
    await asyncio.sleep(30)
    wall.now += 30
    assert steady_time(offset) == pytest.approx(NOON + 42)


@driven
async def test_a_wall_clock_that_is_set_forward_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's clock stands still while the machine is suspended."""
    wall = WallClock(monkeypatch)
    offset = clock_offset()
    await asyncio.sleep(12)
    wall.now = NOON + 3600
    assert steady_time(offset) == NOON + 3600


@pytest.mark.parametrize("model", ["faulty/ok", "tailrace"])
async def test_a_run_during_which_the_clock_is_set_back_ends_after_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    read: list[float] = []

    def set_back() -> float:
        """By an hour, after it was read once."""
        read.append(time.time())
        return read[-1] - (3600 if len(read) > 1 else 0)

    monkeypatch.setattr(module, "time", SimpleNamespace(time=set_back))
    async with running_server(tmp_path) as server:
        body = {"model": model, "messages": [{"role": "user", "content": "Go."}]}
        status, answer = await server.json("POST", "/v1/chat/completions", body)
        assert status == 200, answer
        [run] = await server.app.journal.runs()
    assert run.finished is not None
    assert run.finished.at >= run.created_at
