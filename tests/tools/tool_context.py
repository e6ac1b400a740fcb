"""What the tests of the tools stand on: a working directory, and whatever the tool said while it ran."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

PATH = "/usr/local/bin:/usr/bin:/bin"


class Workplace:
    """A `ToolContext` that keeps what was reported."""

    def __init__(self, directory: Path, *roots: Path) -> None:
        self.directory = directory
        self.roots = roots
        self.reports: list[str] = []
        self.questions: list[str] = []
        self.says_yes = False
        self._reported = asyncio.Event()

    def progress(self, text: str) -> None:
        self.reports.append(text)
        self._reported.set()

    async def ask(self, question: str) -> bool:
        self.questions.append(question)
        return self.says_yes

    async def until(self, said: Callable[[list[str]], bool]) -> None:
        """Waits until the reports say so."""
        while not said(self.reports):
            self._reported.clear()
            await self._reported.wait()

    def write(self, path: str, content: str | bytes) -> Path:
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file


def is_alive(pid: int) -> bool:
    """Whether the process still runs; one that nobody has reaped yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
