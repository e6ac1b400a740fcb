"""Workers that do what their first argument says, under a parent: `python worker_program.py MODE COUNT`.

A worker prints one line when it serves: its index and its process id.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from tailrace.system.worker_processes import ParentLink, WorkerProcesses

MODE, COUNT = sys.argv[1], int(sys.argv[2])


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def serve(link: ParentLink) -> None:
    stop, task = asyncio.Event(), asyncio.current_task()
    assert task is not None
    link.listen(stop.set, task.cancel)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    link.ready()
    say("worker", link.index, os.getpid())
    await stop.wait()
    say("draining", link.index)
    if MODE == "deaf":
        signal.pause()
    if MODE in ("hangs", "drains"):
        await asyncio.Event().wait()


def work(link: ParentLink) -> int:
    if MODE == "refuses":
        say("refused", link.index)
        return 3
    if MODE == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if MODE == "second-starts" and link.index == 2:
        say("starting", link.index)
        signal.pause()
    if MODE == "raises":
        raise RuntimeError("a mistake")
    if MODE == "first-life" and Path(sys.argv[3]).exists():
        return 7
    try:
        asyncio.run(serve(link))
    except asyncio.CancelledError:
        return 130
    return 0


logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
processes = WorkerProcesses(
    COUNT,
    work,
    grace_s=0.3 if MODE == "hangs" else 2.0 if MODE == "deaf" else 60.0,
    on_first_ready=lambda: say("first"),
    on_death=lambda index: say("death", index),
)
sys.exit(processes.run())
