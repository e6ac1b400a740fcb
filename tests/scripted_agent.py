"""An `Agent` whose provider answers as a script says, and the runs that it has left in its database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tailrace import Agent
from tailrace.app import open_app
from tailrace.config.load import Config, load
from tailrace.ports import Run
from tailrace.testing.provider import Break, FaultyProvider, Offset, Reply, Scenario, reply

STALLED = Scenario(reply=reply("One two three four five"), broken=Break("stall", Offset(60, per_cent=True)))


def config_for(url: str, home: Path, tools: str = "[read_file]", dialect: str = "chat") -> Config:
    text = f"model: {{provider: faulty, name: ok}}\nproviders: {{faulty: {{dialect: {dialect}, base_url: '{url}'}}}}\n"
    (home / "config.yaml").write_text(text + f"agent: {{tools: {tools}}}\n", encoding="utf-8")
    return load({}, home)


@asynccontextmanager
async def opened(
    home: Path, *script: str | Scenario | Reply, dialect: str = "chat", **options: Any
) -> AsyncGenerator[tuple[Agent[Any], FaultyProvider], None]:
    async with (
        FaultyProvider(script) as server,
        Agent(config=config_for(server.url, home, dialect=dialect), directory=home, **options) as agent,
    ):
        yield agent, server


def runs_of(config: Config) -> list[Run]:
    """The runs in the agent's database, the newest first."""

    async def read() -> list[Run]:
        async with open_app(config) as app:
            return await app.journal.runs()

    return asyncio.run(read())
