"""One model call, whatever it takes: attempts, fail-over and what becomes of an answer that broke off.

Owns the first half of the recovery ladder. Ends in exactly one result or one typed error, and tells a listener
what happens on the way. Knows no dialect and no transport; deadlines are an attempt's own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from tailrace.errors import ProviderError, Retryable, TimedOut
from tailrace.messages import AnyDelta, Completion, ModelRequest, Usage
from tailrace.providers.attempt import Attempt, Route
from tailrace.providers.continuation import can_be_continued, continued, without_calls
from tailrace.providers.deadlines import Purpose
from tailrace.providers.no_streaming import NonStreamingRoutes
from tailrace.providers.provenance import bare, signed
from tailrace.providers.route_order import RouteOrder

Recovery = Literal["continue", "restart", "keep"]
OnCut: TypeAlias = Recovery | Callable[[Completion], Recovery]
_STALLS = ("first_token", "idle", "progress")


class AttemptOutcome(msgspec.Struct, frozen=True):
    """What became of one try. `error` is None where it gave the answer, or where the caller interrupted it."""

    number: int  # 1, 2, 3 … within the call
    provider: str
    model: str
    usage: Usage = Usage()  # as far as it is known: also of a try that failed or was interrupted
    answer_id: str = ""  # as the provider named it; so are the model that it says has answered, and why that ended
    answer_model: str = ""
    finish_reason: str = ""
    streamed: bool = True
    error: ProviderError | None = None
    interrupted: bool = False


class Incomplete(msgspec.Struct, frozen=True):
    """Why the answer is not whole. `open_calls` names the tools whose calls were under way: none was run."""

    error: ProviderError
    open_calls: tuple[str, ...] = ()


class CallResult(msgspec.Struct, frozen=True):
    """One call's one answer."""

    completion: Completion
    attempts: tuple[AttemptOutcome, ...]
    incomplete: Incomplete | None = None

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


class CallListener(Protocol):
    """Told what happens, in order, on the loop; must return quickly. Every attempt that started either stands (the
    next one goes on from its text, or it was the last) or is discarded."""

    def attempt_started(self, number: int, provider: str, model: str) -> None: ...

    def deltas(self, deltas: list[AnyDelta]) -> None:
        """Pieces of the current attempt's answer, as many as arrived together. An answer that was not streamed has
        none, but for the rest of a text whose beginning was shown."""

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        """Also for one that is interrupted: its usage, as far as it is known."""

    def attempt_discarded(self, number: int, reason: str) -> None:
        """Whatever this attempt showed is withdrawn."""

    def stalled(self, provider: str, silent_s: float) -> None:
        """The provider fell silent for so long and is given up; another attempt follows."""


class NullListener:
    """Listens to nothing. A listener that cares for some of it derives from this."""

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        pass

    def deltas(self, deltas: list[AnyDelta]) -> None:
        pass

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        pass

    def attempt_discarded(self, number: int, reason: str) -> None:
        pass

    def stalled(self, provider: str, silent_s: float) -> None:
        pass


class Caller:
    """Makes calls. One per process: it remembers who does not stream."""

    def __init__(self, *, rng: random.Random | None = None, refusals: NonStreamingRoutes | None = None) -> None:
        self._rng = rng if rng is not None else random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._refusals = refusals if refusals is not None else NonStreamingRoutes()

    async def complete(
        self,
        request: ModelRequest,
        routes: Sequence[Route],
        *,
        listener: CallListener | None = None,
        on_cut: OnCut = "continue",
        purpose: Purpose = "turn",
        budget_s: float | None = None,
    ) -> CallResult:
        """The answer of the first route that gives one; each route's model replaces the request's. A request with a
        `prefill` goes on from it from the first attempt: text of this very answer that was shown before a crash.

        `on_cut` says what to do when text was shown and the stream broke: go on from it, start over (`restart`
        withdraws it), or leave it (`keep`). Nothing shown: the next attempt follows in silence. Once attempts or
        `budget_s` are exhausted, text that stands and calls that were open come back as `incomplete`; otherwise
        the error is raised: `Retryable` if any provider's was, with `tried`.
        """
        if not routes:
            raise ValueError("a call needs at least one route")
        listener = listener if listener is not None else NullListener()
        call = _Call(self._rng, self._refusals, request, routes, listener, on_cut)
        return await call.run(purpose, budget_s)


