"""What many worlds have met together: how often each fault, and which failures of docs/failures.md that is."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec

import tailrace
from proof.simulation.simulation import Outcome

# What befalls a world, and the ids of the failures that it stands for.
FAILURES: dict[str, tuple[str, ...]] = {
    "reply cut": ("B34", "B38", "D48", "E63"),
    "reply end": ("D48", "D57"),
    "reply stall": ("B38", "E59"),
    "reply pings": ("E60",),
    "reply late": ("E61",),
    "reply overloaded": ("D50", "D51"),
    "reply 429": ("E66",),
    "reply 500": ("E64",),
    "reply 503": ("E64",),
    "reply 529": ("E64",),
    "reply 400": ("D53",),
    "reply 401": ("D53",),
    "reply html": ("A19",),
    "reply garbage": ("A14",),
    "reply empty": ("C46",),
    "reply whole": ("A19",),
    "reply drip": ("A01", "A02"),
    "reply length": ("B35",),
    "chat flood": ("G78",),
    "chat lost": ("G80", "I100"),
    "chat lost-done": ("G77", "G80", "I100"),
    "chat raises": ("G80",),
    "chat markup": ("G83",),
    "watch": ("F72", "H97", "H99", "I104", "I105"),
    "stop": ("F69", "F76"),
    "steer": ("N164", "N165"),
    "kill": ("I100", "I101", "I102", "I106", "L145"),
    "hang": ("L145", "L146"),
    "leave": ("L145",),
    "store full": ("L144",),
    "tool": ("I106", "J112"),
}

ON_POSTGRES = (
    "world on postgres",
    "connection to PostgreSQL",
    "request to PostgreSQL",
    "connection cut",
    "transaction cut off",
)


class Coverage(msgspec.Struct):
    """Sums over worlds."""

    worlds: int = 0
    steps: int = 0
    seconds: float = 0.0
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    nodes: Counter[int] = msgspec.field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.worlds += 1
        self.steps += outcome.steps
        self.seconds += outcome.seconds
        self.counts.update(outcome.counts)
        self.nodes[outcome.world.nodes] += 1

    def join(self, other: Coverage) -> None:
        self.worlds += other.worlds
        self.steps += other.steps
        self.seconds += other.seconds
        self.counts.update(other.counts)
        self.nodes.update(other.nodes)

    def failures(self) -> dict[str, int]:
        """How often each failure of the list was met, by id."""
        met: Counter[str] = Counter()
        for name, ids in FAILURES.items():
            met.update({each: self.counts[name] for each in ids if self.counts[name]})
        return dict(sorted(met.items()))


class Stretch(msgspec.Struct, frozen=True):
    """Worlds that were run before the code was changed."""

    code: str
    worlds: int
    digest: str
    mended: tuple[int, ...]  # the seeds of worlds that broke a rule then and keep it now


class Progress(msgspec.Struct):
    """How far a run over many seeds is. It is what a checkpoint holds."""

    first: int
    seeds: int
    code: str  # the fingerprint of the code that runs them
    store: str = "sqlite"
    coverage: Coverage = msgspec.field(default_factory=Coverage)
    digest: str = ""  # of the worlds that this code has run
    failed: list[int] = []
    ran_s: float = 0.0
    earlier: list[Stretch] = []

    def add(self, coverage: Coverage, digests: bytes, failed: list[int]) -> None:
        """The next seeds, in their order."""
        self.coverage.join(coverage)
        self.digest = hashlib.blake2b(self.digest.encode() + digests, digest_size=16).hexdigest()
        self.failed += failed

    def change_code(self, code: str, still_failed: list[int]) -> None:
        """Goes on with other code, with which the worlds that had failed were run again."""
        worlds = self.coverage.worlds - sum(stretch.worlds for stretch in self.earlier)
        mended = tuple(seed for seed in self.failed if seed not in still_failed)
        self.earlier.append(Stretch(self.code, worlds, self.digest, mended))
        self.code, self.digest, self.failed = code, "", still_failed

    @property
    def rate(self) -> float:
        return self.coverage.worlds / self.ran_s if self.ran_s else 0.0

    def save(self, path: Path) -> None:
        """At once or not at all: a run may be stopped while it writes."""
        written = path.with_name(f"{path.name}.new")
        written.write_bytes(msgspec.json.encode(self, enc_hook=dict))
        written.replace(path)

    @classmethod
    def load(cls, path: Path) -> Progress:
        """Raises `OSError` and `ValueError`."""
        return msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=_counter)


def _counter(_kind: Any, value: dict[Any, int]) -> Counter[Any]:
    return Counter({int(key) if key.isdecimal() else key: count for key, count in value.items()})


def fingerprint() -> str:
    """Of the package's code, so that a report says what it is about."""
    root, digest = Path(tailrace.__file__).parent, hashlib.blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def counted(title: str, counts: Iterable[tuple[str, int]]) -> str:
    return f"**{title}**: {'; '.join(f'{name}: {count:,}' for name, count in counts)}"


