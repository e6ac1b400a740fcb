"""`tailrace chat` as a process without a terminal of its own, and the config that it reads."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from tailrace.testing.provider import FaultyProvider


class Cli:
    """Starts `tailrace chat` with a config that names the provider."""

    def __init__(self, home: Path, server: FaultyProvider) -> None:
        self.home = home
        self.server = server
        self.config: dict[str, Any] = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": {"dialect": "chat", "base_url": server.openai_url, "backoff_s": 0.001}},
            "streaming": {"enabled": True},
        }
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("TAILRACE_", "HERMES_"))}

    async def start(self, *args: str, stdin: int = PIPE, stdout: int = PIPE) -> Process:
        (self.home / "config.yaml").write_text(json.dumps(self.config))  # JSON is YAML
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tailrace", "chat", *args),
            stdin=stdin,
            stdout=stdout,
            stderr=PIPE,
            start_new_session=True,  # no controlling terminal: nobody to ask
            env={**self.env, "TAILRACE_HOME": str(self.home)},
        )

    async def run(self, *args: str, stdin: bytes = b"") -> tuple[int | None, str, str]:
        process = await self.start(*args)
        out, err = await process.communicate(stdin)
        return process.returncode, out.decode(), err.decode()
