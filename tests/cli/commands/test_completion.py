"""`tailrace completion`: what the shells know of the command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cli.commands.command_line import tailrace
from tailrace.cli.main import all_commands


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "completed"),
    [(["tailrace", "doc"], ["doctor"]), (["tailrace", "chat", "--no"], ["--no-stream"]), (["tailrace", "x", "--"], [])],
)
def test_bash_completes_commands_and_options(tmp_path: Path, words: list[str], completed: list[str]) -> None:
    script = tailrace(tmp_path, "completion", "bash").stdout
    asked = f"{script}\nCOMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1}; _tailrace; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == completed


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_know_every_command(tmp_path: Path, shell: str) -> None:
    script = tailrace(tmp_path, "completion", shell).stdout
    assert all(name in script for name in all_commands() if name != "gateway")
    assert "no-stream" in script
    assert "'undo a turn's" not in script  # quoted for the shell
    if shutil.which(shell):
        subprocess.run([shell, "-n", "-c", script], check=True, timeout=60)
    assert tailrace(tmp_path, "completion", "csh").returncode == 2
