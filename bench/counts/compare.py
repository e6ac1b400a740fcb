"""Counts against their ceilings, and which functions made one grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.counts.cases import Count

STORED = Path(__file__).parents[2] / "tests/speed/profile.json"
SHOWN = 8  # functions of a count that grew
LEAST = 0.5  # calls per unit: a function below it is neither kept nor shown
KEPT = ("request", "token", "committed", "agent token", "viewer")  # whose profiles are stored
Profile = dict[str, dict[str, float]]


class Ceiling(msgspec.Struct, frozen=True):
    """`value` is what was counted when it was set, `slack` what it may be over that on another day."""

    value: float
    slack: float

    @property
    def limit(self) -> float:
        return self.value + self.slack


def slack_of(count: Count) -> float:
    """One call more per token is growth: in lock step the count is the same on every run. What a request costs depends
    on how much goes into one batch of the journal, and gets a tenth; so does a committed token, whose batches are
    smaller on a busy machine, and gets a fifth. What is kept depends on caches of the interpreter; a leak is larger
    than they are."""
    if count.name.endswith("kept"):
        return 20.0
    if count.name.endswith("cycles"):
        return 2.0
    if count.name in ("token", "keyed token"):
        return 0.5
    return round(count.value / (5 if count.name in ("committed", "agent token") else 10), 1)


def growth(count: Count, ceiling: Ceiling, profile: Mapping[str, float]) -> str:
    """Empty while the count is under its ceiling; else a line with what grew most since the stored profile."""
    if count.value <= ceiling.limit:
        return ""
    line = f"{count.name}: {count.value:.1f} {count.unit}, the ceiling is {ceiling.limit:.1f}"
    added = {function: calls - profile.get(function, 0.0) for function, calls in count.profile.items()}
    grown = sorted((item for item in added.items() if item[1] >= LEAST), key=lambda item: -item[1])[:SHOWN]
    return line + "".join(f"\n    +{calls:.1f} {function}" for function, calls in grown)


def all_growth(counts: Sequence[Count], ceilings: Mapping[str, Ceiling], profile: Profile) -> list[str]:
    """The lines of what grew, and of what has no ceiling or was not counted."""
    lines = [
        growth(count, ceilings[count.name], profile.get(count.name, {})) for count in counts if count.name in ceilings
    ]
    names = {count.name for count in counts}
    unknown = [f"{name}: no such count" for name in ceilings if name not in names]
    without = [
        f"{count.name}: has no ceiling; it is {count.value:.1f}" for count in counts if count.name not in ceilings
    ]
    return [line for line in (*lines, *unknown, *without) if line]


def stored_profile() -> Profile:
    return msgspec.json.decode(STORED.read_bytes(), type=Profile) if STORED.exists() else {}


def store_profile(counts: Sequence[Count]) -> None:
    kept = {
        count.name: {function: round(calls, 1) for function, calls in sorted(count.profile.items()) if calls >= LEAST}
        for count in counts
        if count.name in KEPT
    }
    STORED.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


def ceilings_to_paste(counts: Sequence[Count]) -> str:
    """The table of tests/speed/test_counts.py as it would be set now."""
    lines = [
        f'    "{count.name}": Ceiling({count.value:.1f}, slack={slack_of(count)}),  # {count.unit}' for count in counts
    ]
    return "\n".join(["CEILINGS = {", *lines, "}"])
