"""The log of one raw model call: its entries while it lasts, and its end.

A plain request is buffered and flushed once a second, because its client is fed directly and the log is for the record.
A stored one is written at every read, because its viewers read the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from tailrace.calls.raw_model import params_left_out
from tailrace.errors import JournalError, ProviderError, StreamCut
from tailrace.events import (
    AnyEvent,
    AttemptDiscarded,
    AttemptStarted,
    Entry,
    GatewayNotice,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ProviderAnswer,
    ProviderEvents,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStatus,
    UsageRecorded,
)
from tailrace.journal.fold import fold
from tailrace.messages import (
    AnyDelta,
    Completion,
    EventDelta,
    EventRunDelta,
    JsonObject,
    Message,
    NativeDelta,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from tailrace.ports import Journal, Lease
from tailrace.providers.attempt import Route, StopCall
from tailrace.providers.call import CallResult
from tailrace.providers.call_listener import AttemptOutcome, Verdict
from tailrace.providers.open_attempt import ResumableAnswer, open_attempts
from tailrace.runs.delta_log import DeltaLog
from tailrace.runs.failures import failure_of
from tailrace.runs.signals import INTERRUPTED
from tailrace.system.steady_time import clock_offset, steady_time
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.dialects import DIALECTS, RESPONSES
from tailrace.wire.peer_json import decode_object
from tailrace.wire.reasoning_seal import named_field
from tailrace.wire.responses.relayed_items import ENDINGS
from tailrace.wire.token_estimate import CHARS_PER_TOKEN, message_tokens
from tailrace.wire.translation.message_deltas import message_deltas

CALL_KIND: Final = "call"
FLUSH_EVERY_S: Final = 1.0
MAX_RECORDED_CHARS: Final = 4 * 1024 * 1024  # of a plain request's answer, which its client has whole (O178)
REQUEST_LEASE_S: Final = 86_400.0  # of a plain request: no other process can take it over


class RoutedRequest(msgspec.Struct, frozen=True):
    """A client's request and where it can go. `ignored`: the parameters that the first provider does not get, where
    that is known."""

    request: ClientRequest
    routes: Sequence[Route]
    ignored: tuple[str, ...] | None = None


class LoggedCall(msgspec.Struct, frozen=True):
    """What an earlier process has logged of a call."""

    shown: str = ""
    attempts: int = 0
    usage: Usage = Usage()
    resumable: ResumableAnswer | None = None
    began_call: bool = False  # viewers have seen a tool call begin

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> LoggedCall:
        facts = [entry.event for entry in entries]
        left = open_attempts(entries).get("")
        return cls(
            fold(entries).output,
            sum(isinstance(fact, AttemptStarted) for fact in facts),
            sum((fact.usage for fact in facts if isinstance(fact, UsageRecorded)), Usage()),
            left.resumable if left is not None else None,
            _began_a_tool_call(facts),
        )


def _began_a_tool_call(facts: Iterable[AnyEvent]) -> bool:
    """Whether the newest attempt on record has shown the beginning of a tool call in its provider's own events."""
    began = False
    for event in facts:
        if isinstance(event, AttemptStarted | AttemptDiscarded):
            began = False
        elif isinstance(event, ProviderEvents):
            items = (item for each in event.events if isinstance(item := each.get("item"), dict))
            began = began or any(item.get("type") in ("function_call", "custom_tool_call") for item in items)
    return began


NOTHING_LOGGED = LoggedCall()


