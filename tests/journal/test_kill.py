"""`kill -9` at 200 random moments: nothing that anybody saw is lost, changed or numbered twice."""

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
    done = subprocess.run(
        [sys.executable, str(HARNESS), str(tmp_path / "runs.db"), str(seed), "100"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout)
    assert said["kills"] == 100
    assert said["seen"] > 1000
    assert said["runs"] > 50
