"""What several of these tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.chat.chat_process import Cli
from cli.chat.screen_home import Home
from tailrace.testing.provider import FaultyProvider


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with FaultyProvider() as server:
        yield Home(tmp_path, server)


@pytest.fixture
async def cli(tmp_path: Path) -> AsyncIterator[Cli]:
    async with FaultyProvider() as server:
        yield Cli(tmp_path, server)
