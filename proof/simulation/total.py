"""The sum over all nights: how many worlds this project has ever run, with which code, and which seeds broke a rule.

It is a file of the repository, `total.json` beside this module. `python -m proof.simulation --nightly` goes on with it:
each night takes the seeds after those of the night before.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from proof.simulation.coverage import Progress

TOTAL = Path(__file__).with_name("total.json")


class Night(msgspec.Struct, frozen=True):
    """One run of the command."""

    day: str
    first: int
    worlds: int
    code: str
    digest: str
    failed: tuple[int, ...] = ()
    store: str = "sqlite"


class Total(msgspec.Struct):
    """`next_seed` is where the next night begins."""

    worlds: int = 0
    on_postgres: int = 0  # of them
    steps: int = 0
    hours: float = 0.0  # of the worlds' own time
    failed: int = 0
    next_seed: int = 0
    nights: list[Night] = []

    @classmethod
    def load(cls, path: Path = TOTAL) -> Total:
        """Raises `OSError` and `ValueError`."""
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def add(self, progress: Progress, day: str = "") -> None:
        coverage = progress.coverage
        self.worlds += coverage.worlds
        self.on_postgres += coverage.counts["world on postgres"]
        self.steps += coverage.steps
        self.hours = round(self.hours + coverage.seconds / 3600, 1)
        self.failed += len(progress.failed)
        self.next_seed = max(self.next_seed, progress.first + coverage.worlds)
        day = day or time.strftime("%Y-%m-%d", time.gmtime())
        digest, failed = progress.digest, tuple(progress.failed)
        self.nights.append(Night(day, progress.first, coverage.worlds, progress.code, digest, failed, progress.store))

    def save(self, path: Path = TOTAL) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
