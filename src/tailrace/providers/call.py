"""One model call, whatever it takes: attempts, fail-over and what becomes of an answer that broke off. Ends in exactly
one result or one typed error. Knows no dialect and no transport; deadlines belong to an attempt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec

from tailrace.errors import ANSWER_TOO_LONG, Permanent, ProviderError, Retryable, RunSealed, StaleEpoch, TimedOut
from tailrace.events import UsageRecorded
from tailrace.messages import Completion, ModelRequest, Usage
from tailrace.ports import ReattachingProvider
from tailrace.providers import recovery_log
from tailrace.providers.attempt import Attempt, Route, StopCall, StoppedByListener
from tailrace.providers.call_listener import AttemptObserver, AttemptOutcome, CallGate, CallListener, CallMiddleware
from tailrace.providers.deadlines import Purpose
from tailrace.providers.no_streaming import NonStreamingRoutes
from tailrace.providers.open_attempt import ResumableAnswer
from tailrace.providers.provenance import with_maker, without_opaque_items
from tailrace.providers.reattach import Reattachment
from tailrace.providers.retry.continuation import continued, without_calls
from tailrace.providers.retry.route_order import RouteOrder
from tailrace.providers.text_only import TextOnlyModels
from tailrace.system.own_task import finish
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.peer_json import object_of
from tailrace.wire.token_estimate import with_estimate

_STALLS = ("first_token", "idle", "progress")
CANCEL_TIMEOUT_S = 2.0  # for telling a provider that a resumable answer is no longer wanted


class Incomplete(msgspec.Struct, frozen=True):
    """Why the answer is not whole. `open_calls` names the tools whose calls had begun, "" where the name had not
    arrived: none was run."""

    error: ProviderError
    open_calls: tuple[str, ...] = ()


class CallResult(msgspec.Struct, frozen=True):
    """One call's one answer."""

    completion: Completion
    attempts: tuple[AttemptOutcome, ...]
    incomplete: Incomplete | None = None
    begun: tuple[Completion, ...] = ()  # the cut answers from whose text it goes on

    @property
    def tried(self) -> tuple[str, ...]:
        """The providers asked, in order, each once."""
        return _tried(self.attempts)

    @property
    def provider(self) -> str:
        return self.attempts[-1].provider

    @property
    def usage(self) -> Usage:
        """Of all attempts together."""
        return sum((attempt.usage for attempt in self.attempts), Usage())


