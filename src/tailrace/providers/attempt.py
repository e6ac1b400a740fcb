"""One try of a call at one provider: streaming and its deadlines, the non-streaming path where streaming fails, and
what is known of a try that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, NoReturn, Protocol

import msgspec

from tailrace import messages
from tailrace.config.sections import CallPolicy
from tailrace.errors import EMPTY_ANSWER, PeerError, Permanent, ProviderError
from tailrace.messages import AnyDelta, Completion, EventDelta, ModelRequest, TextDelta, ToolCallDelta
from tailrace.ports import AnswerStream, Provider, ReattachingProvider
from tailrace.providers.deadlines import AttemptDeadlines, DeadlineWatch, Purpose, deadlines_of
from tailrace.providers.no_streaming import NonStreamingRoutes, better_error, may_be_the_stream, says_no_streaming
from tailrace.providers.provenance import replayable_messages
from tailrace.providers.reattach import Reattachment
from tailrace.providers.retry.overlap import Overlap
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.token_estimate import request_tokens


class StopCall(msgspec.Struct, frozen=True):
    """A listener's verdict that ends the call: no other attempt follows, and `Caller.complete` raises `error`."""

    error: Exception


class StoppedByListener(Exception):
    """Carries a `StopCall` out of an attempt. Never leaves `Caller.complete`."""

    def __init__(self, error: Exception) -> None:
        self.error = error


# Deltas that show no viewer anything.
_SILENT: Final = frozenset({messages.UsageDelta, messages.FinishDelta, EventDelta})


class Route(msgspec.Struct, frozen=True):
    """A model at a provider, with the deadlines and retries of calls there."""

    provider: Provider
    model: str
    policy: CallPolicy = CallPolicy()
    local: bool = False  # on this machine or network: silence is given more time
    streams: bool = True  # False: every answer is asked for whole
    raw: bool = False  # the client gets what the provider says, an empty answer too


class AttemptListener(Protocol):
    """What an attempt reports as a `CallListener` takes it."""

    def deltas(self, deltas: list[AnyDelta]) -> StopCall | None: ...

    def relay(self, form: messages.EventForm, /) -> Callable[[bytes], float] | None: ...

    def relayed(self, deltas: list[AnyDelta], times: list[float], /) -> StopCall | None: ...

    def event_skipped(self, provider: str, reason: str) -> None: ...

    def answer_resumable(self, answer_id: str) -> None: ...


