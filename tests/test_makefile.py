"""The Makefile, with programs in place of Python and what it installs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
[ "$2" = venv ] || exit 0
mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
printf '#!/bin/sh\\necho The answer.\\n' > "$3/bin/tailrace" && chmod +x "$3/bin/tailrace"
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_first_answer_of_make_chat_stands_alone_in_a_file(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements").mkdir()
    for name in ("requirements/chat.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    python = tmp_path / "python"
    python.write_text(PYTHON, encoding="utf-8")
    python.chmod(0o755)
    command = ["make", "--no-print-directory", "chat", f"PYTHON={python}"]
    done = subprocess.run(
        command, cwd=tmp_path, input="Hello?", capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "The answer.\n")
    assert [line[:12] for line in done.stderr.splitlines()] == ["· creating .", "· installing"]
