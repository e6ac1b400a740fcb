"""Writes that go on when their caller is cancelled: a commit in flight cannot be taken back, and the steps that follow
it in this process, such as waking a run for its signal, must follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

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
        self, work: Coroutine[Any, Any, T], *, if_left: Callable[[T], Coroutine[Any, Any, None]] | None = None
    ) -> T:
        """What the work returns or raises. Cancelling this does not cancel the work; `if_left` is then called with its
        result, to undo it.

        The work's first step is made in the caller's task, the rest in one of its own: up to its first wait it must
        use no current task, so no `asyncio.timeout` and no `TaskGroup`, and set no context variable."""
        try:
            awaited = work.send(None)  # in this tick: it belongs to the group of what is written beside it
        except StopIteration as ended:
            result: T = ended.value
            return result
        task = self.begin(_rest(work, awaited))
        try:
            await asyncio.wait([task])  # not `shield`: from Python 3.14 on it logs what a caller that left is not told
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


class _Rest(Generic[T]):
    """A coroutine from its first suspension on, at which it `awaited` a future."""

    def __init__(self, work: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._work, self._awaited = work, awaited

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            while True:
                try:
                    yield self._awaited
                except BaseException as exc:  # noqa: BLE001 - the work's to handle
                    self._awaited = self._work.throw(exc)
                else:
                    self._awaited = self._work.send(None)
        except StopIteration as ended:
            result: T = ended.value
            return result


async def _rest(work: Coroutine[Any, Any, T], awaited: Any) -> T:
    return await _Rest(work, awaited)


async def _then(task: asyncio.Task[T], if_left: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await if_left(task.result())