class Attempt:
    """Runs once. Afterwards, however it ended, it holds what was received."""

    def __init__(
        self,
        route: Route,
        request: ModelRequest,
        shown: str,
        *,
        listener: AttemptListener,
        on_reattach: Callable[[ProviderError, float], None],
        answer_id: str = "",
    ) -> None:
        """`on_reattach` is called with the error that broke a connection and the seconds of silence before it.
        `answer_id`: an earlier process asked for this answer, which is read from its beginning."""
        self._route = route
        self.reattachment: Reattachment | None = None  # where the provider may keep the answer
        if isinstance(provider := route.provider, ReattachingProvider):
            self.reattachment = Reattachment(provider, route.policy, listener.answer_resumable, answer_id)
        self._purpose: Purpose = "turn"
        history = replayable_messages(request.messages, provider=route.provider.name, model=route.model)
        self._request = msgspec.structs.replace(request, model=route.model, messages=history, prefill=shown.rstrip())
        self._shown = shown
        self._seam = Overlap(shown) if shown else None
        self._on_reattach = on_reattach
        self._listener = listener
        self._sink = listener.deltas
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.first_token_s: float | None = None
        self._watch: DeadlineWatch  # of the connection that is read
        self._answer: AnswerStream | None = None
        self._done: Completion | None = None
        self._has_deltas = False
        self._has_shown = False
        self.streamed = True
        self.silent_s = 0.0  # how long nothing of an answer had come when it ended

    async def run(
        self, memory: NonStreamingRoutes, *, purpose: Purpose, budget_s: float | None, is_last: bool = False
    ) -> Completion:
        """`is_last`: the route has no other attempt. Raises `ProviderError`, or `StoppedByListener`."""
        route = self._route
        self._purpose = purpose
        deadlines = deadlines_of(route.policy, purpose=purpose, context_tokens=0, local=route.local)
        if budget_s is not None:
            total_s = budget_s if deadlines.total_s is None else min(deadlines.total_s, budget_s)
            deadlines = msgspec.structs.replace(deadlines, total_s=total_s)
        if not route.streams:
            return await self._run_whole(deadlines.total_s)
        if memory.routes:
            place = route.provider.name, route.model
            if (known := memory.holds(*place)) or memory.is_suspect(*place, is_last=is_last):
                return await self._run_whole_instead(deadlines.total_s, memory, known=known)
        started_at = self._loop.time()
        try:
            opening = route.provider.stream(self._request)
            if (again := self.reattachment) is None:
                completion = self._checked(await self._read(opening, deadlines))
            else:
                completion = self._checked(await self._run_resumable(again, opening, deadlines))
        except ProviderError as exc:
            left_s = deadlines.total_s - (self._loop.time() - started_at) if deadlines.total_s is not None else None
            return await self._after_failed_stream(exc, left_s, memory)
        if memory.routes:
            memory.forget(route.provider.name, route.model)
        return completion

    async def _after_failed_stream(
        self, error: ProviderError, left_s: float | None, memory: NonStreamingRoutes
    ) -> Completion:
        """The whole answer to a stream that was rejected, at once. Any other failure is raised."""
        place = self._route.provider.name, self._route.model
        if error.code == EMPTY_ANSWER:  # it may be lost in the stream alone
            memory.suspect(*place)
            raise error
        if self._has_shown:
            memory.forget(*place)
            raise error
        refused = says_no_streaming(error)
        rejected = isinstance(error, Permanent) and may_be_the_stream(error) and not self._shown
        if self._has_deltas or not (refused or rejected) or (left_s is not None and left_s <= 0):
            if not isinstance(error, Permanent) and may_be_the_stream(error):
                memory.suspect(*place)
            raise error
        self._seam = Overlap(self._shown) if self._shown else None  # the refused stream has used up the first
        try:
            completion = await self._run_whole(left_s)
        except ProviderError as whole:
            raise whole if refused else better_error(error, whole) from None
        memory.remember(*place, refused=refused)
        return completion

    async def _run_whole_instead(self, total_s: float | None, memory: NonStreamingRoutes, *, known: bool) -> Completion:
        """The whole answer of a route that does not stream: that is `known`, or its last stream failed."""
        place = self._route.provider.name, self._route.model
        try:
            completion = await self._run_whole(total_s)
        except Permanent:
            memory.forget(*place)  # it may be one that does nothing but stream
            raise
        except ProviderError:
            memory.acquit(*place)
            raise
        if not known and not self._shown:  # what was shown may be its own: then it streams
            memory.remember(*place, refused=False)
        return completion

    def received(self) -> Completion | None:
        """What came, whole or not; None where there was no answer at all. Rebuilds it: ask once."""
        if self._done is not None:
            return self._done
        return self._answer.completion() if self._answer is not None else None

    @property
    def removed(self) -> int:
        """Characters at the beginning of its text that repeated what was shown before it."""
        return self._seam.removed if self._seam is not None else 0

    async def _run_resumable(
        self, again: Reattachment, opening: AbstractAsyncContextManager[AnswerStream], deadlines: AttemptDeadlines
    ) -> Completion:
        """Each connection has its own deadlines; the total one is the attempt's."""
        ends_at = self._loop.time() + deadlines.total_s if deadlines.total_s is not None else float("inf")
        if again.id:
            opening = again.connection(self._request)
        while True:
            try:
                return await self._read(opening, deadlines)
            except ProviderError as exc:
                wait_s = again.wait_s(exc, ends_at - self._loop.time())
                if wait_s is None:
                    self._show_held_back()
                    if (cause := again.cause_of(exc)) is not exc:
                        raise cause from exc
                    raise
                self._on_reattach(exc, self.silent_s)
            except BaseException:
                self._close_seam()
                raise
            await asyncio.sleep(wait_s)
            if deadlines.total_s is not None:
                deadlines = msgspec.structs.replace(deadlines, total_s=ends_at - self._loop.time())
            opening = again.connection(self._request)

    async def _read(
        self, opening: AbstractAsyncContextManager[AnswerStream], deadlines: AttemptDeadlines
    ) -> Completion:
        """What one connection brings, to the end of the answer."""
        watch = self._watch = DeadlineWatch(deadlines, provider=self._route.provider.name, leniency=self)
        with watch:
            try:
                async with opening as answer:
                    self._answer = answer
                    if self.reattachment is not None:
                        self.reattachment.note(answer)
                    if deadlines.idle_from_opening:
                        watch.note_open()
                    if self.reattachment is None and self._seam is None:
                        answer.relay_to(self._listener.relay, self._take_relayed)
                    await answer.pump(self._take_read)
            except BaseException:
                self.silent_s = watch.silent_s()
                if self.reattachment is None:
                    self._close_seam()
                raise
        self._done = answer.completion()
        if self._has_deltas:
            if self._seam is not None:
                self._show_rest(self._seam.close())
        else:  # it came whole although a stream was asked for
            self._come_whole(self._done)
        return self._done

    def _take_read(self, deltas: list[AnyDelta]) -> None:
        """Takes the deltas of one read. The transport calls it as the bytes arrive, outside the task that waits for the
        end of the answer, and once for a token: nothing is done here that was done before."""
        # A text delta of a durable run on its way to an SSE viewer, by the names of what is called:
        # Attempt._take_read -> _sink (the listener's `deltas`, behind the middleware's) -> DeltaLog.deltas -> to_events
        # -> _add -> _write (`Journal.writer`) -> the group commit -> Tail.publish -> LiveViewers.offer -> the viewer's
        # `offer` -> the `take` of its `follow` -> EventStream.send.
        again, watch = self.reattachment, self._watch
        if again is not None and not again.id:
            again.note_id()
        for delta in deltas:
            if delta.__class__ is not EventDelta:
                if watch.begun:
                    watch.bytes_at = watch.advanced_at = self._loop.time()
                else:
                    watch.note_bytes(advanced=True)
                break
        else:
            watch.note_bytes(advanced=False)
            if deltas and (stop := self._take(deltas, advanced=False)) is not None:
                _stop(stop)
            return
        is_plain = self._has_shown and again is None and self._seam is None
        stop = self._sink(deltas) if is_plain else self._take(deltas, advanced=True)
        if stop is not None:
            _stop(stop)

    def _take_relayed(self, deltas: list[AnyDelta], times: list[float]) -> None:
        """Takes the deltas of events that the client has already."""
        self._watch.bytes_at = self._watch.advanced_at = times[-1]
        if (stop := self._listener.relayed(deltas, times)) is not None:
            _stop(stop)

    def relayed_at(self) -> float:
        return self._answer.relayed_at() if self._answer is not None else 0.0

    def _take(self, deltas: list[AnyDelta], *, advanced: bool) -> StopCall | None:
        if advanced:
            if not self._has_deltas:
                self.first_token_s = self._loop.time() - self._began
            self._has_deltas = True
            if self.reattachment is not None:
                self.reattachment.progressed()
        if not self._has_shown:
            for delta in deltas:
                if delta.__class__ not in _SILENT:
                    self._has_shown = True
                    break
        return self._sink(deltas) if self._seam is None else self._pass_on(deltas, self._seam)

    def lengthened(self, deadlines: AttemptDeadlines) -> AttemptDeadlines:
        """By the size of the context, which is measured only where one of the shorter deadlines is about to pass."""
        route, tokens = self._route, request_tokens(self._request)
        longer = deadlines_of(route.policy, purpose=self._purpose, context_tokens=tokens, local=route.local)
        return msgspec.structs.replace(longer, total_s=deadlines.total_s)

    def _show_held_back(self) -> None:
        """No other connection follows: what waited for one is shown."""
        if self._answer is not None and (rest := self._answer.release_rest()):
            self._take(rest, advanced=True)
        self._close_seam()

    def _close_seam(self) -> None:
        if self._seam is not None:
            self._seam.close(cut=True)

    async def _run_whole(self, total_s: float | None) -> Completion:
        self.streamed = False
        provider = self._route.provider
        with DeadlineWatch(AttemptDeadlines(total_s=total_s), provider=provider.name):
            completion = await provider.complete(self._request)
        self._come_whole(completion)
        return self._checked(completion)

    def _checked(self, completion: Completion) -> Completion:
        """An answer that says it calls a tool and does not, or says nothing at all, has failed (N158): so has one whose
        calls may not be all that were made, because an event was left out (N157). Raises `PeerError`."""
        skipped = self._answer.skipped if self._answer is not None else ""
        if skipped and (completion.tool_calls or completion.has_unnamed_call):
            raise PeerError(f"an event of an answer with tool calls could not be read: {skipped}")
        if not self._route.raw and _is_empty(completion, may_be_blank=bool(self._shown or self._request.stop)):
            what = "announces tool calls and has none" if _announces_calls(completion) else "is empty"
            raise PeerError(f"the answer {what}", code=EMPTY_ANSWER)
        if skipped:
            self._listener.event_skipped(self._route.provider.name, skipped)
        return completion

    def _come_whole(self, completion: Completion) -> None:
        """No deltas, unless they are the rest of a text whose beginning was shown."""
        self.streamed = False
        self._done = completion
        if self._seam is not None:
            text = self._seam.feed(completion.text) + self._seam.close()
            self._show_rest(text)

    def _pass_on(self, deltas: list[AnyDelta], seam: Overlap) -> StopCall | None:
        out: list[AnyDelta] = []
        for delta in deltas:
            match delta:
                case TextDelta(text, 0):
                    if text := seam.feed(text):
                        out.append(TextDelta(text))
                case ToolCallDelta() | messages.FinishDelta():
                    if text := seam.close():
                        out.append(TextDelta(text))
                    out.append(delta)
                case _:
                    out.append(delta)
        return self._sink(out) if out else None

    def _show_rest(self, text: str) -> None:
        """The last piece of a continuation. Raises `StoppedByListener`."""
        if text and (stop := self._sink([TextDelta(text)])) is not None:
            _stop(stop)

    def is_thinking(self) -> bool:
        """The last thing the model did was to open a thought: keep-alives are all one hears of it (C47)."""
        received = self.received()
        return received is not None and isinstance((received.message.parts or (None,))[-1], messages.Reasoning)


def _is_empty(completion: Completion, *, may_be_blank: bool) -> bool:
    """`may_be_blank`: a continuation may have nothing to add, and a stop string may come first."""
    if completion.tool_calls or completion.has_unnamed_call:
        return False
    if _announces_calls(completion):
        return True
    says = any(not isinstance(part, messages.Reasoning | messages.Text) for part in completion.message.parts)
    has_ended = completion.stop in ("end", "unknown")
    return has_ended and not (may_be_blank or says or completion.refusal or completion.text.strip())


def _announces_calls(completion: Completion) -> bool:
    return DIALECTS[completion.dialect].stop_of(completion.finish_reason) == "tools"


def _stop(stop: StopCall) -> NoReturn:
    raise StoppedByListener(stop.error)
