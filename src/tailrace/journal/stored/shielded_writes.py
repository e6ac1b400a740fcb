"""Writes that go on when their caller is cancelled: a commit in flight cannot be taken back, and the steps that follow
it in this process, such as waking a run for its signal, must follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tailrace.system.own_task import until_done

T = TypeVar("T")


class ShieldedWrites:
    """Holds their tasks until they have ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    async def run(
        self, work: Coroutine[Any, Any, T], *, if_left: Callable[[T], Coroutine[Any, Any, None] | None] | None = None
    ) -> T:
        """What the work returns or raises. Cancelling this does not cancel the work; `if_left` is then called with its
        result, to undo it."""
        task = self.begin(work)
        try:
            await until_done(task)  # not `shield`: from Python 3.14 on it logs errors that no caller receives
        except asyncio.CancelledError:
            if if_left is not None:
                self.begin(_then(task, if_left))
            raise
        return task.result()

    async def end(self) -> None:
        """Returns when all have ended, for a journal that closes: they wait for nothing but a commit."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: its caller may have left


async def _then(task: asyncio.Task[T], if_left: Callable[[T], Coroutine[Any, Any, None] | None]) -> None:
    await until_done(task)
    has_result = not task.cancelled() and task.exception() is None
    if has_result and (undoing := if_left(task.result())) is not None:
        await undoing
