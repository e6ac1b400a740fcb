"""The table of docs/proof.md, product by fault, and the setups behind it, from results that are kept beside this
module."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from proof.streams.faults import FAULTS
from proof.streams.judge import ANOMALIES, Verdict

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "proof.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@dataclass(frozen=True)
class Cell:
    """How many of the runs came to what. A run with two anomalies counts for each."""

    runs: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)  # of the runs without an anomaly
    anomalies: dict[str, int] = field(default_factory=dict)
    not_offered: str = ""  # why

    def text(self) -> str:
        if self.not_offered:
            return "–"
        found = [f"{name} {count}" for name, count in self.anomalies.items()]
        return ", ".join([*found, *(f"{count} {name}" for name, count in self.outcomes.items())])

    def markdown(self) -> str:
        """Anomalies bold, and nothing breaks within a number and its name."""
        found = [f"**{name}&nbsp;{count}**" for name, count in self.anomalies.items()]
        return "<br>".join([*found, *(f"{count}&nbsp;{name}" for name, count in self.outcomes.items())]) or self.text()


def cell(verdicts: Iterable[Verdict]) -> Cell:
    verdicts = list(verdicts)
    found = Counter(name for verdict in verdicts for name in verdict.anomalies)
    outcomes = Counter(verdict.outcome for verdict in verdicts if not verdict.findings)
    return Cell(
        len(verdicts),
        {name: outcomes[name] for name in ("whole", "stopped", "told") if outcomes[name]},
        {name: found[name] for name in ANOMALIES if found[name]},
    )


@dataclass(frozen=True)
class ProductResult:
    versions: str
    page: str
    setup: str
    seconds: int
    cells: dict[str, Cell]

    def save(self, name: str) -> None:
        """Faults that were not tried this time keep what was found before."""
        path = RESULTS / f"{name}.json"
        told = asdict(self)
        if path.exists():
            earlier = json.loads(path.read_text(encoding="utf-8"))
            told["cells"] = {**earlier["cells"], **told["cells"]}
            told["seconds"] = max(earlier["seconds"], told["seconds"])
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def load_results(names: Iterable[str]) -> dict[str, ProductResult]:
    """Of those products that were tested, in this order."""
    results = {}
    for path in (RESULTS / f"{name}.json" for name in names):
        if not path.exists():
            continue
        kept = json.loads(path.read_text(encoding="utf-8"))
        kept["cells"] = {name: Cell(**made) for name, made in kept["cells"].items()}
        results[path.stem] = ProductResult(**kept)
    return results


def table(results: dict[str, ProductResult]) -> str:
    """Products are columns: there are more faults than products."""
    names = list(results)
    rows = [f"fault|{'|'.join(names)}", "---|" * len(names) + "---"]
    for fault in FAULTS:
        cells = [
            result.cells[fault.name].markdown() if fault.name in result.cells else "not&nbsp;run"
            for result in results.values()
        ]
        rows.append(f"{fault.name}|{'|'.join(cells)}")
    return "\n".join(rows)


def setups(results: dict[str, ProductResult]) -> str:
    """What was tested, how it was set up, and why it has no answer to some faults."""
    parts = ["# What was tested"]
    for name, result in results.items():
        page = result.page if "://" in result.page else f"../../../{result.page}"
        reasons: dict[str, list[str]] = {}
        for fault, found in result.cells.items():
            if found.not_offered:
                reasons.setdefault(found.not_offered, []).append(fault)
        parts += [
            f"\n## {name}\n",
            f"{result.versions}. [Docs]({page}). {result.seconds} s.\n",
            f"- Set up: {result.setup}",
            *(f"- Not offered ({', '.join(faults)}): {why}" for why, faults in reasons.items()),
        ]
    return "\n".join([*parts, ""])


def write_table(names: Iterable[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    results = load_results(names)
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", encoding="utf-8")
    (RESULTS / "setups.md").write_text(setups(results), encoding="utf-8")
