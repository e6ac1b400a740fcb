"""Temporal's SDK and its own test server, from the clients that `make clients` installs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from clients.installed import PROGRAMS, clients_dir

_HOST = PROGRAMS / "temporal_host.py"
PACKAGES = "temporal-packages"  # the directory of the SDK, in the home of a test
_PACKAGES = ("temporalio", "nexusrpc", "google")


def sdk_packages(home: Path) -> Path:
    """A directory with the SDK and what only it needs: a program of our own environment imports all else from there."""
    site = next((clients_dir() / "venv/lib").glob("python3.*/site-packages"))
    if not (site / "temporalio").is_dir():
        pytest.skip("these clients have no temporalio; run: make clients")
    packages = home / PACKAGES
    packages.mkdir()
    for name in _PACKAGES:
        (packages / name).symlink_to(site / name)
    return packages


@asynccontextmanager
async def temporal_server() -> AsyncGenerator[str, None]:
    """Its address."""
    programs = clients_dir() / "venv/bin"
    if not (programs / "temporal-test-server").exists():
        pytest.skip("these clients have no temporal-test-server; run: make clients")
    command = (programs / "python", _HOST, programs / "temporal-test-server")
    pipe = asyncio.subprocess.PIPE
    host = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
    try:
        assert host.stdout is not None
        yield (await host.stdout.readline()).decode().strip()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(host.pid, signal.SIGKILL)  # with the server that it has started
        await host.wait()
