"""Counts what model calls and runs do: middleware of the caller, and a callback at the end of runs.

Costs a stream one more function call and one reading of the clock per read.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import get_args

from tailrace.agent.session import TURN_KIND
from tailrace.app.usage.ledger import OnSpent
from tailrace.calls.call_log import CALL_KIND
from tailrace.events import RunFinished, RunStatus
from tailrace.journal.fold import SEQUENCE
from tailrace.messages import AnyDelta, EventDelta, EventForm, ModelRequest, SpentTokens
from tailrace.ports import Run
from tailrace.providers.attempt import Route, StopCall
from tailrace.providers.call_listener import (
    AttemptObserver,
    AttemptOutcome,
    CallListener,
    CallMiddleware,
    ForwardingListener,
)
from tailrace.runs.host import OnEnd
from tailrace.server.metrics.registry import Metrics
from tailrace.server.metrics.values import Cells

MAX_MODELS = 200  # with a series of their own
MAX_LABEL_CHARS = 200
OTHER_MODELS = "other"


def count_calls(metrics: Metrics) -> CallMiddleware:
    """For `open_app(middleware=…)`."""
    return partial(_CallMeter, metrics)


def count_attempts(metrics: Metrics) -> AttemptObserver:
    """For `open_app(observers=…)`."""

    ends: dict[tuple[str, str], tuple[Cells, Cells, Cells]] = {}  # by provider and outcome: what it adds to

    def count(attempt: AttemptOutcome) -> None:
        outcome = "interrupted" if attempt.interrupted else attempt.error.kind if attempt.error else "ok"
        place = attempt.provider, outcome
        cells = ends.get(place)
        if cells is None:
            tokens = metrics.tokens
            sums = tokens.cells_of(attempt.provider, "input"), tokens.cells_of(attempt.provider, "output")
            cells = ends[place] = (metrics.calls.cells_of(*place), *sums)
        calls, input_tokens, output_tokens = cells
        calls[0] += 1
        input_tokens[0] += attempt.usage.input_tokens
        output_tokens[0] += attempt.usage.output_tokens

    return count


class _CallMeter(ForwardingListener):
    __slots__ = (
        "_at",
        "_first_token",
        "_gap_bounds",
        "_gap_cells",
        "_metrics",
        "_provider",
        "_waiting",
        "attempt_ended",
    )

    def __init__(self, metrics: Metrics, _request: ModelRequest, _routes: Sequence[Route], inner: CallListener) -> None:
        self._inner = inner
        self.attempt_ended = inner.attempt_ended  # type: ignore[method-assign]  # `count_attempts` counts it
        self._metrics = metrics
        self._first_token = metrics.first_token.observe
        self._gap_bounds, self._gap_cells = metrics.inter_token.bounds, metrics.inter_token.cells
        self._at = time.monotonic()
        self._waiting = True  # for the first piece of the call
        self._provider = ""

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        if number > 1:
            again = self._metrics.retries if provider == self._provider else self._metrics.failovers
            again.inc(provider)
        self._provider = provider
        self._inner.attempt_started(number, provider, model)

    def deltas(self, deltas: list[AnyDelta]) -> StopCall | None:
        now = time.monotonic()
        if self._waiting:
            for delta in deltas:
                if delta.__class__ is not EventDelta:
                    break
            else:
                return self._inner.deltas(deltas)  # the provider says that it has begun: no token yet
            self._waiting = False
            self._first_token(now - self._at)
        else:  # as `observe`, without a call of it for each token
            gap, cells = now - self._at, self._gap_cells
            cells[bisect_left(self._gap_bounds, gap)] += 1
            cells[-1] += gap
        self._at = now
        return self._inner.deltas(deltas)

    def relay(self, form: EventForm) -> Callable[[bytes], float] | None:
        return None if self._waiting else self._inner.relay(form)

    def relayed(self, deltas: list[AnyDelta], times: list[float]) -> StopCall | None:
        cells, before = self._gap_cells, self._at
        cells[-1] += times[-1] - before
        for at in times:
            cells[bisect_left(self._gap_bounds, at - before)] += 1
            before = at
        self._at = before
        return self._inner.relayed(deltas, times)

    def stalled(self, provider: str, silent_s: float) -> None:
        self._metrics.stalls.inc(provider)
        self._inner.stalled(provider, silent_s)


def count_runs(metrics: Metrics) -> OnEnd:
    """For `open_app(on_end=…)`. Each end that a turn or a sequence may have is a series from the start: of one that
    begins with its first failure, no rate knows that failure."""
    for status in get_args(RunStatus):
        metrics.runs.cells_of(TURN_KIND, status)
        metrics.runs.cells_of(SEQUENCE, status)
    metrics.lost_runs.cells_of(CALL_KIND)

    def on_end(run: Run, finished: RunFinished) -> None:
        metrics.runs.inc(run.new.kind, finished.status)

    return on_end


def count_usage(metrics: Metrics) -> OnSpent:
    """For `UsageLedger.on_spent`."""

    known: set[str] = set()

    def on_spent(key: str, spent: SpentTokens) -> None:
        model = f"{spent.provider}/{spent.model}"[:MAX_LABEL_CHARS]
        if model not in known and len(known) >= MAX_MODELS:
            model = OTHER_MODELS  # clients choose these names, and a series is never forgotten
        known.add(model)
        metrics.spent_tokens.inc(key, model, "input", by=spent.usage.input_tokens)
        metrics.spent_tokens.inc(key, model, "output", by=spent.usage.output_tokens)

    return on_spent
