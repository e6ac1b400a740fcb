"""Counts what model calls and runs do, without their knowing: a caller that listens in.

Costs a stream one more function call per read, and two clock readings' difference in a list.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tailrace.events import RunFinished
from tailrace.messages import AnyDelta, ModelRequest
from tailrace.ports import Run
from tailrace.providers.attempt import Route
from tailrace.providers.call import AttemptOutcome, Caller, CallListener, CallResult, NullListener, OnCut
from tailrace.providers.deadlines import Purpose
from tailrace.runs.host import OnEnd
from tailrace.server.metrics.registry import Metrics


class MeteredCaller(Caller):
    """Makes calls as any caller does; each is counted."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

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
        meter = _Meter(self._metrics, listener if listener is not None else NullListener())
        return await super().complete(
            request, routes, listener=meter, on_cut=on_cut, purpose=purpose, budget_s=budget_s
        )


class _Meter:
    """Stands between one call and its listener."""

    __slots__ = ("_at", "_first_token", "_inner", "_inter_token", "_metrics", "_provider", "_waiting")

    def __init__(self, metrics: Metrics, inner: CallListener) -> None:
        self._metrics = metrics
        self._inner = inner
        self._first_token = metrics.first_token.observe
        self._inter_token = metrics.inter_token.observe
        self._at = time.monotonic()
        self._waiting = True  # for the first piece of the call
        self._provider = ""

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        if number > 1:
            again = self._metrics.retries if provider == self._provider else self._metrics.failovers
            again.inc(provider)
        self._provider = provider
        self._inner.attempt_started(number, provider, model)

    def deltas(self, deltas: list[AnyDelta]) -> None:
        now = time.monotonic()
        if self._waiting:
            self._waiting = False
            self._first_token(now - self._at)
        else:
            self._inter_token(now - self._at)
        self._at = now
        self._inner.deltas(deltas)

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        outcome = "interrupted" if attempt.interrupted else attempt.error.kind if attempt.error else "ok"
        self._metrics.calls.inc(attempt.provider, outcome)
        self._metrics.tokens.inc(attempt.provider, "input", by=attempt.usage.input_tokens)
        self._metrics.tokens.inc(attempt.provider, "output", by=attempt.usage.output_tokens)
        self._inner.attempt_ended(attempt)

    def attempt_discarded(self, number: int, reason: str) -> None:
        self._inner.attempt_discarded(number, reason)

    def stalled(self, provider: str, silent_s: float) -> None:
        self._metrics.stalls.inc(provider)
        self._inner.stalled(provider, silent_s)


def count_runs(metrics: Metrics) -> OnEnd:
    """For `open_app(on_end=…)`."""

    def on_end(run: Run, finished: RunFinished) -> None:
        metrics.runs.inc(run.new.kind, finished.status)

    return on_end
