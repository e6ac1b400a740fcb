"""The table of docs/proof.md, product by fault, and the setups behind it: one run of the command on one machine.

The run that the page shows is `results/run.json`. A run that is not over yet is kept outside this folder, cell by cell,
so that the same command goes on with it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from proof.streams import products
from proof.streams.faults import FAULTS
from proof.streams.judge import ANOMALIES, Verdict
from proof.streams.product import PROGRAMS, Product
from proof.streams.services import postgres_programs

HERE = Path(__file__).parent
RESULTS = HERE / "results"
RUN = RESULTS / "run.json"
DECIDES = ("judge", "faults", "trial", "provider", "history", "http", "product", "services")
PAGE = HERE.parents[1] / "docs" / "proof.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@dataclass(frozen=True)
class Cell:
    """How many of the runs came to what. A run with two anomalies counts for each."""

    runs: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)  # of the runs without an anomaly
    anomalies: dict[str, int] = field(default_factory=dict)
    not_offered: str = ""  # why
    not_run: str = ""  # why the test could not ask

    def text(self) -> str:
        if self.not_offered:
            return "–"
        if self.not_run:
            return f"not run: {self.not_run}"
        found = [f"{name} {count}" for name, count in self.anomalies.items()]
        return ", ".join([*found, *(f"{count} {name}" for name, count in self.outcomes.items())])

    def markdown(self) -> str:
        """Anomalies bold, and nothing breaks within a number and its name."""
        if self.not_offered:
            return "–"
        if self.not_run:
            return "not&nbsp;run"
        found = [f"**{name}&nbsp;{count}**" for name, count in self.anomalies.items()]
        return "<br>".join([*found, *(f"{count}&nbsp;{name}" for name, count in self.outcomes.items())])


def cell(verdicts: Iterable[Verdict]) -> Cell:
    verdicts = list(verdicts)
    found = Counter(name for verdict in verdicts for name in verdict.anomalies)
    outcomes = Counter(verdict.outcome for verdict in verdicts if not verdict.findings)
    return Cell(
        len(verdicts),
        {name: outcomes[name] for name in ("whole", "stopped", "told") if outcomes[name]},
        {name: found[name] for name in ANOMALIES if found[name]},
    )


@dataclass
class ProductResult:
    versions: str
    page: str
    setup: str
    code: str  # of the test and of this product's adapter
    seconds: float = 0
    cells: dict[str, Cell] = field(default_factory=dict)


@dataclass
class TableRun:
    """Everything that one run of the command found, with what it ran on."""

    began: str
    ended: str  # of the last cell
    machine: str
    seed: int
    products: dict[str, ProductResult]
    added: dict[str, str] = field(default_factory=dict)  # faults that were tried after the run, and when

    @classmethod
    def new(cls, kinds: Iterable[type[Product]], seed: int) -> TableRun:
        products = {
            kind.name: ProductResult(kind.versions(), kind.page, kind.setup, fingerprint(kind)) for kind in kinds
        }
        return cls(now(), "", machine(), seed, products)

    @classmethod
    def load(cls, path: Path) -> TableRun:
        kept = json.loads(path.read_text(encoding="utf-8"))
        for result in kept["products"].values():
            result["cells"] = {name: Cell(**made) for name, made in result["cells"].items()}
        kept["products"] = {name: ProductResult(**result) for name, result in kept["products"].items()}
        return cls(**kept)

    def save(self, path: Path) -> None:
        """The file has this run or the one before, whatever happens meanwhile."""
        path.parent.mkdir(parents=True, exist_ok=True)
        begun = path.with_suffix(".new")
        begun.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        begun.replace(path)

    def go_on_with(self, begun: TableRun) -> None:
        """Takes the cells of a run that was interrupted. A product whose version, set-up or adapter has changed since
        is tried again, and every product where the judge or the trial has."""
        if (begun.machine, begun.seed) != (self.machine, self.seed):
            return
        self.began = begun.began
        for name, result in self.products.items():
            earlier = begun.products.get(name)
            if earlier and (earlier.versions, earlier.setup, earlier.code) == (
                result.versions,
                result.setup,
                result.code,
            ):
                self.products[name] = earlier

    @property
    def requests(self) -> int:
        cells = [(fault, found) for result in self.products.values() for fault, found in result.cells.items()]
        return sum(found.runs for fault, found in cells if fault not in self.added)


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime())


def fingerprint(kind: type[Product]) -> str:
    """Of all that decides what is found of this product: the test, the adapter, and the program that it starts."""
    modules = [base.__module__ for base in kind.__mro__ if base.__module__.startswith(f"{products.__name__}.")]
    text = "".join((HERE / f"{name}.py").read_text(encoding="utf-8") for name in DECIDES)
    text += "".join(Path(sys.modules[name].__file__ or "").read_text(encoding="utf-8") for name in modules)
    programs = {path.stem: path.read_text(encoding="utf-8") for path in sorted(PROGRAMS.iterdir()) if path.is_file()}
    for _ in range(2):  # a program that is named so far, and what that one imports
        text += "".join(program for stem, program in programs.items() if stem in text)
    return sha256(text.encode()).hexdigest()[:12]


def machine() -> str:
    """The kind of machine, and the programs that the products share, where it has them."""
    kernel = ".".join(platform.release().split(".")[:2])
    programs = {
        "Node": "node",
        "PostgreSQL": str((postgres_programs() or Path()) / "postgres"),
        "Redis": "redis-server",
    }
    versions = {"Python": platform.python_version(), **{name: _version(path) for name, path in programs.items()}}
    had = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {kernel}; {had}"


def _version(program: str) -> str:
    try:
        line = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    except OSError:
        return ""
    found = re.search(r"\d+(\.\d+)+", line)
    return found[0] if found else ""


def table(run: TableRun) -> str:
    """Products are columns: there are more faults than products."""
    rows = [f"fault|{'|'.join(run.products)}", "---|" * len(run.products) + "---"]
    for fault in FAULTS:
        cells = [result.cells[fault.name].markdown() for result in run.products.values()]
        rows.append(f"{fault.name}|{'|'.join(cells)}")
    return "\n".join(rows)


def told(run: TableRun) -> str:
    cores = run.machine.partition(",")[0]
    later = "".join(f" *{fault}* was added {when}." for fault, when in run.added.items())
    return f"One run, {run.began} to {run.ended[-5:]} UTC, {cores}: {run.requests:,} requests.{later}"


def setups(run: TableRun) -> str:
    """What was tested, how it was set up, and why it has no answer to some faults."""
    parts = ["# What was tested\n", f"{told(run)} {run.machine}. Seed {run.seed}."]
    for name, result in run.products.items():
        page = result.page if "://" in result.page else f"../../../{result.page}"
        reasons: dict[tuple[str, str], list[str]] = {}
        for fault, found in result.cells.items():
            if found.not_offered or found.not_run:
                what = ("Not offered", found.not_offered) if found.not_offered else ("Not run", found.not_run)
                reasons.setdefault(what, []).append(fault)
        parts += [
            f"\n## {name}\n",
            f"{result.versions}. [Docs]({page}). {result.seconds:.0f} s. Code of the test: `{result.code}`.\n",
            f"- Set up: {result.setup}",
            *(f"- {what} ({', '.join(faults)}): {why}" for (what, why), faults in reasons.items()),
        ]
    return "\n".join([*parts, ""])


def write_table(run: TableRun) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{told(run)}\n\n{table(run)}\n{END}{after}", encoding="utf-8")
    (RESULTS / "setups.md").write_text(setups(run), encoding="utf-8")
