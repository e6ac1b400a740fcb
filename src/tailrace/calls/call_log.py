"""The log of one raw model call: its entries while it lasts, and its end.

A plain request is buffered and flushed once a second, because its client is fed directly and the log is for the record.
A stored one is written at every read, because its viewers read the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from tailrace.errors import ProviderError
from tailrace.events import (
    AnyEvent,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ProviderAnswer,
    ProviderEvents,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStatus,
)
from tailrace.kept_answer import KeptAnswer
from tailrace.messages import (
    AnyDelta,
    Completion,
    EventDelta,
    JsonObject,
    NativeDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from tailrace.ports import Journal, Lease
from tailrace.providers.attempt import StopCall
from tailrace.providers.call import CallResult
from tailrace.providers.call_listener import Verdict
from tailrace.runs.delta_log import DeltaLog
from tailrace.runs.failures import failure_of
from tailrace.wire.body_events import events_of
from tailrace.wire.message_deltas import message_deltas
from tailrace.wire.peer_json import decode_object
from tailrace.wire.reasoning_seal import named_field
from tailrace.wire.responses.relay import ENDINGS

CALL_KIND: Final = "call"
FLUSH_EVERY_S: Final = 1.0
REQUEST_LEASE_S: Final = 86_400.0  # of a plain request: no other process can take it over


class CallLog(DeltaLog):
    """Writes a call as the run of its lease. `shown` and `attempts` are what an earlier process has logged. With
    `keep_events` the provider's own events are logged too, because clients are fed from the log."""

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        *,
        flush_every_s: float = 0.0,
        shown: str = "",
        attempts: int = 0,
        keep_events: bool = False,
        kept: KeptAnswer | None = None,
    ) -> None:
        def write(attempt: int, events: Sequence[AnyEvent]) -> None:
            journal.append(lease, events, attempt=attempt)

        super().__init__(write, attempts=attempts, shown=shown, flush_every_s=flush_every_s, kept=kept)
        self._events_to_skip = kept.last_event if kept is not None else -1  # up to the one of this number
        self._journal = journal
        self._lease = lease
        self._keeps_events = keep_events
        self._ending: EventDelta | None = None  # the provider's last event, which has its whole answer
        self.called = False  # the attempt under way has begun a tool call; known after a flush, as is `several`
        self.several = False  # it answers more than once
        self._relays = False  # viewers see its provider's own events

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        self.called = self.several = self._relays = False
        self._ending = None
        if not self._resumes:
            self._events_to_skip = -1
        super().attempt_started(number, provider, model)

    def verdict(self, error: ProviderError) -> Verdict:
        """A call that viewers of the log have seen begin is not begun again (B34). They see it in the provider's own
        events; a call of another dialect is logged when it is whole."""
        return StopCall(error) if self.called and self._relays else super().verdict(error)

    def to_events(self, deltas: list[AnyDelta]) -> list[AnyEvent]:
        """The text and the thoughts of the first choice, neighbours of a kind as one chunk, after the provider's own
        events."""
        events: list[AnyEvent] = self._provider_events(deltas) if self._keeps_events else []
        pieces: list[str] = []
        thinking = False  # the pieces are thoughts
        for delta in deltas:
            if isinstance(delta, (TextDelta, ReasoningDelta)):
                if delta.choice:
                    self.several = True
                    continue
                if thinking is not (delta.__class__ is ReasoningDelta):
                    events += _chunk("".join(pieces), thinking=thinking)
                    pieces, thinking = [], not thinking
                pieces.append(delta.text)
            elif delta.__class__ is ToolCallDelta:
                self.called = True
        return events + _chunk("".join(pieces), thinking=thinking)

    def _provider_events(self, deltas: Iterable[AnyDelta]) -> list[AnyEvent]:
        """The answer's last event is kept for its end: it has the whole body."""
        kept: list[JsonObject] = []
        fields: list[JsonObject] = []  # where a chat provider has its reasoning
        for delta in deltas:
            if isinstance(delta, NativeDelta) and named_field(delta) is not None and not delta.choice:
                fields.append(delta.item)
            if isinstance(delta, EventDelta):
                if delta.name in ENDINGS:
                    self._ending = delta
                elif self._is_new(event := decode_object(delta.data)):
                    kept.append(event)
        self._relays = self._relays or bool(kept)
        events: list[AnyEvent] = [ProviderEvents("chat", tuple(fields))] if fields else []
        return [*events, ProviderEvents("responses", tuple(kept))] if kept else events

    def _is_new(self, event: JsonObject) -> bool:
        """Whether the log does not have this event of a resumed answer. One without a number counts with the numbered
        one after it."""
        if self._events_to_skip < 0:
            return True
        number = event.get("sequence_number")
        if not isinstance(number, int) or number <= self._events_to_skip:
            return False
        self._events_to_skip = -1
        return True

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    async def completed(self, result: CallResult) -> RunFinished:
        """The answer as it was given, or as far as it came."""
        completion = result.completion
        if not result.attempts[-1].streamed and not self._shown:
            if self._keeps_events and completion.dialect == "responses":
                self.add(*self._provider_events(events_of(completion)))
            elif self._keeps_events:
                self.add(*self._provider_events(message_deltas(completion.message)))
            self.add(*_chunk(completion.reasoning, thinking=True), *_chunk(completion.text, thinking=False))
        if result.incomplete is not None:
            return await self.failed(result.incomplete.error, completion)
        if self._ending is not None:
            self.add(ProviderAnswer("responses", decode_object(self._ending.data)["response"]))
        self.add(MessageRecorded(completion.message, completion.stop))
        return await self._seal("completed")

    async def failed(self, error: ProviderError, partial: Completion | None = None) -> RunFinished:
        """Text that was shown stands. The run is incomplete where another attempt might have gone on from it."""
        self.flush()
        if partial is not None and self._shown:
            self.add(MessageRecorded(partial.message, "cut"))
        return await self._seal(
            "incomplete" if self._shown and error.kind == "retryable" else "failed", failure_of(error)
        )

    async def stopped(self) -> RunFinished:
        """The client has disconnected, or a stop was asked for."""
        return await self._seal("stopped", RunFailure("stopped", "interrupted"))

    async def _seal(self, status: RunStatus, failure: RunFailure | None = None) -> RunFinished:
        self.flush()
        self.add(MessageStop(final=True))
        finished = RunFinished(status, self.text, self.usage, failure, time.time())
        await self._journal.seal(self._lease, finished)
        return finished


def _chunk(text: str, *, thinking: bool) -> list[AnyEvent]:
    if not text:
        return []
    return [ReasoningChunk(text) if thinking else MessageChunk(text)]
