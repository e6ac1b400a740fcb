"""`tailrace rollback` as a process: it shows, asks, does, and can be undone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.tools.checkpoint.checkpoint import Checkpoints
from tools.tool_context import PATH, Workplace

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def changed(here: Workplace, home: Path) -> Path:
    """A file that was changed after a checkpoint."""
    file = here.write("a", "one\n")
    Checkpoints(home / "checkpoints", here.directory).take_snapshot("fix the tests")
    file.write_text("two\n", encoding="utf-8")
    here.write("new", "x")
    return file


def rollback(
    here: Workplace, home: Path, *arguments: str, stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tailrace", "rollback", *arguments]
    env = {"PATH": PATH, "TAILRACE_HOME": str(home), "HOME": str(home)}
    return subprocess.run(
        command, cwd=here.directory, env=env, stdin=stdin, capture_output=True, text=True, check=False, timeout=60
    )


def answering(here: Workplace, home: Path, answer: bytes) -> subprocess.CompletedProcess[str]:
    """With a terminal to ask at."""
    keyboard, terminal = os.openpty()
    try:
        os.write(keyboard, answer)
        return rollback(here, home, stdin=terminal)
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_with_nobody_to_ask_it_shows_and_does_nothing(here: Workplace, home: Path, changed: Path) -> None:
    done = rollback(here, home)
    assert (done.returncode, done.stdout) == (2, "~ a\n- new\n")
    assert done.stderr == "error: no terminal to ask on; to do it: tailrace rollback --yes\n"
    assert changed.read_text(encoding="utf-8") == "two\n"


def test_yes_does_it_and_it_can_be_undone(here: Workplace, home: Path, changed: Path) -> None:
    done = rollback(here, home, "--yes")
    assert (done.returncode, done.stdout) == (0, "~ a\n- new\n")
    assert done.stderr == "done; to undo this: tailrace rollback\n"
    assert changed.read_text(encoding="utf-8") == "one\n"
    assert rollback(here, home, "--yes").stdout == "~ a\n+ new\n"
    assert changed.read_text(encoding="utf-8") == "two\n"


@pytest.mark.parametrize(
    ("answer", "code", "content"), [(b"y\n", 0, "one\n"), (b"n\n", 1, "two\n"), (b"\n", 1, "two\n")]
)
def test_it_asks_at_a_terminal(
    here: Workplace, home: Path, changed: Path, answer: bytes, code: int, content: str
) -> None:
    done = answering(here, home, answer)
    assert (done.returncode, changed.read_text(encoding="utf-8")) == (code, content)
    assert "? [y/N] " in done.stderr
    assert ("left as it is" in done.stderr) == (code == 1)


def test_an_empty_list_says_so(here: Workplace, home: Path) -> None:
    listed = rollback(here, home, "--list")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert listed.stderr == f"there is no checkpoint of {here.directory}; tailrace chat --checkpoints makes them\n"


def test_the_list_and_the_diff(here: Workplace, home: Path, changed: Path) -> None:
    listed = rollback(here, home, "--list")
    assert re.fullmatch(r"  1  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  fix the tests\n", listed.stdout)
    assert "\n-two\n+one\n" in rollback(here, home, "--diff").stdout


def test_an_older_one_and_one_that_there_is_not(here: Workplace, home: Path, changed: Path) -> None:
    Checkpoints(home / "checkpoints", here.directory).take_snapshot()
    assert rollback(here, home).stdout == "nothing to undo: the directory is as it was then\n"
    assert rollback(here, home, "2", "--yes").returncode == 0
    assert changed.read_text(encoding="utf-8") == "one\n"
    for number, code in (("9", 1), ("0", 2), ("x", 2)):
        assert rollback(here, home, number).returncode == code


def test_without_any_checkpoint(here: Workplace, home: Path) -> None:
    done = rollback(here, home)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: there is no checkpoint of ")


def test_J122_names_and_contents_do_not_command_the_terminal(here: Workplace, home: Path) -> None:
    here.write("a", "\x1b]52;c;ZXZpbA==\x07old\n")
    Checkpoints(home / "checkpoints", here.directory).take_snapshot()
    here.write("a", "new\n")
    here.write("evil\x1b[2Jname", "x")
    done = rollback(here, home, "--diff")
    assert "\x1b" not in done.stdout
    assert "evilname" in done.stdout
