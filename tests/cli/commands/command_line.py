"""The command as a person runs it, in a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tailrace.system.own_program import own_command


def environment(home: Path, **variables: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TAILRACE_", "HERMES_")) and not name.endswith("_API_KEY")
    }
    return {**kept, "TAILRACE_HOME": str(home), **variables}


PROGRAM = own_command("__main__.py", sys.executable, Path.cwd())


def tailrace(home: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *args],
        env=environment(home, **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
