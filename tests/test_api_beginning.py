"""How the turns of an `Agent` begin: not behind the back of who has left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tailrace import Agent
from tailrace.agent.service import AgentService
from tailrace.app import open_app
from tailrace.ports import Run
from tailrace.testing.provider import FaultyProvider
from test_api import STALLED, config_for


async def test_F76_a_turn_that_was_being_begun_as_its_task_was_cancelled_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in the journal: another process that found it unfinished would go on with it."""
    stored, answered = asyncio.Event(), asyncio.Event()
    submit = AgentService.submit

    async def slow_submit(*args: Any, **options: Any) -> Run:
        run = await submit(*args, **options)
        stored.set()
        await answered.wait()
        return run

    monkeypatch.setattr(AgentService, "submit", slow_submit)
    async with FaultyProvider([STALLED]) as server:
        config = config_for(server.url, tmp_path)
        async with Agent(config=config, directory=tmp_path) as agent:
            asking = asyncio.create_task(agent.run("Count."))
            await stored.wait()
            for _ in range(3):
                asking.cancel()
                await asyncio.sleep(0)
            answered.set()
            await asyncio.wait([asking])
            assert asking.cancelled()
    async with open_app(config) as app:
        [run] = await app.journal.runs(kind="agent")
        assert run.state == "stopped"
