"""An inbox that keeps its updates, for tests of an adapter without a gateway, and an adapter that runs in a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from tailrace.delivery.port import Platform, Sender, Update
from tailrace.errors import PlatformError
from tailrace.testing.platforms.loopback import Changing


class CollectingInbox(Changing):
    """Refuses everything while `closed`, as an inbox does in a process that may no longer poll. Serves everybody but
    `strangers`, by their ids. Keeps no position where it `forgets`, as while storage fails. Takes what comes while
    `flowing` is set, as storage does that is not slow."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: list[Update] = []
        self.connections = 0
        self.closed = False
        self.strangers: set[str] = set()
        self.held: set[str] = (
            set()
        )  # ids of updates that wait for the rest of their paste; call `changed` after a change
        self.kept_position = ""
        self.forgets = False
        self.flowing = asyncio.Event()
        self.flowing.set()

    async def put(self, update: Update) -> None:
        if self.closed:
            raise PlatformError("no new work")
        await self.flowing.wait()
        self.updates.append(update)
        self.changed()

    async def serves(self, sender: Sender) -> bool:
        return sender.id not in self.strangers

    async def until_released(self, update_id: str) -> None:
        await self.until(lambda: update_id not in self.held)

    @property
    def holds_parts(self) -> bool:
        return bool(self.held)

    def connected(self) -> None:
        self.connections += 1
        self.changed()

    async def position(self) -> str:
        return self.kept_position

    async def keep_position(self, position: str) -> bool:
        if not self.forgets:
            self.kept_position = position
        return not self.forgets

    async def wait_connected(self, times: int = 1) -> None:
        await self.until(lambda: self.connections >= times)

    async def wait_for(self, count: int) -> list[Update]:
        """The updates, once there are so many."""
        await self.until(lambda: len(self.updates) >= count)
        return self.updates


@asynccontextmanager
async def running(
    platform: Platform, position: str = "", *, strangers: Collection[str] = ()
) -> AsyncIterator[CollectingInbox]:
    """The adapter is connected inside of the block, and closed after it."""
    inbox = CollectingInbox()
    inbox.kept_position, inbox.strangers = position, set(strangers)
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(platform.run(inbox))
            await inbox.wait_connected()
            yield inbox
            task.cancel()
    finally:
        await platform.close()