def _changes(progress: Progress) -> str:
    """What the report says of the code before it was changed."""
    if not progress.earlier:
        return ""
    lines = ["| code | worlds | digest | mended seeds |", "|---|---:|---|---|"]
    for stretch in progress.earlier:
        seeds = ", ".join(map(str, stretch.mended)) or "–"
        lines.append(f"| `{stretch.code}` | {stretch.worlds:,} | `{stretch.digest}` | {seeds} |")
    rows = "\n".join(lines)
    return f"""
The code changed on the way: failed worlds were run again with the new code; the digest above covers the worlds since.

{rows}
"""


class Sum(Protocol):
    """Of all worlds that were ever run."""

    worlds: int
    on_postgres: int
    steps: int
    hours: float
    failed: int


def report(progress: Progress, total: Sum) -> str:
    """The page that a long run leaves behind."""
    coverage, first = progress.coverage, progress.first
    counts = coverage.counts
    around = ("ask", "watch", "stop", "kill", "hang", "leave", "process", "tool", "call in memory", "budget")
    stored = ("commit", "commit on the loop", "commit left to the thread", "refusal", "entry handed to a viewer")
    faults = sorted((name, count) for name, count in counts.items() if name.split()[0] in ("reply", "chat", "store"))
    shapes = sorted((name, count) for name, count in counts.items() if name.split()[0] == "sequence")
    on_postgres = sorted((name, count) for name, count in counts.items() if name in ON_POSTGRES)
    store = "" if progress.store == "sqlite" else f' SIMULATE_ARGS="--store {progress.store}"'
    last = first + coverage.worlds - 1
    return f"""# Report of a simulation

**Of all time**: {total.worlds:,} worlds, {total.on_postgres:,} of them on PostgreSQL, {total.steps:,} steps,
{total.hours:,.0f} hours of their own time; {total.failed} broke a rule.

**The last run**: {coverage.worlds:,} worlds, seeds {first} to {last}: {len(progress.failed)} broke a rule.
{progress.ran_s / 60:,.0f} minutes. Code fingerprint `{progress.code}`, digest `{progress.digest}`: the same code and
seeds give the same digest on every machine. `make simulate SEEDS={coverage.worlds} FROM={first}{store}` runs them
again; `python -m proof.simulation --nightly` adds the next.
The rules: [reliability](../../docs/reliability.md#simulation).
{_changes(progress)}
{counted("Worlds by processes at once", ((str(nodes), count) for nodes, count in sorted(coverage.nodes.items())))}

{counted("What happened", (*((name, counts[name]) for name in around + stored), *shapes))}

{counted("What was done to a request", faults)}

{counted("On PostgreSQL", on_postgres)}

{counted("Failures met", coverage.failures().items())}
"""
