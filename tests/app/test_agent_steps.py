"""A turn of the agent as a step of a sequence: it ends with the step, and not with the process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.test_left_failing import WHOLE, opened
from flows.stages import sequence
from tailrace.app import App
from tailrace.events import MessageChunk
from tailrace.ports import ENDED, Run, Signal

STEP = {"type": "step", "id": "say", "handler": "agent", "params": {"prompt": "Tell me."}}


async def begun(app: App, **fields: Any) -> tuple[Run, str]:
    """The instance, and the turn of its step once that has shown half of its answer."""
    running = asyncio.Event()
    app.agents.on_running = lambda _: running.set()
    instance = await app.flows.start(sequence({**STEP, **fields}))
    await running.wait()
    [turn_id] = app.agents.running
    said = ""
    async for batch in app.journal.tail(turn_id):
        said += "".join(entry.event.text for entry in batch if isinstance(entry.event, MessageChunk))
        if said.endswith("carries the"):
            break
    return instance, turn_id


@pytest.mark.parametrize("hands_over", [True, False])
async def test_an_orderly_end_of_the_process_leaves_the_turn_of_a_step_to_the_next(
    tmp_path: Path, hands_over: bool
) -> None:
    async with opened(tmp_path, "stall@50%") as app, asyncio.timeout(30):
        instance, turn_id = await begun(app)
        if hands_over:
            await app.hand_over()
    async with opened(tmp_path) as app, asyncio.timeout(30):
        assert {instance.id, turn_id} <= set(await app.recover())
        turn = await app.agents.finished(turn_id)
        end = await app.flows.finished(instance.id)
    assert (turn.status, turn.output, end.status) == ("completed", WHOLE, "completed")
    assert WHOLE in end.output


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_a_step_that_is_given_up_stops_its_turn(tmp_path: Path, how: str) -> None:
    async with opened(tmp_path, "stall@50%") as app, asyncio.timeout(30):
        instance, turn_id = await begun(app, **({"timeout_secs": 1} if how == "timeout" else {}))
        if how == "cancel":
            await app.journal.signal(instance.id, Signal("cancel"))
        turn = await app.agents.finished(turn_id)
        await app.flows.finished(instance.id)
        assert (await app.journal.get(instance.id)).state in ENDED
    assert turn.status == "stopped"
