"""The memory of all request bodies together (L143): each request takes from one budget what its body is large.

What a connection may hold unread is taken before the first byte, then bytes as they arrive. Small bodies are not
counted; the number of requests bounds them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tailrace.app.http_connection import HttpConnection

FREE_BYTES: Final = 65_536  # of each body
ARRIVING_BYTES: Final = 131_072  # that a connection may hold of a large body before it is read
WAIT_S: Final = 5.0


class BodyBudget:
    """So many bytes for the bodies of all requests."""

    def __init__(self, max_bytes: int, *, wait_s: float = WAIT_S) -> None:
        self.left = max_bytes
        self.wait_s = wait_s
        self._released = asyncio.Event()
        self.holders = 0  # claims that have taken something
        self._waiting = 0  # of those

    async def take(self, count: int, *, holds: bool) -> None:
        """Waits where there is too little left. Raises `TimeoutError` where that takes too long, and at once where the
        claim `holds` something and all others that do wait too: none of them would ever give it back."""
        if count > self.left:
            if holds and self._waiting + 1 >= self.holders:
                raise TimeoutError
            self._waiting += holds
            try:
                async with asyncio.timeout(self.wait_s):
                    while count > self.left:
                        self._released.clear()
                        await self._released.wait()
            finally:
                self._waiting -= holds
        self.left -= count

    def give_back(self, count: int) -> None:
        self.left += count
        self._released.set()


class BodyClaim:
    """What one request has taken. What its `connection` brings while there is no room stays with the system."""

    __slots__ = ("_budget", "_connection", "_taken")

    def __init__(self, budget: BodyBudget, connection: HttpConnection | None = None) -> None:
        self._budget = budget
        self._connection = connection
        self._taken = 0

    def arrived(self) -> None:
        """The body, before which `ARRIVING_BYTES` were taken, is here or given up. A small one counts no more."""
        rest = self._taken - ARRIVING_BYTES
        self._give_back(ARRIVING_BYTES if rest > FREE_BYTES else self._taken)

    async def grow(self, count: int) -> None:
        """So many more bytes have arrived. Raises `TimeoutError` where there is no room for them."""
        if count > self._budget.left and self._connection is not None:
            self._connection.stay_paused()
        await self._budget.take(count, holds=bool(self._taken))
        if self._connection is not None:
            self._connection.resume_reading()
        self._budget.holders += not self._taken
        self._taken += count

    def release(self) -> None:
        """The request has been answered."""
        self._give_back(self._taken)

    def _give_back(self, count: int) -> None:
        if count:
            self._budget.give_back(count)
            self._taken -= count
            self._budget.holders -= not self._taken
