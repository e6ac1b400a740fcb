"""Storage that is away: how long a caller waits for it, and who says so in the log."""

from __future__ import annotations

import logging
from contextvars import ContextVar

from tailrace.errors import StorageFailed

PATIENCE_S: ContextVar[float | None] = ContextVar("PATIENCE_S", default=None)
"""How long a read, or a write that begins or signals a run, waits for storage that is away. A client that waits for an
answer sets it. None, as for runs in flight: as long as the journal itself waits."""


def warning_level(error: Exception) -> int:
    """The level at which a task that will try again logs this error: what the journal has announced is not said again
    by each task and for each run."""
    return logging.DEBUG if isinstance(error, StorageFailed) and error.announced else logging.WARNING
