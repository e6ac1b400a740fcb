"""`kill -9` at 240 random moments: nothing that anybody saw is lost, changed or numbered twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("kill_harness.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="victims are forked")
@pytest.mark.parametrize("seed", [1, 2])
def test_I103_I105_H99_what_was_seen_survives_a_hundred_kills(tmp_path: Path, seed: int) -> None:
    said = killed(f"sqlite:///{tmp_path / 'runs.db'}", seed, 100)
    assert said["seen"] > 1000
    assert said["runs"] > 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="victims are forked")
def test_I103_I105_H99_what_was_seen_survives_kills_of_the_process_on_postgresql(postgres_url: str) -> None:
    said = killed(postgres_url, 1, 40)
    assert said["seen"] > 100
    assert said["runs"] > 3  # few on a busy machine, where each process lives for a moment only


def killed(url: str, seed: int, kills: int) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, str(HARNESS), url, str(seed), str(kills)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(HARNESS.parent.parent)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said: dict[str, int] = json.loads(done.stdout)
    assert said["kills"] == kills
    return said
