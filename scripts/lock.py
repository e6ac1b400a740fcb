"""Writes requirements/*.txt: every dependency pinned with hashes, for every platform, naming no index.

Needs `uv` on the PATH (`pip install uv`). `chat.txt` is what `make chat` installs, `dev.txt` adds the rest;
`synapse.txt` is the Matrix homeserver of the tests and `clients.txt` the agent frameworks that they run, each in an
environment of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

_TESTED_EXTRAS = (
    "local",
    "mcp",
    "acp",
    "telegram",
    "discord",
    "slack",
    "matrix",
    "otel",
    "prices",
    "postgres",
    "redis",
)
LOCKS = {  # what is written: what it is made of
    "requirements/chat.txt": ["pyproject.toml", "--extra", "local", "--group", "build"],
    "requirements/dev.txt": [
        "pyproject.toml",
        *(word for name in _TESTED_EXTRAS for word in ("--extra", name)),
        "--group",
        "dev",
    ],
    "requirements/synapse.txt": ["requirements/synapse.in"],
    "requirements/clients.txt": ["requirements/clients.in"],
}


def main() -> int:
    uv = shutil.which("uv")
    if uv is None:
        print("error: uv is not on the PATH\n       pip install uv", file=sys.stderr)
        return 1
    for lock, sources in LOCKS.items():
        command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
        command += ["--generate-hashes", "--no-emit-index-url", "--no-annotate", "--output-file", lock]
        command += ["--custom-compile-command", "make lock", *sources]
        subprocess.run(command, check=True)
        print(f"· {lock}: {Path(lock).read_text(encoding='utf-8').count('==')} pins")
    return 0


if __name__ == "__main__":
    sys.exit(main())
