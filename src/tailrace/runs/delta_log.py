"""From the deltas of a model call to a run's log: the one listener that writes.

Owns the numbers of attempts within the run, the buffer between reads and entries, what of the answer is on record, and
how a call goes on that an earlier process began. Which events the deltas become is a subclass's part: an agent filters
thoughts and secrets, a step writes `LlmDelta`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from tailrace.errors import ProviderError, Retryable
from tailrace.events import (
    AnswerKept,
    AnyEvent,
    AttemptDiscarded,
    AttemptStarted,
    GatewayNotice,
    LlmDelta,
    MessageChunk,
    ReasoningChunk,
    ToolArgumentsChunk,
    UsageRecorded,
)
from tailrace.events.attempt_text import AttemptText
from tailrace.messages import AnyDelta, EventDelta, EventRunDelta, ModelRequest, Usage
from tailrace.ports import WriteEvents
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller, CallResult
from tailrace.providers.call_listener import AttemptOutcome, CallListener
from tailrace.providers.deadlines import Purpose
from tailrace.providers.open_attempt import ResumableAnswer
from tailrace.wire.token_estimate import input_tokens

MAX_REASON_CHARS = 500
PENDING_DELTAS = 100  # are written before their time: a provider may send 60 kB in each (O178)
_NOTHING_USED = Usage()
_EVENTS: frozenset[type[AnyDelta]] = frozenset({EventDelta, EventRunDelta})


class DeltaLog(CallListener):
    """A `CallListener`, for one call after the other. `attempts` is how many the log has already, `shown` the text
    that an earlier process has logged. With `flush_every_s` deltas are buffered for so long, without the provider's own
    events, which only a log has that is written at every read; 0 writes every read.

    `resumed` is an answer that an earlier process has begun to log and that is now read again from its beginning: it
    goes on under its attempt's number, and what the log has of it is not written twice."""

    keeps_text: ClassVar[bool] = True  # a subclass that says no has its own `text` and `has_text`
    __slots__ = (
        *("_arguments_to_skip", "_asked", "_attempt", "_before_call", "_block_id", "_failure", "_flush_at"),
        *("_flush_every_s", "_input_tokens", "_loop", "_pending", "_reasoning_to_skip", "_resumes", "_retry_at"),
        *("_shown", "_text_to_skip", "_unwritten", "_write", "goes_on_later", "resumable", "streamed", "usage"),
    )

    def __init__(
        self,
        write: WriteEvents,
        *,
        attempts: int = 0,
        shown: str = "",
        block_id: str = "",
        flush_every_s: float = 0.0,
        resumed: ResumableAnswer | None = None,
    ) -> None:
        self._write = write
        self.goes_on_later: Callable[[], bool] = never  # whether another process takes the run over from this one
        self._resumes = resumed is not None
        self._text_to_skip = len(resumed.text) if resumed is not None else 0
        self._reasoning_to_skip = resumed.reasoning_chars if resumed is not None else 0
        self._arguments_to_skip = dict(resumed.arguments) if resumed is not None else {}
        self.resumable = resumed  # the answer of the attempt under way, where its provider keeps it
        self._input_tokens = 0  # of the request, estimated
        self._asked = ("", "")  # the provider and the model of that attempt
        self._failure = ""  # why the last attempt ended, where it failed
        self._retry_at: float | None = None  # when its provider may be asked again, by the wall clock
        self._attempt = attempts
        self._before_call = attempts  # the run's attempts before the call's first
        self._block_id = block_id
        self._flush_every_s = flush_every_s
        self._flush_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._pending: list[AnyDelta] = []
        self._unwritten: list[AnyEvent] = []  # facts that are written together with those that follow
        self._shown = AttemptText(shown, [(attempts if resumed is not None else 0, len(shown))] if shown else None)
        self.usage = _NOTHING_USED  # of all attempts
        self.streamed = False  # viewers have seen a part of the answer, or the attempt's answer came in pieces

    @property
    def attempts(self) -> int:
        """How many the log has."""
        return self._attempt

    @property
    def text(self) -> str:
        """The text that is on record, without withdrawn attempts."""
        return self._shown.text

    @property
    def has_text(self) -> bool:
        """Whether a chunk of text is on record, be it an empty one."""
        return bool(self._shown)

    def add(self, *events: AnyEvent) -> None:
        """Writes facts of the attempt under way."""
        self._add(events)

    def _add(self, events: Sequence[AnyEvent]) -> None:
        if self._text_to_skip or self._reasoning_to_skip or self._arguments_to_skip:
            events = [kept for event in events if (kept := self._beyond_record(event)) is not None]
        if self._unwritten:
            events, self._unwritten = [*self._unwritten, *events], []
        if self.keeps_text:
            for event in events:
                if event.__class__ is MessageChunk:
                    self._shown.add(event.text, self._attempt)
                elif event.__class__ is LlmDelta:
                    self._shown.add(event.delta, self._attempt)
        if events:
            self._write(self._attempt or 1, events)

    def _beyond_record(self, event: AnyEvent) -> AnyEvent | None:
        """The event without what the log has of a resumed answer; None where it has all of it."""
        if isinstance(event, ReasoningChunk):
            rest = event.text[self._reasoning_to_skip :]
            self._reasoning_to_skip -= len(event.text) - len(rest)
            return ReasoningChunk(rest) if rest else None
        if isinstance(event, ToolArgumentsChunk) and event.index in self._arguments_to_skip:
            rest = event.text[self._arguments_to_skip[event.index] :]
            self._arguments_to_skip[event.index] -= len(event.text) - len(rest)
            return msgspec.structs.replace(event, text=rest) if rest else None
        if not isinstance(event, MessageChunk | LlmDelta):
            return event
        text = event.text if isinstance(event, MessageChunk) else event.delta
        rest = text[self._text_to_skip :]
        self._text_to_skip -= len(text) - len(rest)
        if not rest:
            return None
        return MessageChunk(rest) if isinstance(event, MessageChunk) else msgspec.structs.replace(event, delta=rest)

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

    def record_usage(self, usage: Usage, provider: str, model: str, *, with_next: bool = False) -> None:
        """`with_next`: the log's next facts follow at once."""
        if usage == _NOTHING_USED:
            return
        self.usage = self.usage + usage if self.usage != _NOTHING_USED else usage
        recorded = UsageRecorded(usage, provider, model, self._block_id)
        if with_next:
            self._unwritten.append(recorded)
        else:
            self.add(recorded)

    # ── the call ─────────────────────────────────────────────────────────────────────────────────────────────

    async def complete(
        self,
        caller: Caller,
        request: ModelRequest,
        routes: Sequence[Route],
        *,
        listener: CallListener | None = None,
        purpose: Purpose = "turn",
        budget_s: float | None = None,
    ) -> CallResult:
        """Makes the call, which this log follows, or a `listener` that forwards to it. An answer that an earlier
        process began is read to its end where its provider has it; where it is lost, the call goes on from what is on
        record. Raises `ProviderError`, and what `start_over` raises."""
        listener = listener or self
        self._input_tokens = input_tokens(request)
        if self._resumes and (answer := self.resumable) is not None:
            before = msgspec.structs.replace(request, prefill=request.prefill.removesuffix(answer.text))
            result = await caller.reattach(
                answer, before, routes, listener=listener, purpose=purpose, budget_s=budget_s
            )
            if result is not None:
                return result
            self._forget_resumable()
            self.start_over()
            request = msgspec.structs.replace(request, prefill=self.text)
        return await caller.complete(request, routes, listener=listener, purpose=purpose, budget_s=budget_s)

    def start_over(self) -> None:
        """The answer that an earlier process began is lost, and is asked for anew, from the text on record."""

    # ── the listener ─────────────────────────────────────────────────────────────────────────────────────────

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        self._asked = (provider, model)
        if self._resumes:
            self._resumes = False
            self._before_call = self._attempt - number
            self.streamed = self.has_text
            return
        self.resumable = None
        self._text_to_skip = self._reasoning_to_skip = 0
        self._arguments_to_skip = {}
        self._attempt += 1
        self._before_call = self._attempt - number
        self.streamed = self.has_text
        started = self.started(provider, model)
        if self._failure or self._input_tokens:
            started = msgspec.structs.replace(started, previous_failure=self._failure, input_tokens=self._input_tokens)
        self._add((started,))

    def answer_resumable(self, answer_id: str) -> None:
        provider, model = self._asked
        self.resumable = ResumableAnswer(provider, model, answer_id, self._attempt, input_tokens=self._input_tokens)
        self.add(AnswerKept(provider, model, answer_id, self._block_id))

    def resumes_later(self) -> bool:
        return self.goes_on_later()

    def answer_lost(self, provider: str, error: ProviderError) -> None:
        text = f"⚠️ The answer that {provider} keeps cannot be read on; going on without it."
        self.add(GatewayNotice("answer_lost", text, {"provider": provider, "reason": str(error)[:MAX_REASON_CHARS]}))

    def event_skipped(self, provider: str, reason: str) -> None:
        text = f"⚠️ One event of {provider}'s answer could not be read: a piece of the text may be missing."
        self.add(GatewayNotice("event_skipped", text, {"provider": provider, "reason": reason[:MAX_REASON_CHARS]}))

    def deltas(self, deltas: list[AnyDelta]) -> None:
        self.streamed = True
        if not self._flush_every_s:
            self._add(self.to_events(deltas))
            return
        self._pending += [delta for delta in deltas if delta.__class__ not in _EVENTS]
        if (now := self._loop.time()) >= self._flush_at or self._pending[PENDING_DELTAS:]:
            self._flush_at = now + self._flush_every_s
            self.flush()

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        self.flush()
        self._end_attempt(attempt)

    def _end_attempt(self, attempt: AttemptOutcome) -> None:
        if not attempt.interrupted:
            self.resumable = None
        self._failure = str(attempt.error)[:MAX_REASON_CHARS] if attempt.error is not None else ""
        asked_s = attempt.error.retry_after_s if isinstance(attempt.error, Retryable) else None
        self._retry_at = round(time.time() + asked_s, 3) if asked_s else None
        has_answered = attempt.error is None and not attempt.interrupted
        # What is buffered for a second anyway waits for the end of its run, which follows an answer at once.
        with_end = has_answered and self._flush_every_s > 0
        self.record_usage(attempt.usage, attempt.provider, attempt.model, with_next=with_end)

    def _forget_resumable(self) -> None:
        self.resumable, self._resumes = None, False

    def attempt_discarded(self, number: int, reason: str) -> None:
        self._forget_resumable()
        withdrawn = self._before_call + number
        self._shown.withdraw(withdrawn)
        self._write(withdrawn, [AttemptDiscarded(reason[:MAX_REASON_CHARS], self._block_id, self._retry_at)])


def never() -> bool:
    return False


def always() -> bool:
    return True
