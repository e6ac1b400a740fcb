"""Storage that is away: how long a caller waits for it, and at which level it is logged."""

from __future__ import annotations

import logging
from contextvars import ContextVar

from tailrace.errors import StorageFailed

PATIENCE_S: ContextVar[float | None] = ContextVar("PATIENCE_S", default=None)
"""Requests wait at most PATIENCE_S for storage; runs wait without limit (None). It bounds reads and the writes that
begin or signal a run."""


def warning_level(error: Exception) -> int:
    """The level at which a task that will try again logs this error: DEBUG for an outage that the journal has announced
    once for all tasks and runs."""
    return logging.DEBUG if isinstance(error, StorageFailed) and error.announced else logging.WARNING
