"""A process that runs one turn, or goes on with one, and dies by `kill -9` as soon as its log has a given length.

python crashing_turn.py HOME DIE_AT — prints the run's id when it ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tailrace.agent.service import TurnSpec
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.messages import user


async def main(home: Path, die_at: int) -> None:
    async with open_app(load({"PATH": os.environ["PATH"]}, home), directory=home) as app:
        recovered = await app.agents.recover()
        runs = await app.journal.runs(limit=1)
        if recovered:
            run_id = recovered[0]
        elif runs:
            run_id = runs[0].id
        else:
            run_id = (await app.agents.submit(TurnSpec(user("go"), yolo=True), session="s")).id
        await watch(app, run_id, die_at)
        await app.agents.finished(run_id)
        sys.stdout.write(run_id)


async def watch(app: App, run_id: str, die_at: int) -> None:
    """Sees what a viewer sees, and writes down how far it saw before it dies."""
    async for batch in app.journal.tail(run_id):
        if batch[-1].seq >= die_at:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
