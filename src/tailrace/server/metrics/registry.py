"""The server's metrics, in the text format of Prometheus.

Three instruments of our own instead of a library's: the inter-token histogram is updated for every read of every
stream, and incrementing a cell costs a tenth of a locked, labelled child. All updates happen on the loop: no locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from tailrace.server.metrics.values import Cells, MetricValues, ProcessValues

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
# Seconds. A first token takes tenths to minutes; tokens follow each other within milliseconds to seconds.
FIRST_TOKEN_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
INTER_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
LAG_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


def _labelled(name: str, labels: Iterable[tuple[str, str]]) -> str:
    inner = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels)
    return f"{name}{{{inner}}}" if inner else name


class Counter:
    """Only grows. One value per combination of its labels."""

    kind = "counter"
    of_the_dead = True  # what a worker has counted stays counted when it dies

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, store: MetricValues | None = None) -> None:
        self.name, self.text, self.labels = name, text, tuple(labels)
        self._store = store if store is not None else ProcessValues()
        self._cells: dict[tuple[str, ...], Cells] = {}
        if not labels:
            self._new_cells(())

    def _new_cells(self, labels: tuple[str, ...]) -> Cells:
        self._cells[labels] = cells = self._store.cells(self.name, labels, 1)
        return cells

    def cells_of(self, *labels: str) -> Cells:
        """For a caller that counts often: the first of them is the value, and adding to it is `inc`."""
        cells = self._cells.get(labels)
        return cells if cells is not None else self._new_cells(labels)

    def inc(self, *labels: str, by: float = 1) -> None:
        cells = self._cells.get(labels)
        if cells is None:
            cells = self._new_cells(labels)
        cells[0] += by

    @property
    def values(self) -> dict[tuple[str, ...], float]:
        """By the values of the labels, of all workers together."""
        totals = self._store.totals(self.name, of_the_dead=self.of_the_dead)
        return {labels: cells[0] for labels, cells in totals.items()}

    def samples(self) -> Iterator[str]:
        for values, number in self.values.items():
            yield f"{_labelled(self.name, zip(self.labels, values, strict=True))} {number:.17g}"


class Gauge(Counter):
    """Goes up and down. A dead worker's share is gone with it."""

    kind = "gauge"
    of_the_dead = False

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, store: MetricValues | None = None) -> None:
        super().__init__(name, text, labels, store=store)
        self._store.reset(self.name)

    def set(self, value: float, *labels: str) -> None:
        self.cells_of(*labels)[0] = value

    @property
    def value(self) -> float:
        """Of a gauge without labels."""
        if self._store.__class__ is ProcessValues:  # asked for at every request
            return self._cells[()][0]
        return self.values[()]


class Histogram:
    """How often a duration fell into each bucket."""

    kind = "histogram"

    def __init__(self, name: str, text: str, bounds: Sequence[float], *, store: MetricValues | None = None) -> None:
        self.name, self.text = name, text
        self.bounds = tuple(bounds)
        self._store = store if store is not None else ProcessValues()
        self.cells = self._store.cells(name, (), len(self.bounds) + 2)  # each bucket's count, then the sum

    def observe(self, value: float) -> None:
        cells = self.cells
        cells[bisect_left(self.bounds, value)] += 1
        cells[-1] += value

    def _totals(self) -> list[float]:
        return self._store.totals(self.name, of_the_dead=True)[()]

    @property
    def counts(self) -> list[float]:
        """Of each bucket, of all workers together."""
        return self._totals()[:-1]

    @property
    def total(self) -> float:
        return self._totals()[-1]

    def samples(self) -> Iterator[str]:
        *counts, total = self._totals()
        running = 0.0
        for bound, count in zip((*self.bounds, None), counts, strict=True):
            running += count
            le = "+Inf" if bound is None else f"{bound:g}"
            yield f'{self.name}_bucket{{le="{le}"}} {running:.17g}'
        yield f"{self.name}_sum {total:.9g}"
        yield f"{self.name}_count {running:.17g}"


class Metrics:
    """Every metric. `text` is the body of a scrape. `store` is where the values are, one process's by default."""

    def __init__(self, store: MetricValues | None = None) -> None:
        store = store if store is not None else ProcessValues()
        counter, gauge = partial(Counter, store=store), partial(Gauge, store=store)
        histogram = partial(Histogram, store=store)
        self.requests = counter("tailrace_requests_total", "Requests answered.", ("route", "status"))
        self.in_flight = gauge("tailrace_requests_in_flight", "Requests being answered, streams included.")
        self.viewers = gauge("tailrace_viewers", "Streams that are being read.")
        self.running = gauge("tailrace_runs_running", "Turns of the agent that this server executes.")
        self.runs = counter("tailrace_runs_total", "Runs that ended here.", ("kind", "status"))
        self.lost_runs = counter("tailrace_runs_lost_total", "Runs that ended here and are on no record.", ("kind",))
        self.platforms_down = gauge(
            "tailrace_platform_down", "Above 0: a chat platform of this server that is not connected.", ("platform",)
        )
        self.calls = counter("tailrace_model_calls_total", "Model calls.", ("provider", "outcome"))
        self.tokens = counter("tailrace_tokens_total", "Tokens as providers count them.", ("provider", "direction"))
        self.spent_tokens = counter(
            "tailrace_key_tokens_total", "Tokens by who asked for them.", ("key", "model", "direction")
        )
        self.spent_usd = counter("tailrace_key_usd_total", "Dollars by who asked, for models with a price.", ("key",))
        self.retries = counter(
            "tailrace_retries_total", "Attempts after the first at the same provider.", ("provider",)
        )
        self.failovers = counter(
            "tailrace_failovers_total", "Attempts that moved on to another provider.", ("provider",)
        )
        self.stalls = counter("tailrace_stalls_total", "Streams given up because they fell silent.", ("provider",))
        self.first_token = histogram(
            "tailrace_time_to_first_token_seconds", "From a call's start to its first piece.", FIRST_TOKEN_BUCKETS
        )
        self.inter_token = histogram(
            "tailrace_inter_token_seconds", "Between two reads that brought pieces.", INTER_TOKEN_BUCKETS
        )
        self.journal_lag = histogram(
            "tailrace_journal_lag_seconds",
            "From the append of a commit's oldest entry to its being shown.",
            LAG_BUCKETS,
        )
        self.loop_lag = histogram(
            "tailrace_loop_lag_seconds", "How late the event loop ran a timer, ten times a second.", LAG_BUCKETS
        )

    def text(self) -> str:
        lines: list[str] = []
        for metric in vars(self).values():
            lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}", *metric.samples()]
        return "\n".join(lines) + "\n"
