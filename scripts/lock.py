"""Writes requirements/*.txt: every dependency pinned with hashes, for every platform, naming no index.

Needs `uv` on the PATH (`pip install uv`). `pip.txt` installs the others: `chat.txt` is what `make chat` needs,
`dev.txt` adds the rest; `synapse.txt` is the Matrix homeserver of the tests, `clients.txt` the agent frameworks that
they run and `homeassistant.txt` a Home Assistant with its own constraints, each in an environment of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
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
    "requirements/pip.txt": ["requirements/pip.in"],
    "requirements/synapse.txt": ["requirements/synapse.in"],
    "requirements/clients.txt": ["requirements/clients.in"],
}
HOMEASSISTANT = ("requirements/homeassistant.txt", "requirements/homeassistant.in")
HOMEASSISTANT_PYTHON = "3.13"


def main() -> int:
    uv = shutil.which("uv")
    if uv is None:
        print("error: uv is not on the PATH\n       pip install uv", file=sys.stderr)
        return 1
    for lock, sources in LOCKS.items():
        _lock(uv, lock, sources, "3.11")
    with tempfile.TemporaryDirectory() as directory:
        lock, source = HOMEASSISTANT
        _lock(uv, lock, [source, "--constraint", _own_constraints(uv, source, directory)], HOMEASSISTANT_PYTHON)
    return 0


def _lock(uv: str, lock: str, sources: list[str], python: str) -> None:
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", python]
    command += ["--generate-hashes", "--no-emit-index-url", "--no-annotate", "--output-file", lock]
    command += ["--custom-compile-command", "make lock", *sources]
    subprocess.run(command, check=True)
    print(f"· {lock}: {Path(lock).read_text(encoding='utf-8').count('==')} pins")


def _own_constraints(uv: str, source: str, directory: str) -> str:
    """The constraints inside the newest Home Assistant that runs on its Python: what it is tested with."""
    python = ["--python-version", HOMEASSISTANT_PYTHON]
    newest = [uv, "pip", "compile", "--quiet", "--no-deps", "--no-annotate", "--no-header", *python, source]
    pin = subprocess.run(newest, check=True, capture_output=True, text=True).stdout.strip()
    install = [uv, "pip", "install", "--quiet", "--no-deps", "--target", directory, *python, pin]
    subprocess.run(install, check=True)
    return str(Path(directory, "homeassistant", "package_constraints.txt"))


if __name__ == "__main__":
    sys.exit(main())
