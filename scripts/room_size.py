"""Fails when a module or a folder has outgrown a reader: split it by reason to change."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

MAX_LINES = 500
MAX_MODULES = 14  # side by side in one folder of the package, `__init__` not counted


def main() -> int:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        check=True,
        capture_output=True,
        text=True,
    )
    modules = [path for name in tracked.stdout.split() if (path := Path(name)).exists()]
    findings = [*_too_long(modules), *_too_full(modules)]
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


def _too_long(modules: list[Path]) -> list[str]:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules}
    return [f"{path}: {count} lines" for path, count in lines.items() if count > MAX_LINES]


def _too_full(modules: list[Path]) -> list[str]:
    rooms = Counter(path.parent for path in modules if path.parts[0] == "src" and path.name != "__init__.py")
    return [f"{room}: {count} modules side by side" for room, count in rooms.items() if count > MAX_MODULES]


if __name__ == "__main__":
    sys.exit(main())
