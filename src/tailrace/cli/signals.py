"""A long-running command's event loop, and the signals that end it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.system.worker_processes import ParentLink

PARENT_S = 0.25  # for a worker's parent to say that all workers stop, where a signal goes to the whole group


def stop_event(parent: ParentLink | None = None) -> asyncio.Event:
    """Set at the first SIGINT or SIGTERM; the second one cancels the calling task. A worker's parent does both too."""
    stop = asyncio.Event()
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            cancel()
        if parent is None:
            stop.set()
        else:
            loop.call_later(PARENT_S, stop.set)

    def cancel() -> None:
        if task is not None:
            task.cancel()

    if parent is not None:
        parent.listen(stop.set, cancel)
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C cancels the runner's task
            loop.add_signal_handler(number, on_signal)
    return stop


def reload_event() -> asyncio.Event:
    """Set at each SIGHUP, which from now on does not end the process."""
    asked = asyncio.Event()
    with suppress(NotImplementedError, AttributeError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    return asked


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it exists; None is asyncio's own."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def cancel_on_sigterm() -> None:
    """SIGTERM cancels the calling task, as Ctrl-C does."""
    task = asyncio.current_task()
    if task is not None and sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
