"""The MCP servers that an editor passes with a session: connected in the background, closed with the session."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from acp.schema import AcpMcpServer, HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer

from tailrace.config.sections import McpServer
from tailrace.errors import TailraceError
from tailrace.ports import Tool
from tailrace.tools.mcp.servers import McpServers

CONNECT_S: Final = 30.0  # how long a first prompt waits for the servers
MAX_NAME_CHARS: Final = 30
GivenServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


def mcp_is_installed() -> bool:
    return find_spec("mcp") is not None


class SessionServers:
    """The servers of one session. `close` must be called."""

    def __init__(self, given: Sequence[GivenServer], environment: Mapping[str, str]) -> None:
        self.problems: list[str] = []  # what the user must know, shown once
        self._tools: dict[str, Tool] = {}
        self._leave = asyncio.Event()
        self._connected = asyncio.Event()
        self._task = asyncio.create_task(self._hold(given, environment)) if given else None

    async def tools(self) -> dict[str, Tool]:
        """The tools of those that are connected within `CONNECT_S`; the rest comes with a later turn."""
        if self._task is not None and not self._connected.is_set():
            try:
                async with asyncio.timeout(CONNECT_S):
                    await self._connected.wait()
            except TimeoutError:
                self.problems.append(f"not every MCP server answered within {CONNECT_S:g} s")
        return dict(self._tools)

    def take_problems(self) -> list[str]:
        problems, self.problems = self.problems, []
        return problems

    async def close(self) -> None:
        if self._task is not None:
            self._leave.set()
            if not self._connected.is_set():
                self._task.cancel()
            await asyncio.wait({self._task})

    async def _hold(self, given: Sequence[GivenServer], environment: Mapping[str, str]) -> None:
        """Connects and disconnects in one task, as the SDK wants it."""
        if mcp_is_installed():
            await asyncio.to_thread(import_module, "tailrace.tools.mcp.link")  # takes a while: the loop goes on
        async with AsyncExitStack() as stack:
            opened = [await self._opened(stack, name, server, environment) for name, server in _named(given)]
            await asyncio.gather(*(self._list(servers) for servers in opened if servers is not None))
            self._connected.set()
            await self._leave.wait()

    async def _opened(
        self, stack: AsyncExitStack, name: str, server: GivenServer, environment: Mapping[str, str]
    ) -> McpServers | None:
        seen = environment
        match server:
            case McpServerStdio(command=command, args=args, env=env):
                own = {variable.name: variable.value for variable in env}
                settings = McpServer(command=(command, *args), env_allow=tuple(own))
                seen = {**environment, **own}
            case HttpMcpServer(url=url, headers=sent):
                settings = McpServer(url=url, headers=_headers(sent), transport="http")
            case SseMcpServer(url=url, headers=sent):
                settings = McpServer(url=url, headers=_headers(sent), transport="sse")
            case AcpMcpServer():
                self.problems.append(f"the MCP server {name} was left out: stdio, http and sse are spoken here")
                return None
        try:
            return await stack.enter_async_context(McpServers({name: settings}, environment=seen))
        except TailraceError as exc:
            self.problems.append(f"the MCP server {name} was left out: {exc}")
            return None

    async def _list(self, servers: McpServers) -> None:
        self._tools |= await servers.tools()
        self.problems += servers.problems.values()


def _headers(sent: Sequence[HttpHeader]) -> dict[str, str]:
    return {header.name: header.value for header in sent}


def _named(given: Sequence[GivenServer]) -> list[tuple[str, GivenServer]]:
    """Each server by a name that tools can begin with, unlike any other's."""
    named: dict[str, GivenServer] = {}
    for server in given:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", server.name)[:MAX_NAME_CHARS] or "server"
        name, number = plain, 1
        while name in named:
            number += 1
            name = f"{plain[: MAX_NAME_CHARS - len(str(number))]}{number}"
        named[name] = server
    return [*named.items()]
