"""Which of Slack's envelopes wait for each other.

Some take seconds: a thread is read first, or a question is shown. Buttons and `/stop` of other people must not wait for
them. Knows nothing of Slack but what an update is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from tailrace.delivery.port import Update


class OrderedTasks:
    """Starts tasks in a group. Each begins when all earlier ones with a key in common have ended."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._newest: dict[str, asyncio.Task[None]] = {}  # by key; those that have ended are dropped

    def __len__(self) -> int:
        return len(self._newest)

    def start(self, keys: Collection[str], work: Callable[[], Awaitable[None]]) -> None:
        earlier = {self._newest[key] for key in keys if key in self._newest}
        task = self._group.create_task(_after(earlier, work))
        self._newest.update(dict.fromkeys(keys, task))
        task.add_done_callback(self._forget)

    def _forget(self, ended: asyncio.Task[None]) -> None:
        self._newest = {key: task for key, task in self._newest.items() if task is not ended}


async def _after(earlier: Collection[asyncio.Task[None]], work: Callable[[], Awaitable[None]]) -> None:
    if earlier:
        await asyncio.wait(earlier)
    await work()


def order_keys(update: Update | None) -> tuple[str, ...]:
    """What happens in one thread keeps its order, and what one person does in one channel: a long paste is cut into
    messages, each with a thread of its own, and `/tailrace stop` is about all of that person's."""
    if update is None:
        return ()
    return update.place.key, f"{update.place.chat} {update.sender.id}"
