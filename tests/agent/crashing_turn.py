"""Processes that run one turn, or go on with one, and die by `kill -9` as soon as its log has a given length.

    python crashing_turn.py

Reads lines `HOME DIE_AT`. Each forks a process from this one, which has imported everything and has no loop and no
threads. When that has ended, a line says how: its signal or 0, and the run's id where the turn ended.

A file `steer` in the home says from which entry of the log on the turn is given a message, and `once` whether only the
process that begins the turn gives it; others send it again under its key. What was accepted is written to `accepted`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import traceback
from pathlib import Path

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.errors import SteerRefused
from tailrace.journal.sqlite import store as _store  # noqa: F401 - imported for the victims
from tailrace.messages import user
from tailrace.tools import terminal as _terminal  # noqa: F401


async def live(home: Path, die_at: int) -> str:
    async with open_app(load({"PATH": os.environ["PATH"]}, home), directory=home) as app:
        recovered = await app.agents.recover()
        runs = await app.journal.runs(limit=1)
        if recovered:
            run_id = recovered[0]
        elif runs:
            run_id = runs[0].id
        else:
            run_id = (await app.agents.submit(TurnSpec(user("go"), yolo=True), session="s")).id
        async with asyncio.TaskGroup() as group:
            group.create_task(watch(app, run_id, die_at))
            if (home / "steer").exists():
                at, how = (home / "steer").read_text(encoding="utf-8").split()
                if how != "once" or not recovered:
                    group.create_task(steer(app, run_id, int(at), home / "accepted"))
        await app.agents.finished(run_id)
        return run_id


async def watch(app: App, run_id: str, die_at: int) -> None:
    """Sees what a viewer sees, and writes down how far it saw before it dies."""
    async for batch in app.journal.tail(run_id):
        if batch[-1].seq >= die_at:
            os.kill(os.getpid(), signal.SIGKILL)


async def steer(app: App, run_id: str, at: int, accepted: Path) -> None:
    async for batch in app.journal.tail(run_id):
        if batch[-1].seq >= at:
            break
    try:
        given = await app.steering.steer(run_id, "Also count.", by="cli", idempotency_key="k")
    except SteerRefused:
        return  # the run has ended
    await asyncio.to_thread(accepted.write_text, given.accepted.steer_id, encoding="utf-8")


def victim(home: Path, die_at: int) -> str:
    """How it ended: its signal or exit code, and what it said."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        try:
            os.write(theirs, asyncio.run(live(home, die_at)).encode())
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the test shows it
            traceback.print_exc()
            os._exit(1)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return f"{os.waitstatus_to_exitcode(status)} {said}"


def main() -> None:
    gc.collect()
    gc.freeze()  # a collection in a victim would copy the pages that it shares with this process
    for line in sys.stdin:
        home, die_at = line.rsplit(maxsplit=1)
        sys.stdout.write(victim(Path(home), int(die_at)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
