"""What type checkers see of the library: `typed_program.py` has an error on each line that says so, and no other."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clients.installed import clients_dir

PROGRAM = Path(__file__).with_name("typed_program.py")
ROOT = Path(__file__).parents[2]


def lines_with_errors(*command: str) -> list[int]:
    done = subprocess.run([*command, str(PROGRAM)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    found = re.findall(r"typed_program\.py:(\d+)(?::\d+)?(?: -|:) error", done.stdout)
    assert found, done.stdout + done.stderr
    return sorted(map(int, found))


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_type_checker_knows_what_each_run_gives(checker: str) -> None:
    source = PROGRAM.read_text(encoding="utf-8").splitlines()
    expected = [number for number, line in enumerate(source, 1) if line.endswith("# expected error")]
    command = [sys.executable, "-m", "mypy", "--strict"]
    if checker == "pyright":
        pyright = shutil.which("pyright", path=clients_dir() / "node_modules/.bin")
        if pyright is None:
            pytest.skip("these clients have no pyright; run: make clients")
        command = [pyright, "--pythonpath", sys.executable]
    assert lines_with_errors(*command) == expected