class Caller:
    """Makes calls. One per process. `middleware` wraps the listener of each call, the first one innermost; each of
    `observers` is called when an attempt has ended."""

    def __init__(
        self,
        *,
        rng: random.Random | None = None,
        non_streaming: NonStreamingRoutes | None = None,
        middleware: Sequence[CallMiddleware] = (),
        observers: Sequence[AttemptObserver] = (),
        gate: CallGate | None = None,
    ) -> None:
        self.rng = rng if rng is not None else random.Random()  # noqa: S311 - spreads retries, guards nothing
        self.non_streaming = non_streaming if non_streaming is not None else NonStreamingRoutes()
        self._middleware = middleware
        self._observers = observers
        self._gate = gate
        self.text_only = TextOnlyModels()
        # Shutdown hook: may block the failing call until the process cancels it, so that the next process retries it.
        # Awaited when all attempts have failed, and when a resumable answer is about to be given up; not where the
        # call's time is used up.
        self.before_giving_up: Callable[[ProviderError], Awaitable[None]] | None = None

    def complete(
        self,
        request: ModelRequest,
        routes: Sequence[Route],
        *,
        listener: CallListener | None = None,
        purpose: Purpose = "turn",
        budget_s: float | None = None,
    ) -> Coroutine[Any, Any, CallResult]:
        """The answer of the first route that gives one; each route's model replaces the request's. A `prefill` is text
        of this very answer that was shown before a crash.

        When an attempt fails, the listener's verdict decides what follows. Once attempts or `budget_s` are exhausted,
        text that stands and calls that were open come back as `incomplete`. Otherwise the error is raised: `Retryable`
        if any provider's was, with `tried`."""
        call = self._call(request, routes, listener)
        inside = self.entrance(request, routes)
        return call.run(purpose, budget_s) if inside is None else _run_inside(inside, call, purpose, budget_s)

    def entrance(self, request: ModelRequest, routes: Sequence[Route]) -> AbstractAsyncContextManager[None] | None:
        """The gate for a call that `complete` does not make, where there is one: see `CallGate`."""
        return self._gate(request, routes) if self._gate is not None else None

    async def reattach(
        self,
        answer: ResumableAnswer,
        request: ModelRequest,
        routes: Sequence[Route],
        *,
        listener: CallListener,
        purpose: Purpose = "turn",
        budget_s: float | None = None,
    ) -> CallResult | None:
        """The answer that an earlier process asked for with this request and that its provider keeps: the listener gets
        it from its beginning. None where it is lost (`answer_lost`): the caller goes on from what is on
        record. Raises `Permanent` where the provider ended the answer with an error that will come again, and the error
        of a `StopCall`."""
        route = _route_of(answer, routes)
        if route is None or not route.streams or not isinstance(route.provider, ReattachingProvider):
            await self.abandon(answer, routes, listener)
            return None
        call = self._call(request, [route], listener, has_stand_in=len(routes) > 1)
        return await call.reattach(answer, purpose, budget_s)

    async def abandon(self, answer: ResumableAnswer, routes: Sequence[Route], listener: CallListener) -> None:
        """Gives up an answer of an earlier process: its estimated usage is counted, and the provider is asked to
        stop."""
        outcome = AttemptOutcome(1, answer.provider, answer.model, answer.usage, interrupted=True)
        self.end_attempt(listener, outcome)
        await self.cancel_answer(answer, routes)

    async def cancel_answer(self, answer: ResumableAnswer, routes: Sequence[Route]) -> None:
        """Tells the provider to stop making an answer. Bounded, also where the task is cancelled; never raises."""
        if (route := _route_of(answer, routes)) is not None:
            await _cancel_answer(route, answer.id)

    def count_lost(self, recorded: UsageRecorded) -> None:
        """Tells the observers what an attempt of an earlier process has used, once that is durable in the run's
        log."""
        outcome = AttemptOutcome(1, recorded.provider, recorded.model, recorded.usage, interrupted=True)
        self.end_attempt(CallListener(), outcome)

    def end_attempt(self, listener: CallListener, ended: AttemptOutcome) -> None:
        """The log comes first: where another process has the run now, that one counts this attempt."""
        observers = self._observers
        try:
            listener.attempt_ended(ended)
        except (StaleEpoch, RunSealed):
            observers = ()
            raise
        finally:
            for observe in observers:
                observe(ended)

    def _call(
        self,
        request: ModelRequest,
        routes: Sequence[Route],
        listener: CallListener | None,
        *,
        has_stand_in: bool = False,
    ) -> _CallInProgress:
        if not routes:
            raise ValueError("a call needs at least one route")
        watched = self.watched(request, routes, listener if listener is not None else CallListener())
        return _CallInProgress(self, request, routes, watched, has_stand_in=has_stand_in)

    def watched(self, request: ModelRequest, routes: Sequence[Route], listener: CallListener) -> CallListener:
        """The listener of one call inside the middleware, which counts and traces what the listener gets."""
        for wrap in self._middleware:
            listener = wrap(request, routes, listener)
        return listener


async def _run_inside(
    inside: AbstractAsyncContextManager[None], call: _CallInProgress, purpose: Purpose, budget_s: float | None
) -> CallResult:
    async with inside:
        return await call.run(purpose, budget_s)


