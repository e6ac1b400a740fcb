"""Async work for a caller without an event loop, and for one whose loop runs in this very thread."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing, closing
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_own_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What the work returns or raises, run by a loop in a thread of its own."""

    async def once() -> AsyncGenerator[T, None]:
        yield await work()

    with closing(iterate_in_own_loop(once)) as items:
        return next(items)


def iterate_in_own_loop(work: Callable[[], AsyncGenerator[T, None]]) -> Generator[T, None, None]:
    """What the work yields, made by a loop in its own thread, each item when the caller asks for it. Closing it, and a
    wait that is interrupted, as by Ctrl-C, cancel the work and wait until that has ended."""
    made: SimpleQueue[tuple[T] | None] = SimpleQueue()  # None: nothing more comes
    wanted = asyncio.Semaphore(0)
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop = runner.get_loop()

    async def make() -> None:
        try:
            async with aclosing(work()) as items:
                async for item in items:
                    made.put((item,))
                    await wanted.acquire()
        finally:
            loop.stop()

    def run() -> None:
        with runner:
            loop.run_forever()

    making = asyncio.run_coroutine_threadsafe(make(), loop)
    making.add_done_callback(lambda _: made.put(None))
    thread = Thread(target=run, name="tailrace-run", daemon=True)
    thread.start()
    try:
        while (item := made.get()) is not None:
            yield item[0]
            loop.call_soon_threadsafe(wanted.release)
        making.result()
    finally:
        making.cancel()
        if not sys.is_finalizing():  # then no other thread runs any more
            thread.join()
