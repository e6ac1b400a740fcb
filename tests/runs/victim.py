"""A process that executes one run and waits to be killed.

    python victim.py HOME agent|call|instance|llm_call|step
    python victim.py HOME delivery RUN

Prints the run's id as soon as the run is under way; of a delivery, once its platform shows something.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from proof.memory_platform import MemoryPlatform

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.calls.service import CallSpec
from tailrace.config.load import load
from tailrace.delivery.ledger import DeliverySpec
from tailrace.delivery.planning.state import Showing
from tailrace.delivery.port import Capabilities, Place
from tailrace.events import AnswerKept, LlmDelta, MessageChunk
from tailrace.flows.definition.definition import parsed
from tailrace.gateway.deliveries import Deliveries
from tailrace.messages import user

WAITING = parsed(
    {"name": "waiting", "blocks": [{"type": "step", "id": "w", "handler": "wait_signal", "params": {"signal": "go"}}]}
)
ASKING = parsed(
    {
        "name": "asking",
        "blocks": [{"type": "step", "id": "a", "handler": "llm_call", "params": {"prompt": "count", "stream": True}}],
    }
)
PLACE = Place("telegram", "42")


async def start(app: App, kind: str) -> str:
    if kind == "agent":
        run = await app.agents.submit(TurnSpec(user("count")), session="s")
    elif kind == "call":
        spec = CallSpec({"input": "count", "model": "faulty/ok", "stream": True})
        run = await app.calls.submit(spec, model="faulty/ok", session="", durability="committed")
    elif kind == "llm_call":
        run = await app.flows.start(ASKING)
    elif kind == "step":
        return await watched_step(app)
    else:
        return (await app.flows.start(WAITING)).id
    begun = AnswerKept if kind == "llm_call" else MessageChunk
    async for batch in app.journal.tail(run.id):
        if any(isinstance(entry.event, begun) for entry in batch):
            break
    return run.id


async def watched_step(app: App) -> str:
    """The log has what a step's model says only while a viewer watches."""
    run = await app.flows.start(ASKING)
    async with app.flows.watched(run.id):
        async for batch in app.journal.tail(run.id):
            if any(isinstance(entry.event, LlmDelta) for entry in batch):
                break
    return run.id


async def deliver(app: App, run_id: str) -> str:
    platform = MemoryPlatform(Capabilities(mode="edit", edits=True))
    async with asyncio.TaskGroup() as group:
        deliveries = Deliveries(app, platform, group)
        await deliveries.__aenter__()
        await deliveries.deliver(DeliverySpec(run_id, PLACE, Showing(streaming=True, min_tokens=1)))
        [delivery] = await app.journal.runs(kind="delivery")
        async for batch in app.journal.tail(delivery.id):
            if batch[-1].seq > 2:
                break
        say(delivery.id)
        await asyncio.Event().wait()
    raise AssertionError


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main(home: Path, kind: str, *run_id: str) -> None:
    async with open_app(load({"PATH": os.environ["PATH"]}, home), directory=home) as app:
        say(await (deliver(app, *run_id) if kind == "delivery" else start(app, kind)))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
