"""Async work for a caller without an event loop, and for one whose loop runs in this very thread."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_own_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What the work returns or raises, run by a loop in a thread of its own. A wait that is interrupted, as by Ctrl-C,
    cancels the work and is raised when that has ended."""
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()
    outcome: Future[T] = Future()

    async def main() -> T:
        task = asyncio.ensure_future(work())
        begun.set_result((asyncio.get_running_loop(), task))
        return await task

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as exc:  # noqa: BLE001 - raised in the caller's thread
            outcome.set_exception(exc)

    thread = Thread(target=contextvars.copy_context().run, args=(run,), name="tailrace-run", daemon=True)
    thread.start()
    try:
        return outcome.result()
    except BaseException:
        if not outcome.done():
            loop, task = begun.result()
            loop.call_soon_threadsafe(task.cancel)
        raise
    finally:
        thread.join()
