"""Whether the database is away, since when and why. The log says once when that begins, and once when it is over."""

from __future__ import annotations

import asyncio
import logging

from tailrace.errors import StorageFailed
from tailrace.integrations.postgres.address import Address, away

log = logging.getLogger("tailrace.journal")


class Outage:
    """As the connection that writes sees it. In a process that writes nothing, readers may see it first, or alone."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._why: Exception = ConnectionError("the connection was lost")
        self.since: float | None = None  # by the loop's clock; None while the database is there
        self._logged_at: float | None = None  # when the log said that it is away; None once it has said that it is back

    def begin(self, why: Exception) -> None:
        """The connection was lost, or could not be made again."""
        self._why = why
        if self.since is None:
            self.since = self._loop.time()
            self._tell(why)

    def end(self) -> bool:
        """Something was written. Returns whether the database was away before."""
        was_away, self.since = self.since is not None, None
        self.note_read()
        return was_away

    def note_unread(self, why: Exception) -> StorageFailed:
        """A reader has given up, or a caller behind a write that gets no answer. Returns the error to raise."""
        self._tell(why)
        return away(self._address, why, announced=True)

    def note_read(self) -> None:
        """Something was read. While writing fails the database is not back."""
        if self._logged_at is not None and self.since is None:
            log.warning(
                "PostgreSQL at %s is back after %.1f s", self._address.shown, self._loop.time() - self._logged_at
            )
            self._logged_at = None

    def _tell(self, why: Exception) -> None:
        if self._logged_at is None:
            self._logged_at = self._loop.time()
            log.warning("%s; trying again", away(self._address, why))

    def lasts(self, seconds: float) -> bool:
        """Whether it has lasted for longer than this."""
        return self.since is not None and self._loop.time() - self.since > seconds

    @property
    def failure(self) -> StorageFailed:
        """Why nothing can be written now."""
        return away(self._address, self._why, announced=True)