class _Call:
    """The state of one call between its attempts."""

    def __init__(
        self,
        rng: random.Random,
        refusals: NonStreamingRoutes,
        request: ModelRequest,
        routes: Sequence[Route],
        listener: CallListener,
        on_cut: OnCut,
    ) -> None:
        self._refusals = refusals
        self._request = request
        self._routes = routes
        self._listener = listener
        self._on_cut = on_cut
        self._itinerary = RouteOrder([route.policy for route in routes], rng)
        self._attempts: list[AttemptOutcome] = []
        self._standing: list[int] = []  # attempts whose text was shown and not withdrawn
        self._shown = request.prefill  # that text, and what was shown before the call began
        self._newest: Completion | None = None  # the last answer of which anything came
        self._open_calls: tuple[str, ...] = ()  # of the last answer that made any: still to be done
        self._silent_s = 0.0

    async def run(self, purpose: Purpose, budget_s: float | None) -> CallResult:
        now = asyncio.get_running_loop().time
        ends_at = now() + budget_s if budget_s is not None else float("inf")
        while (leg := self._itinerary.next(now())) is not None:
            index, wait_s = leg
            if self._attempts and now() + wait_s >= ends_at:
                break
            self._announce_stall()
            if wait_s:
                await asyncio.sleep(wait_s)
            left_s = ends_at - now() if budget_s is not None else None
            result = await self._attempt(self._routes[index], purpose, left_s)
            if result is not None:
                return result
        return self._give_up()

    async def _attempt(self, route: Route, purpose: Purpose, budget_s: float | None) -> CallResult | None:
        """The call's result, or None where another attempt should follow."""
        attempt = AttemptOutcome(len(self._attempts) + 1, route.provider.name, route.model)
        one = Attempt(route, self._request, self._shown, self._listener.deltas)
        self._listener.attempt_started(attempt.number, attempt.provider, attempt.model)
        try:
            completion = await one.run(self._refusals, purpose=purpose, budget_s=budget_s)
        except ProviderError as exc:
            received = one.received()
            self._end(attempt, one, received, error=exc)
            self._itinerary.failed(exc, asyncio.get_running_loop().time())
            return self._recover(attempt.number, one, received)
        except asyncio.CancelledError:
            self._end(attempt, one, one.received(), interrupted=True)
            raise
        self._end(attempt, one, completion)
        if self._shown:
            completion = continued(completion, shown=self._shown, removed=one.removed)
        completion = signed(completion, provider=attempt.provider, model=attempt.model)
        return CallResult(completion, tuple(self._attempts))

    def _end(
        self,
        attempt: AttemptOutcome,
        one: Attempt,
        received: Completion | None,
        *,
        error: ProviderError | None = None,
        interrupted: bool = False,
    ) -> None:
        self._silent_s = one.silent_s
        ended = msgspec.structs.replace(attempt, streamed=one.streamed, error=error, interrupted=interrupted)
        if received is not None:
            ended = msgspec.structs.replace(
                ended,
                usage=received.usage,
                answer_id=received.id,
                answer_model=received.model,
                finish_reason=received.finish_reason,
            )
        self._attempts.append(ended)
        self._listener.attempt_ended(self._attempts[-1])

    def _recover(self, number: int, one: Attempt, received: Completion | None) -> CallResult | None:
        """The ladder, after an attempt failed."""
        text = received.text[one.removed :] if received is not None else ""
        if received is not None and received.message.parts:
            self._newest = received
            if received.tool_calls and self._on_cut != "restart":
                self._open_calls = tuple(call.name for call in received.tool_calls)
        if not text.strip():
            self._discard(number)
            return None
        self._standing.append(number)
        self._shown += text
        match self._on_cut if isinstance(self._on_cut, str) else self._on_cut(self._kept()):
            case "continue" if received is not None and not can_be_continued(received):
                return self._incomplete()
            case "continue":
                return None
            case "keep":
                return self._incomplete()
            case "restart":
                self._discard(*self._standing)
                self._standing, self._shown, self._newest, self._open_calls = [], self._request.prefill, None, ()
                return None

    def _discard(self, *numbers: int) -> None:
        reason = str(self._attempts[-1].error)
        for number in numbers:
            self._listener.attempt_discarded(number, reason)

    def _announce_stall(self) -> None:
        last = self._attempts[-1] if self._attempts else None
        if last is not None and isinstance(last.error, TimedOut) and last.error.deadline in _STALLS:
            self._listener.stalled(last.provider, self._silent_s)

    def _give_up(self) -> CallResult:
        if self._newest is not None and (self._shown or self._open_calls):
            return self._incomplete()
        raise self._error()

    def _incomplete(self) -> CallResult:
        return CallResult(self._kept(), tuple(self._attempts), Incomplete(self._error(), self._open_calls))

    def _kept(self) -> Completion:
        """What stands as an answer of its own: the text shown, no tool call and nothing opaque."""
        if self._newest is None:
            raise AssertionError("text was shown, so an answer was received")
        kept = without_calls(self._newest)
        if kept.text != self._shown:
            kept = continued(kept, shown=self._shown, removed=len(kept.text))
        return bare(kept)

    def _error(self) -> ProviderError:
        """The one to show for all that failed: it can be retried if any of them can."""
        errors = [attempt.error for attempt in self._attempts if attempt.error is not None]
        error = next((error for error in reversed(errors) if isinstance(error, Retryable)), errors[-1])
        error.tried = _tried(self._attempts)
        return error


def _tried(attempts: Sequence[AttemptOutcome]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(attempt.provider for attempt in attempts))