class _CallInProgress:
    """The state of one call between its attempts."""

    def __init__(
        self,
        caller: Caller,
        request: ModelRequest,
        routes: Sequence[Route],
        listener: CallListener,
        *,
        has_stand_in: bool = False,
    ) -> None:
        """`has_stand_in`: another call follows this one, with routes beyond its own."""
        self._caller = caller
        self._has_stand_in = has_stand_in
        self._request = request
        self._routes = routes
        self._listener = listener
        self._route_order = RouteOrder((route.policy for route in routes), caller.rng)
        self._outcomes: list[AttemptOutcome] = []
        self._standing: dict[int, Completion] = {}  # what came of attempts whose text was shown and not withdrawn
        self._shown = request.prefill  # that text, and what was shown before the call began
        self._newest: Completion | None = None  # the last answer of which anything came
        self._open_calls: tuple[str, ...] = ()  # of the last answer that made any: still to be done
        self._silent_s = 0.0

    async def run(self, purpose: Purpose, budget_s: float | None) -> CallResult:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + budget_s if budget_s is not None else float("inf")
        try:
            while (leg := self._route_order.next(loop.time())) is not None:
                index, wait_s = leg
                if self._outcomes:
                    if loop.time() + wait_s >= ends_at:
                        break
                    self._announce(self._routes[index], wait_s)
                if wait_s:
                    await asyncio.sleep(wait_s)
                left_s = ends_at - loop.time() if budget_s is not None else None
                result = await self._attempt(self._routes[index], purpose, left_s)
                if result is not None:
                    return result
            else:
                await self._hold(self._error())
            return self._give_up()
        finally:
            self._outcomes = []  # an error that is raised holds its frames, and they hold this call: no cycle

    async def reattach(self, answer: ResumableAnswer, purpose: Purpose, budget_s: float | None) -> CallResult | None:
        try:
            return await self._attempt(self._routes[0], purpose, budget_s, resumed=answer)
        finally:
            self._outcomes = []

    async def _attempt(
        self, route: Route, purpose: Purpose, budget_s: float | None, *, resumed: ResumableAnswer | None = None
    ) -> CallResult | None:
        """The call's result, or None where another attempt should follow."""
        outcome = AttemptOutcome(len(self._outcomes) + 1, route.provider.name, route.model)
        attempt = Attempt(
            route,
            self._request,
            self._shown,
            listener=self._listener,
            on_reattach=partial(self._reattach, route.provider.name),
            answer_id=resumed.id if resumed is not None else "",
        )
        again = attempt.reattachment
        self._listener.attempt_started(outcome.number, outcome.provider, outcome.model)
        try:
            is_last = self._route_order.is_last_at_route
            run = attempt.run(self._caller.non_streaming, purpose=purpose, budget_s=budget_s, is_last=is_last)
            completion = await (run if again is None else self._held_back(again, run))
        except ProviderError as exc:
            exc.__traceback__ = None  # it is kept, and the frames would keep the attempt with all that it received
            received = attempt.received()
            self._end(outcome, attempt, received, error=exc, resumed=resumed)
            if again is not None and again.id:
                recovery_log.log_lost(self._outcomes[-1])
                self._listener.answer_lost(route.provider.name, exc)
                await _cancel_answer(route, again.resumable_id)
                if resumed is not None:
                    if isinstance(exc, Permanent) and again.was_ended:
                        raise
                    return None
            self._route_order.failed(exc, asyncio.get_running_loop().time())
            recovered = self._recover(outcome.number, attempt, received, exc)
            if recovered is not None:
                await self._hold(self._error())
            return recovered
        except (asyncio.CancelledError, StoppedByListener) as exc:
            stop = StopCall(exc.error) if isinstance(exc, StoppedByListener) else None
            answer_id = again.resumable_id if again is not None else ""
            resumes_later = bool(answer_id) and stop is None and self._listener.resumes_later()
            received = attempt.received()
            self._end(outcome, attempt, received, interrupted=True, resumes_later=resumes_later, resumed=resumed)
            if stop is None:
                if not resumes_later:
                    await _cancel_answer(route, answer_id)
                raise
        else:
            self._end(outcome, attempt, completion)
            return self._answered(outcome, attempt, route, completion)
        await _cancel_answer(route, answer_id)
        try:
            raise stop.error
        finally:
            del stop  # this frame is in the error's traceback

    async def _held_back(self, again: Reattachment, run: Coroutine[Any, Any, Completion]) -> Completion:
        """Shutdown hook: may block before a try that would ask for a resumable answer a second time, until the process
        cancels it. The next process then resumes that answer."""
        try:
            return await run
        except ProviderError as exc:
            has_time = not (isinstance(exc, TimedOut) and exc.deadline == "total")
            has_stand_in = self._has_stand_in or self._route_order.has_other_route
            if again.resumable_id and self._listener.resumes_later() and has_time and not has_stand_in:
                await self._hold(exc)
            raise

    def _answered(self, outcome: AttemptOutcome, attempt: Attempt, route: Route, completion: Completion) -> CallResult:
        if route.streams and not attempt.streamed:
            recovery_log.log_answered_whole(outcome)
        if self._shown:
            completion = continued(completion, shown=self._shown, removed=attempt.removed)
        completion = with_maker(completion, provider=outcome.provider, model=outcome.model)
        return CallResult(completion, tuple(self._outcomes), begun=tuple(self._standing.values()))

    def _end(
        self,
        outcome: AttemptOutcome,
        attempt: Attempt,
        received: Completion | None,
        *,
        error: ProviderError | None = None,
        interrupted: bool = False,
        resumes_later: bool = False,
        resumed: ResumableAnswer | None = None,
    ) -> None:
        """`resumes_later`: a later attempt counts the answer. `resumed`: an earlier process has read some of it."""
        self._silent_s = attempt.silent_s
        usage = outcome.usage
        if received is not None:
            usage, reason, first_s = received.usage, received.finish_reason, attempt.first_token_s
            outcome = msgspec.structs.replace(
                outcome, answer_id=received.id, answer_model=received.model, finish_reason=reason, first_token_s=first_s
            )
            broke_off = interrupted or error is not None
            # A count that comes with the beginning of an answer grows until its end.
            counted = usage.output_tokens and reason if broke_off else _is_counted(received)
            if not counted and not resumes_later:
                usage = with_estimate(usage, self._request, received.message)
        if resumed is not None and not resumes_later and usage == Usage():
            usage = resumed.usage
        ended = msgspec.structs.replace(
            outcome, usage=usage, streamed=attempt.streamed, error=error, interrupted=interrupted
        )
        self._outcomes.append(ended)
        self._caller.end_attempt(self._listener, ended)

    def _recover(
        self, number: int, attempt: Attempt, received: Completion | None, error: ProviderError
    ) -> CallResult | None:
        """The ladder, after an attempt failed."""
        verdict = self._listener.verdict(error)
        if isinstance(verdict, StopCall):
            try:
                raise verdict.error
            finally:
                del verdict, error  # this frame is in the error's traceback
        text = received.text[attempt.removed :] if received is not None else ""
        if received is not None and (received.message.parts or received.has_unnamed_call):
            self._newest = received
            if (received.tool_calls or received.has_unnamed_call) and verdict != "restart":
                unnamed = ("",) if received.has_unnamed_call else ()
                self._open_calls = (*(call.name for call in received.tool_calls), *unnamed)
        too_long = error.code == ANSWER_TOO_LONG  # the next one would be too
        if received is None or not text.strip():
            self._discard(number)
            return self._give_up() if too_long else None
        self._shown += text
        last = self._outcomes[-1]
        self._standing[number] = with_maker(received, provider=last.provider, model=last.model)
        match verdict:
            case "continue" if too_long or not DIALECTS[received.dialect].has_one_answer(received.body):
                return self._incomplete()
            case "continue":
                return None
            case "keep":
                return self._incomplete()
            case "restart":
                self._discard(*self._standing)
                self._standing, self._shown, self._newest, self._open_calls = {}, self._request.prefill, None, ()
                return self._give_up() if too_long else None

    def _discard(self, *numbers: int) -> None:
        reason = str(self._outcomes[-1].error)
        for number in numbers:
            self._listener.attempt_discarded(number, reason)

    def _reattach(self, provider: str, error: ProviderError, silent_s: float) -> None:
        """The connection broke so, and the attempt reattaches to its answer."""
        recovery_log.log_reattaching(provider, error)
        if isinstance(error, TimedOut) and error.deadline in _STALLS:
            self._listener.stalled(provider, silent_s)

    def _announce(self, route: Route, wait_s: float) -> None:
        """What became of the last attempt, and that this route is asked next."""
        last = self._outcomes[-1]
        if isinstance(last.error, TimedOut) and last.error.deadline in _STALLS:
            recovery_log.log_stall(last, self._silent_s)
            self._listener.stalled(last.provider, self._silent_s)
        recovery_log.log_next_attempt(last, route.provider.name, route.model, wait_s)

    async def _hold(self, error: ProviderError) -> None:
        """Awaits the shutdown hook."""
        if self._caller.before_giving_up is not None:
            await self._caller.before_giving_up(error)

    def _give_up(self) -> CallResult:
        if self._newest is not None and (self._shown or self._open_calls):
            return self._incomplete()
        recovery_log.log_failed(self._outcomes)
        raise self._error()

    def _incomplete(self) -> CallResult:
        recovery_log.log_incomplete(self._outcomes, self._open_calls)
        return CallResult(self._kept(), tuple(self._outcomes), Incomplete(self._error(), self._open_calls))

    def _kept(self) -> Completion:
        """What stands as an answer of its own: the text shown, no tool call and nothing opaque."""
        if self._newest is None:
            raise AssertionError("text was shown, so an answer was received")
        kept = without_calls(self._newest)
        if kept.text != self._shown:
            kept = continued(kept, shown=self._shown, removed=len(kept.text))
        return without_opaque_items(kept)

    def _error(self) -> ProviderError:
        """The error to show for all that failed: it can be retried if the last one of any provider can."""
        last = {(one.provider, one.model): one.error for one in self._outcomes if one.error is not None}.values()
        error = next((error for error in reversed(last) if isinstance(error, Retryable)), next(reversed(last)))
        error.tried = _tried(self._outcomes)
        return error


def _route_of(answer: ResumableAnswer, routes: Sequence[Route]) -> Route | None:
    return next((r for r in routes if (r.provider.name, r.model) == (answer.provider, answer.model)), None)


async def _cancel_answer(route: Route, answer_id: str) -> None:
    """Comes to its end also where the task is cancelled: no other process would do it."""
    if answer_id and isinstance(provider := route.provider, ReattachingProvider):
        await finish(_request_cancellation(provider, route.provider.name, answer_id))


async def _request_cancellation(provider: ReattachingProvider, name: str, answer_id: str) -> None:
    try:
        async with asyncio.timeout(CANCEL_TIMEOUT_S):
            await provider.cancel_answer(answer_id)
    except (ProviderError, TimeoutError) as exc:
        recovery_log.log_not_cancelled(name, answer_id, exc)


def _is_counted(answer: Completion) -> bool:
    """Whether the provider has counted the tokens; zero is a count (N171)."""
    return bool(answer.usage.input_tokens or answer.usage.output_tokens or object_of(answer.body.get("usage")))


def _tried(outcomes: Sequence[AttemptOutcome]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(outcome.provider for outcome in outcomes))