class CallLog(DeltaLog):
    """Writes a call as the run of its lease. With `keep_events` the provider's own events are logged too, because
    clients are fed from the log."""

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        routed: RoutedRequest,
        *,
        flush_every_s: float = 0.0,
        logged: LoggedCall = NOTHING_LOGGED,
        keep_events: bool = False,
    ) -> None:
        """Each attempt names the parameters of the request that its provider does not get."""
        resumed = logged.resumable
        super().__init__(
            journal.writer(lease),
            attempts=logged.attempts,
            shown=logged.shown,
            flush_every_s=flush_every_s,
            resumed=resumed,
        )
        self.usage = logged.usage
        self._began_call = logged.began_call
        self._room = MAX_RECORDED_CHARS  # characters of a plain request's answer that its record still takes
        self._events_to_skip = resumed.last_event if resumed is not None else -1  # up to the one of this number
        self._journal = journal
        self._lease = lease
        self._clock_offset = clock_offset()
        self._keeps_events = keep_events
        self._ending: EventDelta | None = None  # the provider's last event, which has its whole answer
        self.called = False  # the attempt under way has begun a tool call; known after a flush, as is `several`
        self.several = False  # it answers more than once
        self._relays = False  # viewers see its provider's own events
        self._routed = routed
        self._route: Route | None = None  # of the attempt under way
        self._first_ignored = routed.ignored  # until the first attempt
        self._ignored: tuple[str, ...] = ()  # the parameters that the log names as not sent to its provider

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        self.called = self.several = self._relays = False
        self._ending = None
        if not self._resumes:
            self._events_to_skip = -1
        super().attempt_started(number, provider, model)

    def started(self, provider: str, model: str) -> AttemptStarted:
        self._route = None
        for route in self._routed.routes:
            if route.provider.name == provider and route.model == model:
                self._route = route
                break
        if self._route is None:
            return super().started(provider, model)
        ignored, self._first_ignored = self._first_ignored, None
        if ignored is None or self._route is not self._routed.routes[0]:
            ignored = params_left_out(self._route, self._routed.request)
        self._ignored = ignored
        return AttemptStarted(provider, model, dialect=self._route.provider.dialect, ignored=self._ignored)

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        """A parameter that the provider was found to refuse in this attempt is named too."""
        super().attempt_ended(attempt)
        route, request = self._route, self._routed.request
        if route is not None and attempt.error is None and route.provider.dialect != request.dialect:
            left_out = params_left_out(route, request)
            for name in [name for name in left_out if name not in self._ignored]:
                text = f"{attempt.provider}/{attempt.model} refuses {name} and was asked without it"
                self.add(GatewayNotice("ignored", text, {"ignored": name}))

    def start_over(self) -> None:
        """Raises `StreamCut` where viewers have seen a tool call begin: it is not begun again (B34)."""
        if self._began_call or self.called:
            raise StreamCut("the process ended in the middle of a tool call; ask again")

    def verdict(self, error: ProviderError) -> Verdict:
        """A call that viewers of the log have seen begin is not begun again (B34). They see it in the provider's own
        events; a call of another dialect is logged when it is whole."""
        return StopCall(error) if self.called and self._relays else super().verdict(error)

    def to_events(self, deltas: list[AnyDelta]) -> list[AnyEvent]:
        """The text and the thoughts of the first choice, neighbours of a kind as one chunk, after the provider's own
        events. What its next request needs of reasoning of another dialect stands where it came (K131)."""
        if len(deltas) == 1 and (only := deltas[0]).__class__ is TextDelta and not only.choice:  # the steady state
            return [MessageChunk(only.text)] if only.text else []
        events: list[AnyEvent] = self._provider_events(deltas) if self._keeps_events else []
        pieces: list[str] = []
        thinking = False  # the pieces are thoughts
        for delta in deltas:
            if delta.__class__ is TextDelta or delta.__class__ is ReasoningDelta:
                if delta.choice or self._room < 0:
                    self.several = self.several or bool(delta.choice)
                    continue
                if thinking is not (delta.__class__ is ReasoningDelta):
                    events += _chunk("".join(pieces), thinking=thinking)
                    pieces, thinking = [], not thinking
                pieces.append(delta.text)
            elif delta.__class__ is ToolCallDelta:
                self.called = True
            elif self._keeps_events and delta.__class__ is NativeDelta and _is_logged(delta):
                events += _chunk("".join(pieces), thinking=thinking)
                events.append(ProviderEvents(delta.dialect, (delta.item,)))
                pieces = []
        return events + _chunk("".join(pieces), thinking=thinking)

    def _provider_events(self, deltas: Iterable[AnyDelta]) -> list[AnyEvent]:
        """The answer's last event is kept for its end: it has the whole body."""
        kept: list[JsonObject] = []
        for delta in deltas:
            if delta.__class__ is EventRunDelta:
                kept += [event for each in delta.events() if self._is_new(event := decode_object(each.data))]
            elif delta.__class__ is EventDelta:
                if delta.name in ENDINGS:
                    self._ending = delta
                elif self._is_new(event := decode_object(delta.data)):
                    kept.append(event)
        self._relays = self._relays or bool(kept)
        return [ProviderEvents(RESPONSES.name, tuple(kept))] if kept else []

    def _add(self, events: Sequence[AnyEvent]) -> None:
        """The record of a plain request has the beginning of a long answer."""
        super()._add([kept for event in events for kept in self._within_room(event)] if self._flush_every_s else events)

    def _within_room(self, event: AnyEvent) -> Sequence[AnyEvent]:
        if event.__class__ is MessageChunk or event.__class__ is ReasoningChunk:
            room, self._room = self._room, self._room - len(event.text)
            if self._room >= 0:
                return (event,)
            kept = _chunk(event.text[: max(0, room)], thinking=event.__class__ is ReasoningChunk)
            return [*kept, GatewayNotice("cut", "The rest of this long answer is on no record.")] if room >= 0 else kept
        if event.__class__ is not MessageRecorded:
            return (event,)
        if message_tokens((event.message,)) * CHARS_PER_TOKEN <= MAX_RECORDED_CHARS:
            return (event,)
        said = (Text(self.text),) if self.text else ()
        return (MessageRecorded(Message("assistant", said), event.stop, event.stop_sequence),)

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

    def completed(self, result: CallResult) -> RunFinished:
        """Logs the answer as it was given, or as far as it came; the end is to be sealed."""
        completion = result.completion
        if not result.attempts[-1].streamed and not self._shown:
            if self._keeps_events and not DIALECTS[completion.dialect].logs_events:
                self.add(*self.to_events(list(message_deltas(completion.message))))
            else:
                if self._keeps_events:
                    self.add(*self._provider_events(DIALECTS[completion.dialect].events_of_body(completion.body)))
                self.add(*_chunk(completion.reasoning, thinking=True), *_chunk(completion.text, thinking=False))
        if result.incomplete is not None:
            return self.failed(result.incomplete.error, completion)
        if self._ending is not None:
            self.add(ProviderAnswer(RESPONSES.name, decode_object(self._ending.data)["response"]))
        return self._end(MessageRecorded(completion.message, completion.stop), status="completed")

    def failed(self, error: ProviderError, partial: Completion | None = None) -> RunFinished:
        """Text that was shown stands. The run is incomplete where another attempt might have gone on from it."""
        self.flush()
        said = [MessageRecorded(partial.message, "cut")] if partial is not None and self._shown else []
        status: RunStatus = "incomplete" if self._shown and error.kind == "retryable" else "failed"
        return self._end(*said, status=status, failure=failure_of(error))

    def stopped(self, failure: RunFailure = INTERRUPTED) -> RunFinished:
        """The client has disconnected, or a stop was asked for."""
        return self._end(status="stopped", failure=failure)

    def _end(self, *said: AnyEvent, status: RunStatus, failure: RunFailure | None = None) -> RunFinished:
        self.flush()
        self._add((*said, MessageStop(final=True)))
        return RunFinished(status, self.text, self.usage, failure, steady_time(self._clock_offset))

    async def seal(self, finished: RunFinished) -> RunFinished:
        """Ends the run, durably."""
        await self._journal.seal(self._lease, finished)
        return finished

    def seal_soon(self, finished: RunFinished, then: Callable[[JournalError | None], None]) -> None:
        """Ends the run without waiting, as the journal's method does."""
        self._journal.seal_soon(self._lease, finished, then)


def _is_logged(delta: NativeDelta) -> bool:
    """Whether it says where reasoning was, signs it, or names what a text rests on; of the first choice."""
    match delta.item:
        case {"delta": {"type": "signature_delta"} | {"annotations": _}} | {"start": {"type": "redacted_thinking"}}:
            return not delta.choice
        case {"cited": _}:
            return not delta.choice
        case _:
            return named_field(delta) is not None and not delta.choice


def _chunk(text: str, *, thinking: bool) -> list[AnyEvent]:
    return [ReasoningChunk(text) if thinking else MessageChunk(text)] if text else []
