"""The one place where a run's events are written: appended to the journal and applied to the run's fold, in that order.

Knows neither turns nor plans: a fold is whatever `apply` makes of events. At level `debug` the log shows each fact and
what it made due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from tailrace.events import AnyEvent
from tailrace.journal.fold import is_fact
from tailrace.ports import Journal, Lease

# What a trace shows of facts and commands: names and numbers, never what was said or given.
_TRACED = frozenset(
    {"block_id", "number", "index", "status", "call", "id", "name", "tool_name", "call_id", "ok", "stop", "final"}
    | {"state", "signal_id", "error", "kind", "code", "provider", "model", "decision", "retry_at"}
    | {"key", "message_id", "draft_id", "approval_id", "markup", "pause_s", "retry_after_s", "what"}
)
_MAX_VALUE_CHARS = 60


class EventFold(Protocol):
    """What a run knows, made of its events alone."""

    @property
    def attempt(self) -> int:
        """The number of the newest attempt at a model call; 0 before the first."""

    def apply(self, event: AnyEvent, attempt: int = ...) -> None: ...


F_co = TypeVar("F_co", bound=EventFold, covariant=True)


class RecordedFold(Generic[F_co]):
    """A fold and its log, kept in step. Viewers see an entry once it is committed."""

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        fold: F_co,
        *,
        due: Callable[[], Sequence[msgspec.Struct]],
        log: logging.Logger,
    ) -> None:
        """`due` asks the fold what is to be done next, for the trace that goes to `log`."""
        self._journal = journal
        self._lease = lease
        self._write = journal.writer(lease)
        self.fold = fold
        self._due = due
        self._log = log
        self._is_traced = log.isEnabledFor(logging.DEBUG)

    def add(self, *events: AnyEvent, attempt: int | None = None) -> None:
        """Events of this attempt; without a number, of the newest. Never blocks. Raises `StaleEpoch` where another
        process has the run."""
        if events:
            self.add_all(max(1, self.fold.attempt) if attempt is None else attempt, events)

    def add_all(self, attempt: int, events: Sequence[AnyEvent]) -> None:
        """The same, as a `DeltaLog` writes them."""
        self._write(attempt, events)
        for event in events:
            self.fold.apply(event, attempt)
            if self._is_traced and is_fact(event):
                due = ", ".join(map(traced, self._due())) or "nothing"
                self._log.debug("%s: %s -> %s", self._lease.run_id, traced(event), due)

    async def commit(self) -> None:
        """Returns when everything added is durable: call it before anything that cannot be undone."""
        await self._journal.commit(self._lease)


def traced(value: msgspec.Struct) -> str:
    """A fact or a command in short: `StepFailed(block_id=a, error=RunFailure(kind=permanent), number=1)`."""
    shown = [(name, getattr(value, name)) for name in value.__struct_fields__ if name in _TRACED]
    pairs = [
        f"{name}={traced(field) if isinstance(field, msgspec.Struct) else str(field)[:_MAX_VALUE_CHARS]}"
        for name, field in shown
        if field is not None and field != ""
    ]
    return f"{type(value).__name__}({', '.join(pairs)})"
