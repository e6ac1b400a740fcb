"""The MCP servers (the Model Context Protocol) of the config, and what the agent is offered of them.

Their tools are listed when the servers are first connected, and anew when a server says that they changed, was
connected anew, or could not be reached before. A turn keeps the tools that it began with. A server that crashed is one
failed call, and is connected anew at the next.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from tailrace.config.sections import McpServer
from tailrace.errors import ConfigError
from tailrace.messages import ToolSpec
from tailrace.ports import Tool
from tailrace.system.extras import install_command
from tailrace.tools.mcp.tools import McpTool

if TYPE_CHECKING:
    from tailrace.tools.mcp.link import Link

log = logging.getLogger("tailrace.tools.mcp")
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,30}")
LIST_EVERY_S: Final = 1.0  # at most: a server that announces changes without end is not asked without end
LIST_UNCHANGED_S: Final = 60.0  # where it announces changes again and again that are none
RETRY_S: Final = 30.0  # between tries to reach a server that could not be


class McpServers:
    """The servers of the config. Connected when their tools are first asked for, let go when the block is left."""

    def __init__(self, servers: Mapping[str, McpServer], *, environment: Mapping[str, str]) -> None:
        """`environment` is where `key_env` and the like are looked up. Raises `ConfigError`."""
        for name, settings in servers.items():
            _check(name, settings, environment)
        self._stale = {name: asyncio.Event() for name in servers}
        self._links: dict[str, Link] = self._made_links(servers, environment) if servers else {}
        self._tools: dict[str, dict[str, Tool]] = {}  # by server
        self._tried_at: dict[str, float] = {}
        self.offered: dict[str, Tool] = {}  # what the agent is offered now; this very object changes
        self.problems: dict[str, str] = {}  # by server: why not all of its tools are there

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        self._keeping = [self._group.create_task(self._keep_listed(link)) for link in self._links.values()]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._keeping:
            task.cancel()
        await self._group.__aexit__(None, None, None)
        await asyncio.gather(*(link.close() for link in self._links.values()))

    # ── tools ────────────────────────────────────────────────────────────────────────────────────────────────

    async def tools(self) -> dict[str, Tool]:
        """What every server that can be reached offers; the others are in `problems`, and tried again."""
        async with asyncio.TaskGroup() as group:
            for link in self._links.values():
                group.create_task(self._list(link))
        return dict(self.offered)

    @property
    def missing(self) -> dict[str, str]:
        """The servers of which no tool is offered because they cannot be reached, and why."""
        return {name: why for name, why in self.problems.items() if not self._tools.get(name)}

    def retry(self) -> None:
        """Has servers tried again that could not be reached, unless that was a moment ago. Returns at once: what they
        offer is there for a later turn."""
        now = asyncio.get_running_loop().time()
        for name in self.problems:
            if now - self._tried_at.get(name, 0.0) > RETRY_S:
                self._tried_at[name] = now
                self._stale[name].set()

    async def _keep_listed(self, link: Link) -> None:
        pause_s = LIST_EVERY_S
        while True:
            await self._stale[link.name].wait()
            self._stale[link.name].clear()
            before = self._listed(link)
            await self._list(link)
            problem, tools = after = self._listed(link)
            if problem and problem != before[0]:
                log.warning("%s", problem)
            elif not problem and after != before:
                log.info("the MCP server %s offers %d tools now", link.name, len(tools))
            pause_s = LIST_EVERY_S if after != before or problem else min(2 * pause_s, LIST_UNCHANGED_S)
            await asyncio.sleep(pause_s)

    def _listed(self, link: Link) -> tuple[str, list[ToolSpec]]:
        """Why not all of the server's tools are there, and those that are."""
        return self.problems.get(link.name, ""), [tool.spec for tool in self._tools.get(link.name, {}).values()]

    async def _list(self, link: Link) -> None:
        """A server that cannot be reached keeps the tools that it had: a call says what is wrong, and tries again."""
        from tailrace.tools.mcp.connection import McpFailed

        self._tried_at[link.name] = asyncio.get_running_loop().time()
        try:
            described, problem = await link.tools()
        except McpFailed as exc:
            self.problems[link.name] = str(exc)
            return
        self.problems.pop(link.name, None)
        if problem:
            self.problems[link.name] = problem
        tools = [McpTool(link, tool) for tool in described]
        self._tools[link.name] = {tool.spec.name: tool for tool in tools}
        self._offer()

    def _offer(self) -> None:
        self.offered.clear()
        for name in self._links:
            self.offered |= self._tools.get(name, {})

    def _made_links(self, servers: Mapping[str, McpServer], environment: Mapping[str, str]) -> dict[str, Link]:
        try:
            from tailrace.tools.mcp.link import Link
        except ModuleNotFoundError as exc:
            raise ConfigError(f"MCP servers need an extra: {install_command('mcp')}", key="mcp.servers") from exc
        return {
            name: Link(name, settings, environment, on_change=self._stale[name].set)
            for name, settings in servers.items()
        }


def _check(name: str, settings: McpServer, environment: Mapping[str, str]) -> None:
    key = f"mcp.servers.{name}"
    if not _SERVER_NAME.fullmatch(name):
        raise ConfigError("a server's name is made of letters, digits, _ and -, at most 30", key=key)
    if bool(settings.command) == (settings.url is not None):
        raise ConfigError("give either command or url", key=key)
    if settings.key_env is not None and settings.url is None:
        raise ConfigError("key_env goes with url; a program gets its key by env_allow", key=key)
    if settings.url is None and (settings.headers or settings.headers_env or settings.transport is not None):
        raise ConfigError("headers, headers_env and transport go with url", key=key)
    variables = {"key_env": settings.key_env} if settings.key_env is not None else {}
    variables |= {f"headers_env.{header}": variable for header, variable in settings.headers_env.items()}
    for place, variable in variables.items():
        if not environment.get(variable, "").strip():
            raise ConfigError(f"{variable} is not set in the environment", key=f"{key}.{place}")
