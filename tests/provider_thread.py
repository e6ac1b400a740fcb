"""The misbehaving provider on a loop and a thread of its own, for code that blocks the thread it runs in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.testing.provider import FaultyProvider, Reply, Scenario


@contextmanager
def provider(*script: str | Scenario | Reply) -> Iterator[FaultyProvider]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = asyncio.run_coroutine_threadsafe(_started(script), loop).result()
    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(made.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _started(script: tuple[str | Scenario | Reply, ...]) -> FaultyProvider:
    return await FaultyProvider(script).__aenter__()
