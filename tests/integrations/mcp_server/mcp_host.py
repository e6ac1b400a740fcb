"""An MCP host made with the official SDK, and `tailrace mcp` as its server: a process of its own on real pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent

from tailrace.testing.provider import FaultyProvider

COMMAND = ("-m", "tailrace", "mcp")


def write_config(home: Path, provider: FaultyProvider, sections: Mapping[str, Any] | None = None) -> None:
    settings = {
        "model": {"provider": "up", "name": "turn"},
        "providers": {"up": {"base_url": provider.openai_url, "dialect": "chat"}},
        "call": {"max_attempts": 1},
        "store": {"lease_s": 1},
        **(sections or {}),
    }
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_bytes(msgspec.json.encode(settings))  # JSON is YAML


def environment_of(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "TAILRACE_HOME": str(home)}


@asynccontextmanager
async def host_of(home: Path, *args: str, **options: Any) -> AsyncGenerator[Client, None]:
    """A client of `tailrace mcp`; `options` are the SDK's. Its log is in `mcp.log`."""
    work = home / "work"
    work.mkdir(parents=True, exist_ok=True)
    server = StdioServerParameters(
        command=sys.executable, args=[*COMMAND, *args], env=environment_of(home), cwd=str(work)
    )
    with (home / "mcp.log").open("a") as log:
        async with Client(stdio_client(server, log), **options) as client:
            yield client


class Report:
    """What a tool gave: the text for the model, and the same as a value."""

    def __init__(self, result: CallToolResult) -> None:
        (content,) = result.content
        assert isinstance(content, TextContent)
        self.text = content.text
        self.is_error = result.is_error
        self.value: Any = result.structured_content

    def __getitem__(self, name: str) -> Any:
        return self.value.get(name)


async def call(client: Client, tool: str, /, **arguments: Any) -> Report:
    return Report(await client.call_tool(tool, arguments))
