"""A command that is shown can be typed where it is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.system.own_program import own_command, own_pip


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """`tailrace` in an environment that is not active."""
    script = tmp_path / ".venv" / "bin" / "tailrace"
    script.parent.mkdir(parents=True)
    for name in ("tailrace", "pip"):
        script.with_name(name).touch(mode=0o755)
    return script


def test_the_command_that_goes_on_is_one_that_works_here(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert own_command(".venv/bin/tailrace", "/usr/bin/python", tmp_path) == ".venv/bin/tailrace"
    assert own_command("/x/tailrace/__main__.py", str(script.parent / "python"), tmp_path) == (
        ".venv/bin/python -m tailrace"
    )
    assert own_command("-c", str(script.parent / "python"), tmp_path) == ".venv/bin/python -m tailrace"
    assert own_command(str(script), "", Path("/")) == str(script)
    assert own_command("./tailrace", "", script.parent) == "./tailrace"
    monkeypatch.setenv("PATH", str(script.parent))
    assert own_command(str(script), "", Path("/")) == "tailrace"


def test_pip_is_the_one_of_the_environment(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = str(script.with_name("python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert own_pip(python, tmp_path) == ".venv/bin/pip"
    assert own_pip(python, Path("/elsewhere")) == str(script.with_name("pip"))
    monkeypatch.setenv("PATH", str(script.parent))
    assert own_pip(python, tmp_path) == "pip"
    script.with_name("pip").unlink()
    assert own_pip(python, tmp_path) == "pip"


def test_doctor_names_commands_that_work_without_the_environment_on_the_path(tmp_path: Path) -> None:
    started = [sys.executable, "-m", "tailrace", "doctor", "--offline"]
    env = {"PATH": os.defpath, "TAILRACE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(started, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    hint = next(line for line in done.stdout.splitlines() if "init writes one" in line)
    command = hint.split(" writes one")[0].split()
    asked = subprocess.run([*command, "--help"], env=env, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert asked.returncode == 0
