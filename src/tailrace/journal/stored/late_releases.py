"""Releases that failed because storage was away, for another try. A late release still shows that its owner lives."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from tailrace.errors import JournalError
from tailrace.ports import Lease

MAX_LEASES: Final = 4096  # of more than these the oldest expire instead


class LateReleases:
    """The leases, in the order of their failed releases."""

    def __init__(self) -> None:
        self._leases: list[Lease] = []

    def add(self, lease: Lease) -> None:
        self._leases = [*self._leases[-MAX_LEASES + 1 :], lease]

    async def retry(self, release: Callable[[Lease], Awaitable[None]]) -> None:
        """`release` adds a lease again where storage fails once more."""
        leases, self._leases = self._leases, []
        for lease in leases:
            with contextlib.suppress(JournalError):
                await release(lease)
