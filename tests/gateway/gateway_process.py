"""`tailrace gateway` as a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def gateway_process(home: Path, env: Mapping[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """With the config of this directory, where it writes its log to `gateway.log`. It is gone after the block."""
    with (home / "gateway.log").open("ab") as log:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tailrace", "gateway"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "TAILRACE_HOME": str(home), **env},
            cwd=home,
        )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def kill_9(child: asyncio.subprocess.Process) -> None:
    child.send_signal(signal.SIGKILL)
    await child.wait()
