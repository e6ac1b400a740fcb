"""Which of Slack's envelopes wait for each other.

Some take seconds: a thread is read first. Buttons and `/stop` of other people must not wait for
them. One's own `/tailrace stop` waits for them, or it would come before the question that it is to stop. What takes
longer than Slack waits for a confirmation is confirmed before it is done. Makes no request itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from tailrace.delivery.port import ButtonPressed, Update

LATE_S = 2.0  # Slack tells the person after 3 s that the app did not respond
Work = Callable[[], Awaitable[None]]


class OrderedTasks:
    """Starts tasks in a group. Each begins when all earlier ones with a key in common have ended."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._newest: dict[str, asyncio.Task[None]] = {}  # by key; those that have ended are dropped

    def __len__(self) -> int:
        return len(self._newest)

    def start(self, keys: Collection[str], work: Work, *, then: Work, when_late: Work | None = None) -> None:
        """`then` is called when the work is done, and later tasks do not wait for it. `when_late` is called once where
        the work has not ended within `LATE_S`."""
        earlier = {self._newest[key] for key in keys if key in self._newest}
        task = self._group.create_task(_after(earlier, work))
        self._group.create_task(_after({task}, then, only_done=True))
        if when_late is not None:
            self._group.create_task(_unless_soon(task, when_late))
        self._newest.update(dict.fromkeys(keys, task))
        task.add_done_callback(self._forget)

    def _forget(self, ended: asyncio.Task[None]) -> None:
        self._newest = {key: task for key, task in self._newest.items() if task is not ended}


async def _after(earlier: Collection[asyncio.Task[None]], work: Work, *, only_done: bool = False) -> None:
    """`only_done`: not where one of them has failed."""
    if earlier:
        await asyncio.wait(earlier)
    if not only_done or not any(task.cancelled() or task.exception() for task in earlier):
        await work()


async def _unless_soon(task: asyncio.Task[None], when_late: Work) -> None:
    _, open_ = await asyncio.wait([task], timeout=LATE_S)
    if open_:
        await when_late()


def order_keys(update: Update | None) -> tuple[str, ...]:
    """What happens in one thread keeps its order, and what one person does in one channel: a long paste is cut into
    messages, each with a thread of its own, and `/tailrace stop` is about all of that person's. A button is about its
    own thread alone."""
    if update is None:
        return ()
    of_person = f"{update.place.chat} {update.sender.id}"
    if isinstance(update, ButtonPressed):
        return (update.place.key,)
    return update.place.key, of_person


def is_answered_soon(envelope_type: str, update: Update | None) -> bool:
    """Whether Slack tells the person who waits that the app did not respond: of a button and of a slash command."""
    return envelope_type == "slash_commands" or isinstance(update, ButtonPressed)
