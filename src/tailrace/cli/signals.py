"""The life of a command that runs until it is told to stop: its loop, and the signals that end it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import suppress


def stop_event() -> asyncio.Event:
    """Set at the first SIGINT or SIGTERM; the second one cancels whoever called this."""
    told = asyncio.Event()
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def hear() -> None:
        if told.is_set() and task is not None:
            task.cancel()
        told.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C cancels the runner's task
            loop.add_signal_handler(number, hear)
    return told


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
