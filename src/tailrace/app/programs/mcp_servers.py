"""The MCP servers of the config, connected. The SDK is loaded only where there is one."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tailrace.app.secrets.config_secrets import mcp_secrets
from tailrace.config.load import Config

if TYPE_CHECKING:
    from tailrace.tools.mcp.servers import McpServers

log = logging.getLogger("tailrace.app")


@asynccontextmanager
async def connected_mcp_servers(config: Config) -> AsyncGenerator[McpServers | None, None]:
    """The MCP servers, those that can be reached connected. One that cannot is said, and does not stop the rest."""
    if not config.mcp.servers:
        yield None
        return
    from tailrace.tools.mcp.servers import McpServers

    environment = config.environment.without(()) | mcp_secrets(config)
    async with McpServers(config.mcp.servers, environment=environment) as servers:
        await servers.tools()
        for problem in servers.problems.values():
            log.warning("%s", problem)
        yield servers
