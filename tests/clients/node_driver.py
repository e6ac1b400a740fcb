"""A program of Node.js that runs one script after the other, driven from tests: a page's code without a page.

A line in is `{"script", "url", …}`, the script the body of an async function. A line out is `{"value"}` or `{"error"}`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clients.installed import PROGRAMS, client_environment, clients_dir


class NodeDriver:
    """The process; it keeps what one script leaves for the next."""

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
        assert answer, "the program has ended"
        return answer


@contextmanager
def node_driver(home: Path, program: str) -> Iterator[NodeDriver]:
    """`home` is the directory of its packages; `program` one of `programs/`."""
    (home / "node_modules").symlink_to(clients_dir() / "node_modules")
    (home / program).write_bytes((PROGRAMS / program).read_bytes())
    with subprocess.Popen(
        ["node", program],
        cwd=home,
        env=client_environment(home, {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield NodeDriver(process)
        finally:
            process.kill()
