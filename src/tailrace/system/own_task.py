"""Leaving that comes to its end, also where the task that leaves is cancelled again and again.

A task of asyncio is cancelled once, and what it awaits while it leaves is then its own. The scopes of anyio cancel it
in every turn of the loop until it is out, and with them Starlette and FastAPI when a client has left: nothing that is
awaited on the way out would be done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


async def until_done(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Returns the task when it is done, whatever became of it. Cancelling this does not cancel the task. 9 calls, where
    `asyncio.wait` makes 26: stored requests and turns of the agent wait for tasks of their own."""
    if task.done():
        return task
    done = task.get_loop().create_future()

    def wake(_: object) -> None:
        if not done.done():
            done.set_result(None)

    task.add_done_callback(wake)
    try:
        await done
    finally:
        task.remove_done_callback(wake)
    return task


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """What the work returns or raises. Cancelling this is passed on when the work has ended, and not before."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await until_done(task)
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is None:
        return task.result()
    raise cancelled from (None if task.cancelled() else task.exception())


@asynccontextmanager
async def opened_in_own_task(opening: AbstractAsyncContextManager[T]) -> AsyncGenerator[T, None]:
    """What `opening` gives. A task of its own opens and closes it, so that cancelling this one does not reach it."""
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[T] = loop.create_future()
    left = asyncio.Event()

    async def keep_open() -> None:
        async with opening as value:
            opened.set_result(value)
            await left.wait()

    keeping = loop.create_task(keep_open())
    either: list[asyncio.Future[Any]] = [keeping, opened]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            keeping.result()  # raises why it could not be opened
        yield opened.result()
    finally:
        left.set()
        if not opened.done():
            keeping.cancel()
        await finish(until_done(keeping))
    keeping.result()
