"""From the deltas of a model call to a run's log: the one listener that writes.

Owns the numbers of attempts within the run, the buffer between reads and entries, and what of the answer is on record.
Which events the deltas become is a subclass's part: an agent filters thoughts and secrets, a step writes `LlmDelta`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tailrace.attempt_text import AttemptText
from tailrace.events import AnyEvent, AttemptDiscarded, AttemptStarted, LlmDelta, MessageChunk, UsageRecorded
from tailrace.messages import AnyDelta, Usage
from tailrace.providers.call_listener import AttemptOutcome, CallListener

MAX_REASON_CHARS = 500

WriteEvents: TypeAlias = Callable[[int, Sequence[AnyEvent]], None]
"""Appends facts of an attempt to the log. Never blocks. Raises `StaleEpoch` where the run was taken over."""


class DeltaLog(CallListener):
    """A `CallListener`, for one call after the other. `attempts` is how many the log has already, `shown` the text
    that an earlier process has logged. With `flush_every_s` deltas are buffered for so long; 0 writes every read."""

    def __init__(
        self,
        write: WriteEvents,
        *,
        attempts: int = 0,
        shown: str = "",
        block_id: str = "",
        flush_every_s: float = 0.0,
    ) -> None:
        self._write = write
        self._attempt = attempts
        self._before_call = attempts  # the run's attempts before the call's first
        self._block_id = block_id
        self._flush_every_s = flush_every_s
        self._flush_at = 0.0
        self._now = asyncio.get_running_loop().time
        self._pending: list[AnyDelta] = []
        self._shown = AttemptText(shown)
        self.usage = Usage()  # of all attempts
        self.streamed = False  # viewers have seen a part of the answer, or the attempt's answer came in pieces

    @property
    def text(self) -> str:
        """The text that is on record, without withdrawn attempts."""
        return self._shown.text

    def add(self, *events: AnyEvent) -> None:
        """Writes facts of the attempt under way."""
        self._add(events)

    def _add(self, events: Sequence[AnyEvent]) -> None:
        for event in events:
            if event.__class__ is MessageChunk:
                self._shown.add(event.text, self._attempt)
            elif event.__class__ is LlmDelta:
                self._shown.add(event.delta, self._attempt)
        if events:
            self._write(self._attempt or 1, events)

    def flush(self) -> None:
        """Writes what is buffered."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._add(self.to_events(pending))

    def to_events(self, deltas: list[AnyDelta]) -> Sequence[AnyEvent]:
        """What these deltas are in the log. A method and no callable that is kept: a subclass's own would be a cycle
        (L148)."""
        raise NotImplementedError

    def started(self, provider: str, model: str) -> AttemptStarted:
        """The fact that an attempt begins."""
        return AttemptStarted(provider, model, self._block_id)

    def record_usage(self, usage: Usage, provider: str, model: str) -> None:
        if usage != Usage():
            self.usage += usage
            self.add(UsageRecorded(usage, provider, model))

    # ── the listener ─────────────────────────────────────────────────────────────────────────────────────────

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        self._attempt += 1
        self._before_call = self._attempt - number
        self.streamed = bool(self._shown)
        self.add(self.started(provider, model))

    def deltas(self, deltas: list[AnyDelta]) -> None:
        self.streamed = True
        if not self._flush_every_s:
            self._add(self.to_events(deltas))
            return
        self._pending += deltas
        if (now := self._now()) >= self._flush_at:
            self._flush_at = now + self._flush_every_s
            self.flush()

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        self.flush()
        self.record_usage(attempt.usage, attempt.provider, attempt.model)

    def attempt_discarded(self, number: int, reason: str) -> None:
        withdrawn = self._before_call + number
        self._shown.withdraw(withdrawn)
        self._write(withdrawn, [AttemptDiscarded(reason[:MAX_REASON_CHARS], self._block_id)])
