"""A long-running command's event loop, and the signals that end it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import suppress


def stop_event() -> asyncio.Event:
    """Set at the first SIGINT or SIGTERM; the second one cancels the calling task."""
    stop = asyncio.Event()
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C cancels the runner's task
            loop.add_signal_handler(number, on_signal)
    return stop


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it exists; None is asyncio's own."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
