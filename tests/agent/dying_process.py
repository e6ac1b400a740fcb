"""A process that goes on with what it finds, begins a turn where there is none, and tells how that ended."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.errors import RunParked
from tailrace.messages import user


async def main(home: Path) -> None:
    async with open_app(load({}, home), directory=home) as app:
        runs = await app.journal.runs(kind="agent")
        run = runs[0] if runs else await app.agents.submit(TurnSpec(user("Restart yourself."), requester="web"))
        await app.agents.recover()
        try:
            print((await app.agents.finished(run.id)).status)  # noqa: T201
        except RunParked:
            print("parked")  # noqa: T201


asyncio.run(main(Path(sys.argv[1])))
