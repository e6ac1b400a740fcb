"""Runs a store's processes with the recorder preloaded, and reads what they did."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from proof.power_loss.cuts import PROMISES
from proof.power_loss.disk import Done, recorded

HERE = Path(__file__).parent
PROCESSES = 4  # one after the other: each opens what the one before has left


def recorder(home: Path) -> Path:
    """The recorder, compiled."""
    library = home / "recorder.so"
    source = HERE / "recorder.c"
    subprocess.run(
        [shutil.which("cc") or "cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-lpthread"], check=True
    )
    return library


def record_sqlite(home: Path, seed: int, durability: str, processes: int = PROCESSES) -> list[Done]:
    """What the processes of a SQLite store did to its files, and what they promised meanwhile."""
    disk, log = home / "disk", home / "log"
    disk.mkdir()
    environment = recording(recorder(home), disk, log)
    for number in range(processes):
        work(f"sqlite:///{disk}/t.db", disk, seed + number, durability, environment)
    return list(recorded(log.read_bytes(), disk))


def recording(library: Path, disk: Path, log: Path) -> dict[str, str]:
    """What a process and those that it starts must have in their environment."""
    return {"LD_PRELOAD": str(library), "POWER_LOSS_DIR": str(disk), "POWER_LOSS_LOG": str(log)}


def work(url: str, disk: Path, seed: int, durability: str, environment: dict[str, str]) -> None:
    """One process of the workload, to its end."""
    command = (sys.executable, "-m", "proof.power_loss.workload", url, disk / PROMISES, str(seed), durability)
    subprocess.run(command, env={**os.environ, **environment}, cwd=HERE.parents[1], check=True)
