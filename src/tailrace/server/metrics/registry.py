"""The server's metrics, in the text format of Prometheus.

Three instruments of our own instead of a library's: the inter-token histogram is updated for every read of every
stream, and incrementing a list costs a tenth of a locked, labelled child. All updates happen on the loop: no locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

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

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name, self.text, self.labels = name, text, tuple(labels)
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def inc(self, *labels: str, by: float = 1) -> None:
        self.values[labels] = self.values.get(labels, 0) + by

    def samples(self) -> Iterator[str]:
        for values, number in self.values.items():
            yield f"{_labelled(self.name, zip(self.labels, values, strict=True))} {number:.17g}"


class Gauge(Counter):
    """Goes up and down."""

    kind = "gauge"

    def dec(self, *labels: str) -> None:
        self.inc(*labels, by=-1)

    def set(self, value: float, *labels: str) -> None:
        self.values[labels] = value


class Histogram:
    """How often a duration fell into each bucket."""

    kind = "histogram"

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name, self.text = name, text
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def samples(self) -> Iterator[str]:
        running = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            running += count
            le = "+Inf" if bound is None else f"{bound:g}"
            yield f'{self.name}_bucket{{le="{le}"}} {running}'
        yield f"{self.name}_sum {self.total:.9g}"
        yield f"{self.name}_count {running}"


class Metrics:
    """Every metric. `text` is the body of a scrape."""

    def __init__(self) -> None:
        self.requests = Counter("tailrace_requests_total", "Requests answered.", ("route", "status"))
        self.viewers = Gauge("tailrace_viewers", "Streams that are being read.")
        self.running = Gauge("tailrace_runs_running", "Runs that this process executes.")
        self.runs = Counter("tailrace_runs_total", "Runs that ended here.", ("kind", "status"))
        self.calls = Counter("tailrace_model_calls_total", "Model calls.", ("provider", "outcome"))
        self.tokens = Counter("tailrace_tokens_total", "Tokens as providers count them.", ("provider", "direction"))
        self.retries = Counter(
            "tailrace_retries_total", "Attempts after the first at the same provider.", ("provider",)
        )
        self.failovers = Counter(
            "tailrace_failovers_total", "Attempts that moved on to another provider.", ("provider",)
        )
        self.stalls = Counter("tailrace_stalls_total", "Streams given up because they fell silent.", ("provider",))
        self.first_token = Histogram(
            "tailrace_time_to_first_token_seconds", "From a call's start to its first piece.", FIRST_TOKEN_BUCKETS
        )
        self.inter_token = Histogram(
            "tailrace_inter_token_seconds", "Between two reads that brought pieces.", INTER_TOKEN_BUCKETS
        )
        self.journal_lag = Histogram(
            "tailrace_journal_lag_seconds",
            "From the append of a commit's oldest entry to its being shown.",
            LAG_BUCKETS,
        )

    def text(self) -> str:
        lines: list[str] = []
        for metric in vars(self).values():
            lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}", *metric.samples()]
        return "\n".join(lines) + "\n"
