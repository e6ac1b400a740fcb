"""`tailrace serve` as a process of its own, for tests of the whole command."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp


class Process:
    """The command, started; `url` is what its one line says."""

    def __init__(self, child: asyncio.subprocess.Process, url: str, client: aiohttp.ClientSession) -> None:
        self.child = child
        self.url = url
        self.client = client

    async def start(self, **body: object) -> str:
        async with self.client.post(self.url + "/runs", json={"input": "Count.", **body}) as response:
            assert response.status == 201, await response.text()
            run_id: str = (await response.json())["id"]
            return run_id

    async def stop(self) -> tuple[int, str]:
        self.child.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> tuple[int, str]:
        _, err = await self.child.communicate()
        return self.child.returncode or 0, err.decode()


@asynccontextmanager
async def command(
    home: Path, *args: str, under: Sequence[str] = (), **env: str
) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """`under`: a program that starts it in its own place, as `nohup` does."""
    child = await asyncio.create_subprocess_exec(
        *(*under, sys.executable, "-m", "tailrace", "serve", "--port", "0", *args),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TAILRACE_HOME": str(home), **env},
        cwd=home,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@asynccontextmanager
async def served(home: Path, *args: str, under: Sequence[str] = (), **env: str) -> AsyncGenerator[Process, None]:
    async with command(home, *args, under=under, **env) as child, aiohttp.ClientSession() as client:
        assert child.stdout is not None
        line = (await child.stdout.readline()).decode()
        assert line.startswith("tailrace listens on http://127.0.0.1:"), (await child.communicate())[1].decode()
        yield Process(child, line.split()[-1], client)
