"""A real Redis server of a test's own, on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from end_with_tests import ended_with_tests

PROGRAM = shutil.which("redis-server")


class RedisServer:
    """Keeps nothing when it ends, as a Redis that serves as a bus may."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = _free_port()
        self.pid_file = directory / "redis.pid"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "it runs"
        return self._process.pid

    def start(self) -> None:
        """Returns when the server takes connections."""
        assert PROGRAM is not None
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "save": "",
            "dir": str(self._directory),
            "pidfile": str(self.pid_file),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if b"Ready to accept connections" in line:
                return
        raise RuntimeError(f"redis-server did not start on port {self.port}")

    def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self.pid_file.unlink(missing_ok=True)  # its number may be another's from now on


@contextmanager
def redis_server(directory: Path) -> Iterator[RedisServer]:
    """Skips the test where Redis is not installed; in CI that is a failure."""
    if PROGRAM is None:
        assert os.environ.get("CI") != "true", "redis-server is not installed"
        pytest.skip("redis-server is not installed")
    server = RedisServer(directory)
    with ended_with_tests(server.pid_file):
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
