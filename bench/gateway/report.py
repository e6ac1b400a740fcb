"""The figures as tables: what is promised first, then ratios, then what was measured."""

from __future__ import annotations

import datetime as dt
import math
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from bench.gateway.chart import chart, times
from bench.gateway.measure import Figures
from bench.table import Table

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
MEASURED = Path(__file__).parent / "measured.md"
NONE = "–"


class Promise(msgspec.Struct, frozen=True):
    """A ratio that is to hold on any machine: of whom, against whom, within what."""

    what: str
    program: str
    reference: str
    value: Callable[[Figures, Figures], float]
    limit: float
    at_most: bool
    unit: str = ""

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def asked(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {_number(self.limit)}{self.unit}"


def _ratio(field: str) -> Callable[[Figures, Figures], float]:
    return lambda ours, theirs: getattr(ours, field) / (getattr(theirs, field) or math.nan)


def _own(field: str) -> Callable[[Figures, Figures], float]:
    """Not a ratio; what was not measured is 0."""
    return lambda ours, _: getattr(ours, field) or math.nan


PROMISES = [
    Promise("CPU of a request, of the aiohttp prototype's", "raw", "aiohttp", _ratio("request_cpu_ms"), 2.0, True),
    Promise(
        "first token, ms over the aiohttp prototype's",
        "raw",
        "aiohttp",
        lambda a, b: a.first_ms - b.first_ms,
        0.5,
        True,
        " ms",
    ),
    Promise("paced, of the own-client prototype's", "raw", "own", _ratio("paced"), 0.85, False),
    Promise("paced with tailrace-relay, of the vLLM router's", "relay", "vllm-router", _ratio("paced"), 1.0, False),
    Promise("the same, of the SGLang router's", "relay", "sglang-router", _ratio("paced"), 1.0, False),
    Promise("flat out, of the own-client prototype's", "raw", "own", _ratio("flat"), 0.8, False),
    Promise("stored, paced, of raw", "stored", "raw", _ratio("paced"), 0.5, False),
    Promise("agent turn, paced, of raw", "agent", "raw", _ratio("paced"), 0.5, False),
    Promise("longest pause", "raw", "raw", _own("pause_ms"), 10.0, True, " ms"),
    Promise("p99 per token at the same load", "raw", "raw", _own("pause_p99_ms"), 5.0, True, " ms"),
    Promise("memory of an idle stream", "raw", "raw", _own("idle_kb"), 25.0, True, " kB"),
]


def promises(figures: Sequence[Figures]) -> list[list[str]]:
    """What, measured, asked, holds or not; without those whose programs were not measured."""
    by_name = {figure.name: figure for figure in figures}
    rows = []
    for promise in PROMISES:
        ours, theirs = by_name.get(promise.program), by_name.get(promise.reference)
        if ours is None or theirs is None:
            continue
        value = promise.value(ours, theirs)
        if math.isnan(value):
            continue
        held = "holds" if promise.holds(value) else "not yet"
        rows.append([promise.what, f"{value:.2f}{promise.unit}", promise.asked(), held])
    return rows


def ratios(figures: Sequence[Figures]) -> list[list[str]]:
    """Requests against the aiohttp prototype, tokens against the one with its own client: both are bare Python."""
    by_name = {figure.name: figure for figure in figures}
    aiohttp, own = by_name.get("aiohttp"), by_name.get("own")
    return [
        [
            figure.label,
            _times("requests", figure, aiohttp),
            _times("flat", figure, own),
            _times("paced", figure, own),
            _first(figure, aiohttp),
        ]
        for figure in figures
    ]


def measured(figures: Sequence[Figures]) -> list[list[str]]:
    return [
        [
            figure.label,
            f"{_bounded(figure, 'requests', f'{figure.requests:,.0f}')}; {figure.requests_wall:,.0f}",
            f"{figure.request_cpu_ms:.3f}",
            f"{_bounded(figure, 'flat', f'{figure.flat / 1000:,.1f}k')}; {figure.flat_wall / 1000:,.1f}k",
            _bounded(figure, "paced", f"{figure.paced / 1000:,.1f}k") if figure.paced else "0",
            f"{figure.paced_wall_p99_ms:.1f} ms" if figure.paced_wall_p99_ms else NONE,
            f"{figure.first_ms:.2f} ms",
            f"{figure.idle_kb:.0f}",
            f"{figure.pause_ms:.1f} ms at {figure.pause_streams:,}" if figure.pause_streams else NONE,
        ]
        for figure in figures
    ]


PROMISE_COLUMNS = ["promise", "measured", "asked", "verdict"]
RATIO_COLUMNS = ["program", "requests, of aiohttp", "flat out, of own client", "paced, of own client", "first token"]
MEASURED_COLUMNS = [
    *("program", "requests/s: its core; the wall", "CPU ms each", "flat out: its core; the wall", "paced"),
    *("p99 of these by the wall", "first token p50", "kB per idle stream", "longest pause, streams"),
]
Section: TypeAlias = tuple[str, list[str], Callable[[Sequence[Figures]], list[list[str]]]]
SECTIONS: list[Section] = [
    ("what is promised", PROMISE_COLUMNS, promises),
    ("ratios", RATIO_COLUMNS, ratios),
    ("measured, by the program's own time and by the wall", MEASURED_COLUMNS, measured),
    ("versions", ["program", "version"], lambda figures: [[figure.label, figure.version] for figure in figures]),
]


def tables(figures: Sequence[Figures]) -> list[Table]:
    made = []
    for title, columns, rows_of in SECTIONS:
        table = Table(title, *columns)
        for row in rows_of(figures):
            table.row(*row)
        made.append(table)
    if failures := [figure for figure in figures if figure.failure]:
        table = Table("failures", "program", "what")
        for figure in failures:
            table.row(figure.name, figure.failure[:100])
        made.append(table)
    return made


def write_docs(
    figures: Sequence[Figures], docs: Path, *, quick: bool, busy: float, measured_page: Path = MEASURED
) -> None:
    """The page's figures between its markers, the chart beside it, and what was measured beside this module."""
    page = docs / "performance.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    heading = _heading(quick=quick, busy=busy)
    told = "\n".join([heading, *markdown(figures, SECTIONS[:2])])
    page.write_text(f"{before}{BEGIN}\n{told}\n{END}{after}", encoding="utf-8")
    measured_page.write_text("\n".join([heading, *markdown(figures, SECTIONS[2:]), ""]), encoding="utf-8")
    (docs / "performance.svg").write_text(chart(figures), encoding="utf-8")


def _heading(*, quick: bool, busy: float) -> str:
    day = dt.datetime.now(dt.UTC).date().isoformat()
    how = "a quick run, whose paced figures are coarse" if quick else "a whole run"
    where = f"{os.cpu_count()} cores of which other work took {busy:.0%}, Python {platform.python_version()}"
    return f"Measured on {day}: {how}, {where}."


def markdown(figures: Sequence[Figures], sections: Sequence[Section]) -> list[str]:
    lines = []
    for title, columns, rows_of in sections:
        rule = "|".join(["---"] * len(columns))
        lines += ["", f"**{title[0].upper()}{title[1:]}**", "", _line(columns), rule, *map(_line, rows_of(figures))]
    return lines


def _line(cells: Sequence[str]) -> str:
    return " | ".join(cells)


def _times(field: str, figure: Figures, reference: Figures | None) -> str:
    bare = getattr(reference, field) if reference else 0.0
    return times(getattr(figure, field) / bare) if bare else NONE


def _first(figure: Figures, reference: Figures | None) -> str:
    return f"{figure.first_ms - reference.first_ms:+.2f} ms" if reference else NONE


def _bounded(figure: Figures, column: str, text: str) -> str:
    return f"≥ {text}" if column in figure.limited else text


def _number(value: float) -> str:
    return f"{value:g}"
