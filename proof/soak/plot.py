"""The plot of a soak as one SVG: memory, descriptors, loop lag, the machine's own and visits over time. Reads well in
light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Final

from proof.soak.samples import Buckets, Finding, Sample, late_by
from tailrace.messages import Value

WIDTH, LANE, LEFT, GAP = 860, 110, 60, 42
COLOURS: Final = ("#2f7ed8", "#b5651d", "#8a3ffc", "#888888", "#1a936f")
_FONT: Final = 'font-family="sans-serif" font-size="12"'
POINTS: Final = 240  # as many as can be told apart


class Lane(Value):
    name: str
    points: tuple[tuple[float, float], ...]
    floor: float = 0.0


def lanes(samples: Sequence[Sample]) -> list[Lane]:
    step = max(1, len(samples) // POINTS)
    shown = samples[::step]
    pairs = list(pairwise(shown))
    rates = [(b.at_s, (b.visits - a.visits) / (b.at_s - a.at_s)) for a, b in pairs if b.at_s > a.at_s]
    return [
        Lane("memory, MB", tuple((each.at_s, each.memory_mb) for each in shown)),
        Lane("open descriptors", tuple((each.at_s, float(each.descriptors)) for each in shown)),
        Lane("loop lag, ms: 99 % are below", _lateness([(b.at_s, a.lag, b.lag) for a, b in pairs])),
        Lane("a bare timer beside it, ms", _lateness([(b.at_s, a.bare, b.bare) for a, b in pairs])),
        Lane("visits a second", tuple(rates)),
    ]


def _lateness(stretches: Sequence[tuple[float, Buckets, Buckets]]) -> tuple[tuple[float, float], ...]:
    late = [(at_s, late_by(first, last) * 1000) for at_s, first, last in stretches]
    return tuple(point for point in late if point[1] != float("inf"))


def svg(samples: Sequence[Sample], found: Sequence[Finding], title: str) -> str:
    drawn = lanes(samples)
    height = 56 + len(drawn) * (LANE + GAP) + 22 * len(found)
    length = max(samples[-1].at_s, 1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {_FONT} role="img">',
        "<style>text{fill:#333}.axis{stroke:#8888;fill:none}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>",
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    top = 56
    for lane, colour in zip(drawn, COLOURS, strict=True):
        parts += _lane(lane, colour, top, length)
        top += LANE + GAP
    for line in found:
        said = f"{line.name}: {line.value} ({line.bound})" + ("" if line.holds else ": exceeded")
        parts.append(f'<text x="{LEFT}" y="{top}">{escape(said)}</text>')
        top += 22
    return "\n".join([*parts, "</svg>"]) + "\n"


def _lane(lane: Lane, colour: str, top: int, length: float) -> list[str]:
    highest = max((y for _, y in lane.points), default=0.0) or 1.0
    right = WIDTH - 20

    def place(at_s: float, value: float) -> str:
        return f"{LEFT + (right - LEFT) * at_s / length:.1f},{top + LANE - LANE * value / highest:.1f}"

    line = " ".join(place(*point) for point in lane.points)
    return [
        f'<text x="{LEFT}" y="{top - 8}">{escape(lane.name)}</text>',
        f'<path class="axis" d="M{LEFT},{top} V{top + LANE} H{right}"/>',
        f'<text x="{LEFT - 8}" y="{top + 10}" text-anchor="end">{_number(highest)}</text>',
        f'<text x="{LEFT - 8}" y="{top + LANE}" text-anchor="end">0</text>',
        f'<text x="{right}" y="{top + LANE + 16}" text-anchor="end">{_time(length)}</text>',
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
