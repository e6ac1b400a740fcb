"""The record of one raw model call: what its listener hears, as the entries of a run.

Owns the way from deltas to the log. A plain request is logged in strokes, because its client is fed directly and the
log is for the record; a stored one at every read, because its viewers read the log.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tailrace.attempt_text import AttemptText
from tailrace.errors import ProviderError
from tailrace.events import (
    AnyEvent,
    AttemptDiscarded,
    AttemptStarted,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStatus,
    UsageRecorded,
)
from tailrace.messages import AnyDelta, Completion, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from tailrace.ports import Journal, Lease
from tailrace.providers.call import CallResult
from tailrace.providers.call_listener import AttemptOutcome, NullListener
from tailrace.runs.failures import failure_of

KIND: Final = "call"
FLUSH_EVERY_S: Final = 1.0
LEASE_S: Final = 86_400.0  # of a plain request, which nobody else could take over


class CallLog(NullListener):
    """A `CallListener` that writes. `shown` is text that an earlier process has logged."""

    def __init__(self, journal: Journal, lease: Lease, *, flush_every_s: float = 0.0, shown: str = "") -> None:
        self._journal = journal
        self._lease = lease
        self._stroke_s = flush_every_s
        self._due = 0.0  # when the next stroke is
        self._now = asyncio.get_running_loop().time
        self._pending: list[str] = []
        self._thinking = False  # what is pending is thought
        self._attempt = 1
        self._before = 0  # attempts of earlier processes
        self._output = AttemptText(shown)
        self._usage = Usage()
        self.called = False  # the attempt under way has begun a tool call
        self.several = False  # it answers more than once

    @property
    def output(self) -> str:
        """The text that is on record, withdrawn attempts left out."""
        return self._output.text

    def after(self, attempts: int) -> None:
        """Goes on with a log that has so many attempts already."""
        self._before = attempts

    # ── the listener ─────────────────────────────────────────────────────────────────────────────────────────

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        self._attempt = self._before + number
        self.called = self.several = False
        self._append(AttemptStarted(provider, model))

    def deltas(self, deltas: list[AnyDelta]) -> None:
        pending = self._pending
        for delta in deltas:
            if isinstance(delta, (TextDelta, ReasoningDelta)):
                if delta.choice:
                    self.several = True
                    continue
                thinking = delta.__class__ is ReasoningDelta
                if thinking is not self._thinking:
                    self._flush()
                    self._thinking = thinking
                pending.append(delta.text)
            elif delta.__class__ is ToolCallDelta:
                self.called = True
        if pending and (now := self._now()) >= self._due:
            self._flush()
            self._due = now + self._stroke_s

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        self._flush()
        if attempt.usage != Usage():
            self._usage += attempt.usage
            self._append(UsageRecorded(attempt.usage, attempt.provider, attempt.model))

    def attempt_discarded(self, number: int, reason: str) -> None:
        withdrawn = self._before + number
        self._output.withdraw(withdrawn)
        self._journal.append(self._lease, [AttemptDiscarded(reason[:500])], attempt=withdrawn)

    def _flush(self) -> None:
        if not self._pending:
            return
        text = "".join(self._pending)
        self._pending.clear()
        if not text:
            return
        if self._thinking:
            self._append(ReasoningChunk(text))
        else:
            self._output.add(text, self._attempt)
            self._append(MessageChunk(text))

    def _append(self, *events: AnyEvent) -> None:
        self._journal.append(self._lease, events, attempt=self._attempt)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    async def completed(self, result: CallResult) -> RunFinished:
        """The answer as it was given, or as far as it came."""
        completion = result.completion
        if not result.attempts[-1].streamed and not self._output:
            self._take_whole(completion)
        if result.incomplete is not None:
            return await self.failed(result.incomplete.error, completion)
        self._append(MessageRecorded(completion.message, completion.stop), MessageStop(final=True))
        return await self._seal(RunFinished("completed", self.output, self._usage, at=time.time()))

    async def failed(self, error: ProviderError, partial: Completion | None = None) -> RunFinished:
        """Text that was shown stands. The run is incomplete where another try might have gone on from it."""
        self._flush()
        if partial is not None and self.output:
            self._append(MessageRecorded(partial.message, "cut"))
        self._append(MessageStop(final=True))
        status: RunStatus = "incomplete" if self.output and error.kind == "retryable" else "failed"
        return await self._seal(RunFinished(status, self.output, self._usage, failure_of(error), time.time()))

    async def broke(self, failure: RunFailure) -> RunFinished:
        """Something other than the provider failed."""
        self._flush()
        self._append(MessageStop(final=True))
        return await self._seal(RunFinished("failed", self.output, self._usage, failure, time.time()))

    async def stopped(self) -> RunFinished:
        """Whoever asked has left, or said stop."""
        self._flush()
        self._append(MessageStop(final=True))
        failure = RunFailure("stopped", "interrupted")
        return await self._seal(RunFinished("stopped", self.output, self._usage, failure, time.time()))

    def _take_whole(self, completion: Completion) -> None:
        """An answer that was not streamed."""
        if completion.reasoning:
            self._append(ReasoningChunk(completion.reasoning))
        if completion.text:
            self._output.add(completion.text, self._attempt)
            self._append(MessageChunk(completion.text))

    async def _seal(self, finished: RunFinished) -> RunFinished:
        await self._journal.seal(self._lease, finished)
        return finished
