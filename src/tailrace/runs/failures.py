"""How a failed model call reads in a run's log."""

from __future__ import annotations

from tailrace.errors import ProviderError, TimedOut
from tailrace.events import RunFailure


def failure_of(error: ProviderError) -> RunFailure:
    """The message names the provider: with fallbacks a reader could not tell which one failed."""
    status = 504 if isinstance(error, TimedOut) else error.status or 0
    message = str(error)
    if error.provider and error.provider not in message:
        message = f"{error.provider}: {message}"
    return RunFailure(error.code or error.kind, message, status=status)
