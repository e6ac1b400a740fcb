"""The Makefile, with programs in place of Python and what it installs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
[ "$1" != -c ] || exit STATUS
[ "$2" = venv ] || exit 0
mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && basename "$0" > "$3/made-by"
printf '#!/bin/sh\\necho The answer.\\n' > "$3/bin/tailrace" && chmod +x "$3/bin/tailrace"
"""
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14", "python3")

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def checkout(directory: Path) -> Path:
    shutil.copy(ROOT / "Makefile", directory)
    (directory / "requirements").mkdir()
    for name in ("requirements/chat.txt", "pyproject.toml"):
        (directory / name).touch()
    return directory


def install(python: Path, *, works: bool = True) -> Path:
    """A Python; one that does not work is too old, or a shim with nothing behind it."""
    python.parent.mkdir(exist_ok=True)
    python.write_text(PYTHON.replace("STATUS", "0" if works else "1"), encoding="utf-8")
    python.chmod(0o755)
    return python


def make_chat(directory: Path, *args: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_make(directory, "chat", *args, path=path)


def run_make(directory: Path, *args: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{path}:/usr/bin:/bin"} if path else dict(os.environ)
    environment.pop("PYTHON", None)  # which would be taken
    command = ["make", "--no-print-directory", *args]
    return subprocess.run(
        command, cwd=directory, env=environment, input="Hello?", capture_output=True, text=True, check=False, timeout=60
    )


@needs_make
def test_the_first_answer_of_make_chat_stands_alone_in_a_file(tmp_path: Path) -> None:
    done = make_chat(checkout(tmp_path), f"PYTHON={install(tmp_path / 'python')}")
    assert (done.returncode, done.stdout) == (0, "The answer.\n")
    assert [line[:12] for line in done.stderr.splitlines()] == ["· creating .", "· installing"]


@needs_make
@pytest.mark.parametrize(
    ("working", "taken"),
    [
        (("python3.11", "python3.12", "python3.13", "python3.14", "python3"), "python3.14"),
        (("python3.11", "python3.13", "python3"), "python3.13"),
        (("python3.11", "python3"), "python3.11"),
        (("python3",), "python3"),
    ],
)
def test_the_newest_python_that_works_is_taken(tmp_path: Path, working: tuple[str, ...], taken: str) -> None:
    programs = tmp_path / "bin"
    for name in PYTHONS:
        install(programs / name, works=name in working)
    done = make_chat(checkout(tmp_path), path=programs)
    assert (done.returncode, done.stdout) == (0, "The answer.\n")
    assert (tmp_path / ".venv" / "made-by").read_text(encoding="utf-8") == f"{taken}\n"


@needs_make
def test_a_homeserver_is_installed_with_the_oldest_python(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    for name in PYTHONS:
        install(programs / name, works=name != "python3.11")
    (checkout(tmp_path) / "requirements" / "synapse.txt").touch()
    run_make(tmp_path, "synapse", path=programs)
    assert (tmp_path / ".venv-synapse" / "made-by").read_text(encoding="utf-8") == "python3.12\n"


@needs_make
def test_without_such_a_python_one_line_says_so(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    for name in PYTHONS:
        install(programs / name, works=False)
    done = make_chat(checkout(tmp_path), path=programs)
    assert done.returncode != 0
    assert "error: no Python from 3.11 on is on the PATH" in done.stdout + done.stderr
    assert not (tmp_path / ".venv").exists()


def test_what_is_run_with_the_newest_python_is_there() -> None:
    selected = (ROOT / ".ci" / "newest-python-tests").read_text(encoding="utf-8").splitlines()
    assert len(selected) > 20
    assert [path for path in selected if not (ROOT / path).exists()] == []
