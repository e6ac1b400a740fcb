"""The chart of docs/performance.md: a bar per program and figure, each as a multiple of a bare Python prototype.

Plain SVG without fonts or scripts of its own; its colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.gateway.measure import Figures

LABEL, BAR, VALUE, ROW, TITLE = 320, 400, 80, 22, 34
PANELS = [
    ("Requests of one token, per core", "requests", "aiohttp"),
    ("Tokens flat out, per core", "flat", "own"),
    ("Tokens of paced streams, p99 under 50 ms", "paced", "own"),
]
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 }
  .note { fill: #59636e; stroke: #ffffff; stroke-width: 4px; paint-order: stroke }
  .bar { fill: #8c959f } .ours { fill: #0969da } .one { stroke: #59636e; stroke-dasharray: 3 3 } .back { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .note { fill: #9198a1; stroke: #0d1117 } .bar { fill: #656c76 } .ours { fill: #4493f8 }
    .one { stroke: #9198a1 } .back { fill: #0d1117 }
  }"""


def chart(figures: Sequence[Figures]) -> str:
    by_name = {figure.name: figure for figure in figures}
    parts: list[str] = []
    y = 16
    for title, field, reference in PANELS:
        if not (bare := getattr(by_name[reference], field) if reference in by_name else 0.0):
            continue
        rows = [(f, getattr(f, field) / bare) for f in figures if getattr(f, field)]
        parts += _panel(title, by_name[reference].label, rows, y)
        y += TITLE + ROW * len(rows) + 18
    width, height = LABEL + BAR + VALUE, y
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="Tailrace and other gateways, as multiples of a bare prototype">\n'
        f'<style>{STYLE}\n</style>\n<rect class="back" width="{width}" height="{height}" rx="6"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def times(ratio: float) -> str:
    return f"{ratio:.2f}×" if ratio >= 0.1 else f"{ratio:.1g}×"


def _panel(title: str, reference: str, rows: Sequence[tuple[Figures, float]], top: int) -> list[str]:
    """Lengths are logarithmic: nginx and LiteLLM are three powers of ten apart."""
    low = min(0.5, *(ratio for _, ratio in rows)) / 1.5
    high = max(2.0, *(ratio for _, ratio in rows))

    def length(ratio: float) -> float:
        return BAR * math.log(ratio / low) / math.log(high / low)

    one = LABEL + length(1.0)
    bottom = top + TITLE + ROW * len(rows) - 6
    note, right = escape(f"1× is the {reference}; logarithmic"), LABEL + BAR + VALUE - 14
    parts = [
        f'<text class="title" x="14" y="{top + 14}">{escape(title)}</text>',
        f'<text class="note" x="{right}" y="{top + 14}" text-anchor="end">{note}</text>',
        f'<line class="one" x1="{one:.1f}" x2="{one:.1f}" y1="{top + TITLE - 10}" y2="{bottom}"/>',
    ]
    for number, (figure, ratio) in enumerate(sorted(rows, key=lambda row: -row[1])):
        y = top + TITLE + ROW * number
        kind = "ours" if figure.label.startswith("Tailrace") else "bar"
        end = LABEL + length(ratio)
        parts += [
            f'<text x="{LABEL - 10}" y="{y + 8}" text-anchor="end">{escape(figure.label)}</text>',
            f'<rect class="{kind}" x="{LABEL}" y="{y - 4}" width="{end - LABEL:.1f}" height="14" rx="2"/>',
            f'<text class="note" x="{end + 8:.1f}" y="{y + 8}">{times(ratio)}</text>',
        ]
    return parts
