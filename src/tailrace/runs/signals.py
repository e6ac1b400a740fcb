"""Work that can be interrupted by a signal to its run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import copy_context
from types import TracebackType
from typing import Any, TypeVar

from tailrace.events import RunFailure
from tailrace.ports import Lease, Signal, Signals

T = TypeVar("T")
STOP = "stop"  # the signal that ends a run of any kind as `stopped`
NEWER_MESSAGE = "newer_message"  # the `code` of a run that ends because its session has got another message
INTERRUPTED = RunFailure("stopped", "interrupted")


class Stopped(Exception):
    """The run was signalled to stop. `failure` is that of its end."""

    def __init__(self, failure: RunFailure = INTERRUPTED) -> None:
        super().__init__(failure.message)
        self.failure = failure


def stop_signal(*, by: str = "", newer: bool = False) -> Signal:
    """`newer`: a newer message of its session takes the run's place."""
    return Signal(STOP, {"code": NEWER_MESSAGE} if newer else {}, by)


def stop_failure(signal: Signal) -> RunFailure:
    """The failure of a run that this signal has stopped."""
    if signal.payload.get("code") == NEWER_MESSAGE:
        return RunFailure("stopped", "interrupted by a newer message", NEWER_MESSAGE, by=signal.by)
    return RunFailure("stopped", INTERRUPTED.message, by=signal.by)


def stop_only(signal: Signal) -> None:
    """The `on_signal` of a run that knows no other signal."""
    if signal.name == STOP:
        raise Stopped(stop_failure(signal))


async def listen(journal: Signals, lease: Lease, on_signal: Callable[[Signal], None], *, after: int = 0) -> None:
    """Hands each signal with a higher id than `after` to `on_signal`, and goes on until something is raised: what
    `on_signal` raises, `StaleEpoch` where the lease is lost, `RunSealed`, `JournalError`."""
    while True:
        for signal in await journal.signals(lease, after=after):
            after = max(after, signal.id)
            on_signal(signal)


class FlatTaskGroup(asyncio.TaskGroup):
    """Raises the first error itself, where a task group raises a group of them."""

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        first: BaseException | None = None
        try:
            await super().__aexit__(kind, exc, trace)
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            errors.__traceback__ = None  # its frames hold it: a cycle (L148)
        if first is not None:  # out of the block, or the group would be its context
            try:
                raise first from None
            finally:
                del first, exc, trace  # this frame is in its traceback


@asynccontextmanager
async def begun_once(
    work: Callable[[], Coroutine[None, None, T]],
) -> AsyncGenerator[Callable[[], Coroutine[None, None, T]], None]:
    """Yields a function that begins the work when it is called first. A caller that is cancelled leaves the work under
    way, and the next call waits for the same. It ends with the block."""
    begun: asyncio.Task[T] | None = None

    async def result() -> T:
        nonlocal begun
        if begun is None:
            begun = asyncio.ensure_future(work())  # in no task group: what it raises is for its callers, not the block
        return await asyncio.shield(begun)

    try:
        yield result
    finally:
        if begun is not None:
            begun.cancel()
            await asyncio.gather(begun, return_exceptions=True)


async def run_signalled(
    work: Coroutine[Any, Any, T], journal: Signals, lease: Lease, on_signal: Callable[[Signal], None], *, after: int = 0
) -> T:
    """The result of `work`, beside which this listens. What `listen` raises cancels the work and is raised here. It
    begins with the first signal: most runs get none, and have no task for it."""
    listening: asyncio.Task[None] | None = None
    context = copy_context()  # of the run, not of the request that sends the signal

    def begin() -> None:
        nonlocal listening
        listening = group.create_task(listen(journal, lease, on_signal, after=after), context=context)

    async with FlatTaskGroup() as group:
        journal.when_signalled(lease, begin)
        try:
            result = await work
        finally:
            journal.when_signalled(lease, None)
            if listening is not None:
                listening.cancel()
    return result


async def run_beside(work: Coroutine[Any, Any, T], companion: Coroutine[Any, Any, None]) -> T:
    """The result of `work`. The companion runs in a task beside it and is cancelled when the work has ended. What the
    companion raises cancels the work and is raised here."""
    async with FlatTaskGroup() as group:
        task = group.create_task(companion)
        result = await work
        task.cancel()
    return result
