"""Whether the database is away, since when and why. The log says once when that begins, and once when it is over."""

from __future__ import annotations

import asyncio
import logging

from tailrace.errors import StorageFailed
from tailrace.journal.postgres.address import Address, away

log = logging.getLogger("tailrace.journal")


class Outage:
    """As the connection that writes sees it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._why: Exception = ConnectionError("the connection was lost")
        self.since: float | None = None  # by the loop's clock; None while the database is there

    def begin(self, why: Exception) -> None:
        """The connection was lost, or could not be made again."""
        self._why = why
        if self.since is None:
            self.since = self._loop.time()
            log.warning("%s; trying again", self.failure)

    def end(self) -> bool:
        """Something was written. Returns whether the database was away before."""
        if self.since is None:
            return False
        log.warning("PostgreSQL at %s is back after %.1f s", self._address.shown, self._loop.time() - self.since)
        self.since = None
        return True

    def lasts(self, seconds: float) -> bool:
        """Whether it has lasted for longer than this."""
        return self.since is not None and self._loop.time() - self.since > seconds

    @property
    def failure(self) -> StorageFailed:
        """Why nothing can be written now."""
        return away(self._address, self._why, announced=True)
