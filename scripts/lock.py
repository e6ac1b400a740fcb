"""Writes requirements/*.txt: every dependency pinned with hashes, for every platform, naming no index.

Needs `uv` on the PATH (`pip install uv`). `chat.txt` is what `make chat` installs, `dev.txt` adds the rest.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

_TESTED_EXTRAS = ("local", "mcp", "telegram", "discord", "slack", "matrix", "otel")
LOCKS = {
    "requirements/chat.txt": ["--extra", "local", "--group", "build"],
    "requirements/dev.txt": [*(word for name in _TESTED_EXTRAS for word in ("--extra", name)), "--group", "dev"],
}


def main() -> int:
    uv = shutil.which("uv")
    if uv is None:
        print("error: uv is not on the PATH\n       pip install uv", file=sys.stderr)
        return 1
    for lock, groups in LOCKS.items():
        command = [uv, "pip", "compile", "pyproject.toml", "--quiet", "--universal", "--python-version", "3.11"]
        command += ["--generate-hashes", "--no-emit-index-url", "--no-annotate", "--output-file", lock]
        command += ["--custom-compile-command", "make lock", *groups]
        subprocess.run(command, check=True)
        print(f"· {lock}: {Path(lock).read_text(encoding='utf-8').count('==')} pins")
    return 0


if __name__ == "__main__":
    sys.exit(main())
