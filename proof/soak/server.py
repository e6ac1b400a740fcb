"""The server of a soak: `tailrace serve` as a user starts it, in a home of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from proof.soak.provider import NOTE, SoakProvider

STOP_S = 30.0


class SoakServer(msgspec.Struct):
    url: str
    pid: int


def config(provider: SoakProvider) -> dict[str, object]:
    """Deadlines and waits are short, so that faults take seconds and not minutes; a whole answer has the total one
    alone."""
    bases = {"chat": provider.openai_url, "responses": provider.openai_url, "anthropic": provider.url}
    return {
        "model": {"provider": "chat", "name": "worker"},
        "providers": {name: {"dialect": name, "base_url": base} for name, base in bases.items()},
        "call": {
            "first_token_timeout_s": 1,
            "idle_timeout_s": 1,
            "total_timeout_s": 8,
            "backoff_s": 0.05,
            "backoff_max_s": 0.5,
        },
        "agent": {"tools": ["read_file"]},
        "server": {"drain_s": 5},
    }


def _furnish(home: Path, settings: dict[str, object]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_bytes(msgspec.json.encode(settings))
    (home / "note.txt").write_text(NOTE, encoding="utf-8")


@asynccontextmanager
async def soak_server(provider: SoakProvider, home: Path) -> AsyncGenerator[SoakServer, None]:
    """Serves within the block; what it logs goes to `serve.log` in its home. Raises `RuntimeError` where it ends by
    itself or does not stop."""
    _furnish(home, config(provider))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
    with (home / "serve.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tailrace", "serve", "--port", "0", "--log-level", "warning"),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**environment, "TAILRACE_HOME": str(home)},
            cwd=home,
        )
    assert process.stdout is not None
    try:
        words = (await process.stdout.readline()).decode().split()
        if not words:
            raise RuntimeError(f"the server did not start: {(home / 'serve.log').read_text(encoding='utf-8')}")
        yield SoakServer(words[-1], process.pid)
        if process.returncode is not None:
            raise RuntimeError(f"the server ended by itself with {process.returncode}")
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP_S)
            except TimeoutError:
                process.kill()
                await process.wait()
                raise RuntimeError(f"the server did not stop within {STOP_S:g} s") from None
