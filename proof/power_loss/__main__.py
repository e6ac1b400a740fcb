"""Cuts the power of a SQLite store, at so many moments, and looks at what is left.

python -m proof.power_loss --cuts 500 [--durability fsync|committed] [--seed 1]
TAILRACE_POWER_CUTS=12 python -m pytest tests/power_loss -k postgresql      the same with PostgreSQL, whole servers
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from proof.power_loss.cuts import Loss, look
from proof.power_loss.record import record_sqlite


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.power_loss", description=__doc__)
    parser.add_argument("--cuts", type=int, default=500)
    parser.add_argument("--durability", choices=("fsync", "committed"), default="fsync")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="power-") as home:
        done = record_sqlite(Path(home), given.seed, given.durability)
        losses = asyncio.run(
            look(done, given.cuts, given.seed, loses_nothing=given.durability == "fsync", home=Path(home))
        )
    sys.stdout.write(summary(losses, len(done)) + "\n")
    return 1 if any(loss.broken for loss in losses) else 0


def summary(losses: Sequence[Loss], calls: int) -> str:
    broken = [f"  cut {loss.cut}: {problem}" for loss in losses for problem in loss.broken]
    lost = sorted(loss.lost for loss in losses)
    lines = [
        f"{len(losses)} cuts within {calls} calls; {sum(loss.runs for loss in losses)} runs read",
        f"promised entries that were lost: in one cut at most {lost[-1]}, median {lost[len(lost) // 2]}",
        f"promises broken: {len(broken)}",
    ]
    return "\n".join(lines + broken[:20])


if __name__ == "__main__":
    sys.exit(main())
