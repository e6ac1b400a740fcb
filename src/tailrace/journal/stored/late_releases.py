"""Runs that could not be given back because storage was away. Given back late, they are no death of this process."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from tailrace.errors import JournalError
from tailrace.ports import Lease

MOST: Final = 4096  # the leases of more run out


class LateReleases:
    """The leases, in the order in which they were to be given back."""

    def __init__(self) -> None:
        self._leases: list[Lease] = []

    def add(self, lease: Lease) -> None:
        self._leases = [*self._leases[-MOST + 1 :], lease]

    async def give_back(self, release: Callable[[Lease], Awaitable[None]]) -> None:
        """`release` adds those again that storage refuses once more."""
        leases, self._leases = self._leases, []
        for lease in leases:
            with contextlib.suppress(JournalError):
                await release(lease)
