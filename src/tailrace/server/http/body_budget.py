"""The memory of all request bodies together (L143): each request takes from one budget what its body is large.

Bytes are taken as they arrive, not as they are announced: a client that sends nothing holds nothing. What a request has
taken is given back when it has been answered. Small bodies are not counted; the number of requests bounds them.
"""

from __future__ import annotations

import asyncio
from typing import Final

FREE_BYTES: Final = 65_536  # of each body
WAIT_S: Final = 5.0


class BodyBudget:
    """So many bytes for the bodies of all requests."""

    def __init__(self, max_bytes: int, *, wait_s: float = WAIT_S) -> None:
        self._left = max_bytes
        self.wait_s = wait_s
        self._released = asyncio.Event()
        self.holders = 0  # claims that have taken something
        self._waiting = 0  # of those

    @property
    def left(self) -> int:
        return self._left

    def claim(self) -> BodyClaim:
        """What one request takes; nothing yet."""
        return BodyClaim(self)

    async def take(self, count: int, *, holds: bool) -> None:
        """Waits where there is too little left. Raises `TimeoutError` where that takes too long, and at once where the
        claim `holds` something and all others that do wait too: none of them would ever give it back."""
        if count > self._left:
            if holds and self._waiting + 1 >= self.holders:
                raise TimeoutError
            self._waiting += holds
            try:
                async with asyncio.timeout(self.wait_s):
                    while count > self._left:
                        self._released.clear()
                        await self._released.wait()
            finally:
                self._waiting -= holds
        self._left -= count

    def give_back(self, count: int) -> None:
        self._left += count
        self._released.set()


class BodyClaim:
    """What one request has taken."""

    __slots__ = ("_budget", "_size", "_taken")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._size = 0
        self._taken = 0

    def add_free(self, count: int) -> bool:
        """So many more bytes have arrived, where they cost nothing. False where they must be taken: see `grow`."""
        free = self._size + count <= FREE_BYTES
        if free:
            self._size += count
        return free

    async def grow(self, count: int) -> None:
        """So many more bytes of the body have arrived. Raises `TimeoutError` where there is no room for them."""
        self._size += count
        if (more := self._size - FREE_BYTES - self._taken) > 0:
            await self._budget.take(more, holds=bool(self._taken))
            self._budget.holders += not self._taken
            self._taken += more

    def release(self) -> None:
        """The request has been answered."""
        if self._taken:
            self._budget.give_back(self._taken)
            self._budget.holders -= 1
            self._taken = 0
