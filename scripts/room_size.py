"""Fails when a module, a folder, the package or its kernel has outgrown a reader: split it by reason to change."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

MAX_LINES = 500
MAX_MODULES = 14  # side by side in one folder of the package, `__init__` not counted
PACKAGE = Path("src/tailrace")
MAX_PACKAGE_LINES = 98_000
# What one reads in two days.
KERNEL = ["errors", "messages", "events", "ports", "wire", "providers", "journal", "runs", "agent", "calls"]
MAX_KERNEL_LINES = 31_000
MAX_WORDS = 35_000  # of README.md and docs


def main() -> int:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        check=True,
        capture_output=True,
        text=True,
    )
    modules = [path for name in tracked.stdout.split() if (path := Path(name)).exists()]
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules}
    findings = [*_too_long(lines), *_too_full(modules), *_too_large(lines), *_too_wordy()]
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


def _too_long(lines: dict[Path, int]) -> list[str]:
    return [f"{path}: {count} lines" for path, count in lines.items() if count > MAX_LINES]


def _too_full(modules: list[Path]) -> list[str]:
    rooms = Counter(path.parent for path in modules if path.parts[0] == "src" and path.name != "__init__.py")
    return [f"{room}: {count} modules side by side" for room, count in rooms.items() if count > MAX_MODULES]


def _too_large(lines: dict[Path, int]) -> list[str]:
    package = {path.relative_to(PACKAGE): count for path, count in lines.items() if path.is_relative_to(PACKAGE)}
    whole = sum(package.values())
    kernel = sum(count for path, count in package.items() if path.parts[0].removesuffix(".py") in KERNEL)
    sizes = [(PACKAGE, whole, MAX_PACKAGE_LINES), ("its kernel", kernel, MAX_KERNEL_LINES)]
    return [f"{name}: {count} lines, at most {most}" for name, count, most in sizes if count > most]


def _too_wordy() -> list[str]:
    pages = [Path("README.md"), *Path("docs").rglob("*.md")]
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    return [f"README and docs: {words} words, at most {MAX_WORDS}"] if words > MAX_WORDS else []


if __name__ == "__main__":
    sys.exit(main())
