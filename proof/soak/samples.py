"""What a server holds and how late it is, second by second, and whether that is as it should be.

Pure but for `sample`, which reads `/proc` and the server's metrics.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from tailrace.messages import Value

MAX_LAG_S: Final = 0.05
LAG_SHARE: Final = 0.99
MAX_GROWTH: Final = 0.05  # of the memory, from the second quarter to the last
SHORT_GROWTH: Final = 0.25  # where the quarters are shorter than a server needs to warm up
SHORT_S: Final = 600.0
SPARE_DESCRIPTORS: Final = 8  # the pool's idle connections and SQLite's readers
_BUCKET: Final = re.compile(r'tailrace_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)')


Buckets: TypeAlias = tuple[tuple[float, float], ...]
"""By upper bound in seconds: how many timers have been late by so much or less since the start."""


class Sample(Value):
    """`lag`: of the server's loop. `bare`: of a timer in a process that does nothing else."""

    at_s: float
    memory_mb: float
    descriptors: int
    visits: int
    lag: Buckets
    bare: Buckets = ()


class Finding(Value):
    """One thing that must hold."""

    name: str
    value: str
    bound: str
    holds: bool


def sample(pid: int, at_s: float, visits: int, metrics: str, bare: Buckets) -> Sample:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    open_files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    lag = tuple((float(bound), float(count)) for bound, count in _BUCKET.findall(metrics))
    return Sample(at_s, resident / 1024, open_files, visits, lag, bare)


def late_by(first: Buckets, last: Buckets, share: float = LAG_SHARE) -> float:
    """The upper bound of the bucket in which that share of the timers between two samples lies; infinite where there
    were none."""
    before = dict(first)
    counts = [(bound, count - before.get(bound, 0.0)) for bound, count in last]
    total = counts[-1][1] if counts else 0.0
    return next((bound for bound, count in counts if total and count >= share * total), float("inf"))


def growth(samples: Sequence[Sample]) -> float:
    """By which part the memory grew from the second quarter to the last, by their medians."""
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    before, after = (statistics.median(each.memory_mb for each in part) for part in (early, late))
    return after / before - 1


def findings(samples: Sequence[Sample], idle: Sample, after: Sample) -> list[Finding]:
    """`idle`: before the load. `after`: when it had ended and the connections were closed."""
    grown, last = growth(samples), samples[-1]
    lag, machine = late_by(idle.lag, last.lag), late_by(idle.bare, last.bare)
    allowed = max(MAX_LAG_S, machine) if machine != float("inf") else MAX_LAG_S
    bound = MAX_GROWTH if samples[-1].at_s >= SHORT_S else SHORT_GROWTH
    leaked = after.descriptors - idle.descriptors
    return [
        Finding("memory, last quarter over the second", f"{grown:+.1%}", f"at most +{bound:.0%}", grown <= bound),
        Finding(
            "descriptors after the load, over the baseline",
            f"{leaked:+d}",
            f"at most +{SPARE_DESCRIPTORS}",
            leaked <= SPARE_DESCRIPTORS,
        ),
        Finding(
            "loop lag, 99 %",
            f"{lag * 1000:g} ms, of a bare timer {machine * 1000:g} ms",
            f"at most {MAX_LAG_S * 1000:g} ms, or as late as the bare timer",
            lag <= allowed,
        ),
    ]
