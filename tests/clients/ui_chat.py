"""The AI SDK's chat in a process of its own, driven from tests: see `programs/ui_chat.mjs`."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clients.installed import PROGRAMS, client_environment, clients_dir


class ChatDriver:
    """One node process, for one script after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    async def run(self, url: str, script: str, **given: Any) -> Any:
        """What the script returns. Raises `AssertionError` where it throws."""
        line = json.dumps({"script": script, "url": url, **given})
        said = json.loads(await asyncio.to_thread(self._exchange, line))
        assert "error" not in said, said["error"]
        return said["value"]

    def _exchange(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the driver has ended"
        return answer


@contextmanager
def chat_driver(home: Path) -> Iterator[ChatDriver]:
    """`home` is the directory of its packages and its program."""
    (home / "node_modules").symlink_to(clients_dir() / "node_modules")
    (home / "ui_chat.mjs").write_bytes((PROGRAMS / "ui_chat.mjs").read_bytes())
    with subprocess.Popen(
        ["node", "ui_chat.mjs"],
        cwd=home,
        env=client_environment(home, {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield ChatDriver(process)
        finally:
            process.kill()
