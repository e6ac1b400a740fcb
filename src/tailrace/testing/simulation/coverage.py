"""What many worlds have met together: how often each fault, and which failures of docs/failures.md that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from tailrace.testing.simulation.simulation import Outcome

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
    "kill": ("I100", "I101", "I102", "I106", "L145"),
    "hang": ("L145", "L146"),
    "leave": ("L145",),
    "store full": ("L144",),
    "tool": ("I106", "J112"),
}


class Coverage(msgspec.Struct):
    """Sums over worlds. `digest` is of the worlds' digests in the order of their seeds."""

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


def table(head: tuple[str, str], rows: Iterable[tuple[str, int]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {name} | {count:,} |" for name, count in rows)])


def report(coverage: Coverage, *, first: int, failed: int, digest: str, rate: float) -> str:
    """The page that a long run leaves behind."""
    counts = coverage.counts
    around = ("ask", "watch", "stop", "kill", "hang", "leave", "process", "tool", "call in memory")
    stored = ("commit", "commit on the loop", "commit left to the thread", "refusal", "entry handed to a viewer")
    faults = sorted((name, count) for name, count in counts.items() if name.split()[0] in ("reply", "chat", "store"))
    last = first + coverage.worlds - 1
    return f"""# Report of a simulation

{coverage.worlds:,} worlds, seeds {first} to {last}: {failed} broke a rule. Digest of all of them: `{digest}`.

Made by `make simulate SEEDS={coverage.worlds} FROM={first} REPORT=docs/simulation-report.md`,
{rate:.0f} worlds a second. What a world is, which rules it must keep and how to read one that fails:
[reliability](reliability.md#simulation).

{table(("processes at once", "worlds"), ((str(nodes), count) for nodes, count in sorted(coverage.nodes.items())))}

Together they ran for {coverage.seconds / 3600:,.0f} hours of their own time, in {coverage.steps:,} steps.

{table(("what happened", "times"), ((name, counts[name]) for name in around + stored))}

{table(("what was done to a request", "times"), faults)}

{table(("failure", "times met"), coverage.failures().items())}
"""
