"""`tailrace serve` as a process of its own, before a test provider in place of OpenAI, Anthropic and DeepSeek."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tailrace.testing.provider import FaultyProvider

KEY = "the-servers-own-key"
PRESETS = {"openai": "responses", "anthropic": "anthropic", "deepseek": "chat"}


class Served:
    """The server's address, and the provider behind it."""

    def __init__(self, url: str, provider: FaultyProvider, log: Path) -> None:
        self.url = url
        self.provider = provider
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")


@contextmanager
def in_thread(provider: FaultyProvider) -> Iterator[FaultyProvider]:
    """The provider on a loop and a thread of its own: clients are processes, and a test waits for them."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(provider.__aenter__(), loop).result()
    try:
        yield provider
    finally:
        asyncio.run_coroutine_threadsafe(provider.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def tailrace_serve(home: Path, provider: FaultyProvider, sections: Mapping[str, Any] | None = None) -> Iterator[Served]:
    """The presets `openai`, `anthropic` and `deepseek` are the provider, each in its own dialect. A key is needed."""
    with in_thread(provider):
        settings: dict[str, Any] = {
            "model": {"provider": "openai", "name": "gpt-5"},
            "providers": {
                name: {"base_url": provider.openai_url, "dialect": dialect} for name, dialect in PRESETS.items()
            },
            "call": {"max_attempts": 1, "idle_timeout_s": 20},
            "server": {"drain_s": 0.05},
            **(sections or {}),
        }
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.yaml").write_bytes(msgspec.json.encode(settings))  # JSON is YAML
        log = home / "serve.log"
        command = [sys.executable, "-m", "tailrace", "serve", "--port", "0"]
        variables = {"TAILRACE_HOME": str(home), "TAILRACE_API_KEY": KEY}
        with (
            log.open("wb") as stderr,
            subprocess.Popen(
                command, cwd=home, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=stderr
            ) as process,
        ):
            assert process.stdout is not None
            try:
                found = re.search(r"http://\S+", process.stdout.readline().decode())
                assert found, log.read_text(encoding="utf-8")
                yield Served(found[0], provider, log)
            finally:
                process.terminate()
