"""How a run's log says why it failed."""

from __future__ import annotations

from tailrace.errors import ProviderError, Retryable, TailraceError, TimedOut
from tailrace.events import RunFailure


def failure_of(error: ProviderError) -> RunFailure:
    """A provider's error. The message names the provider: the configured one may have been replaced by a stand-in."""
    status = 504 if isinstance(error, TimedOut) else error.status or 0
    message = str(error)
    if error.provider and error.provider not in message:
        message = f"{error.provider}: {message}"
    retry_after_s = error.retry_after_s if isinstance(error, Retryable) else None
    return RunFailure(error.code or error.kind, message, status=status, retry_after_s=retry_after_s)


def unexpected_failure(error: Exception) -> RunFailure:
    """An error that ended a run from outside its own rules."""
    if isinstance(error, TailraceError):
        return RunFailure("error", str(error))
    return RunFailure("internal", f"{type(error).__name__}: {error}")
