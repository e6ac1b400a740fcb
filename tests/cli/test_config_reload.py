"""A config that is taken up while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tailrace.agent.safety.redact import Redactor
from tailrace.app import open_app
from tailrace.cli.config_reload import ConfigReloads
from tailrace.config.load import Config, load
from tailrace.errors import StorageFailed


async def test_a_part_that_cannot_take_its_config_up_ends_neither_the_others_nor_the_server(tmp_path: Path) -> None:
    asked, stop = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        raise StorageFailed("the disk is full")

    async def succeed() -> None:
        stop.set()

    def part(take_up: Callable[[], Awaitable[None]]) -> Callable[[Config], Callable[[], Awaitable[None]]]:
        return lambda _: take_up

    (tmp_path / "config.yaml").write_text("store: {url: 'memory://'}\n")
    async with open_app(load({}, tmp_path)) as app, asyncio.timeout(30):
        asked.set()
        await ConfigReloads(app, asked, Redactor(), [part(fail), part(succeed)]).until(stop)
    assert stop.is_set()
