"""`python -m proof.soak`: mixed load with faults against a server, with a plot and a verdict."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from proof.soak.plot import svg
from proof.soak.run import SoakResult, soak
from proof.soak.samples import Sample


def main() -> int:
    options = _options()
    seconds: float = options.minutes * 60

    def say(sample: Sample) -> None:
        if sys.stderr.isatty() or int(sample.at_s) % 60 == 0:
            line = f"{sample.at_s:6.0f} s  {sample.memory_mb:6.1f} MB  {sample.descriptors:4d} descriptors"
            sys.stderr.write(f"{line}  {sample.visits:7,d} visits" + ("\r" if sys.stderr.isatty() else "\n"))
            sys.stderr.flush()

    with tempfile.TemporaryDirectory(prefix="tailrace-soak-") as home:
        work = soak(seconds, Path(home), seed=options.seed, clients=options.clients, say=say)
        result = asyncio.run(work)
    sys.stdout.write(report(result) + "\n")
    if options.report is not None:
        title = f"{options.minutes:g} minutes of mixed load with faults, {options.clients} clients"
        options.report.write_text(svg(result.samples, result.findings, title), encoding="utf-8")
    return 0 if result.holds else 1


def report(result: SoakResult) -> str:
    lines = ["", "| visit | how they went |", "|---|---|"]
    for kind, outcomes in result.visits.items():
        said = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
        lines.append(f"| {kind.replace('_', ' ')} | {said} |")
    lines += ["", "faults: " + ", ".join(f"{count:,} {name}" for name, count in result.faults.items()), ""]
    for finding in result.findings:
        lines.append(f"{'ok' if finding.holds else 'NOT'}  {finding.name}: {finding.value} ({finding.bound})")
    lines += [f"BROKEN  {line}" for line in result.broken[:20]]
    lines.append(
        f"{len(result.broken)} promises broken" if result.broken else "ok  every visit got what it was promised"
    )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (%(default)s)")
    parser.add_argument("--clients", type=int, default=16, help="clients at once (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="chooses visits and faults (%(default)s)")
    parser.add_argument("--report", type=Path, default=None, metavar="FILE.svg", help="where to draw the plot")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
