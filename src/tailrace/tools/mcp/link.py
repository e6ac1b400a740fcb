"""The connection to one MCP server: made at first use, kept, made anew after it was lost.

Owns the server's process or HTTP session and the SDK's client. The SDK wants to be entered and left in one task, so
each connection lives in a task of its own; calls come from anywhere. What the tools mean to the agent is for `mcp` to
say.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TextIO, TypeVar

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, CallToolResult, Implementation, Tool

from tailrace import __version__
from tailrace.config.sections import McpServer
from tailrace.errors import TailraceError
from tailrace.messages import JsonObject
from tailrace.ports import ToolContext
from tailrace.schema_cost import value_size
from tailrace.tools.process import to_the_end

T = TypeVar("T")

# Of one server's list of tools. Each is offered to the model with every request.
MAX_TOOLS = 500
MAX_LIST_BYTES = 2_000_000
_MAX_PAGES = 100
_TAIL_BYTES = 2000


def text_size(schema: object) -> int:
    """About how many characters a schema has as JSON."""
    return 16 * value_size(schema, MAX_LIST_BYTES // 16)


class McpFailed(TailraceError):
    """The server could not be started or reached, or was lost, or did not answer; says which."""


class Link:
    """One server of the config."""

    def __init__(
        self,
        name: str,
        settings: McpServer,
        environment: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` go with every request to `url`."""
        self.name = name
        self._settings = settings
        self._environment = environment
        self._headers = headers or {}
        self._connecting = asyncio.Lock()
        self._live: _Live | None = None

    async def tools(self) -> tuple[list[Tool], str]:
        """The tools within the limits, and a line about what was left out; empty where nothing was. Raises
        `McpFailed`."""

        async def every_page(client: Client) -> tuple[list[Tool], str]:
            found: list[Tool] = []
            cursor: str | None = None
            size = 0
            for _ in range(_MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                for tool in page.tools:
                    size += len(tool.description or "") + text_size(tool.input_schema)
                    if len(found) == MAX_TOOLS or size > MAX_LIST_BYTES:
                        return found, self._left_out(len(found))
                    found.append(tool)
                cursor = page.next_cursor
                if cursor is None:
                    return found, ""
            return found, self._left_out(len(found))

        return await self._ask(every_page)

    def _left_out(self, used: int) -> str:
        return f"the MCP server {self.name} lists more tools than can be offered; the first {used} are used"

    async def call(self, tool: str, args: JsonObject, context: ToolContext) -> CallToolResult:
        """Raises `McpFailed`; a call that was under way when the server was lost is not made again."""

        async def told(progress: float, total: float | None, message: str | None) -> None:
            context.progress(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

        return await self._ask(lambda client: client.call_tool(tool, args, progress_callback=told))

    async def close(self) -> None:
        if self._live is not None:
            await self._live.close()
            self._live = None

    async def _ask(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Connects where that is needed, and asks; all of it within the time-out."""
        timeout_s = self._settings.timeout_s
        live: _Live | None = None
        try:
            async with asyncio.timeout(timeout_s):
                live = await self._connected()
                return await work(live.client)
        except TimeoutError as exc:
            raise McpFailed(f"the MCP server {self.name} did not answer within {timeout_s:g} s") from exc
        except MCPError as exc:
            if exc.code != CONNECTION_CLOSED or live is None:
                raise McpFailed(f"the MCP server {self.name} says: {exc.message}") from exc
            live.lost = True
            why = f"the MCP server {self.name} was lost{live.last_words()}; the next call connects anew"
            raise McpFailed(why) from exc

    async def _connected(self) -> _Live:
        async with self._connecting:
            if self._live is not None and self._live.lost:
                await self.close()
            if self._live is None:
                self._live = await _Live.open(self.name, self._settings, self._environment, self._headers)
            return self._live


class _Live:
    """One connection, from its making to its end, in a task of its own."""

    client: Client

    def __init__(
        self, name: str, settings: McpServer, environment: Mapping[str, str], headers: Mapping[str, str]
    ) -> None:
        self._name = name
        self._settings = settings
        self._environment = environment
        self._headers = headers
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._errors = _Tail()
        self.lost = False
        self._task = asyncio.create_task(self._hold())

    @classmethod
    async def open(
        cls, name: str, settings: McpServer, environment: Mapping[str, str], headers: Mapping[str, str]
    ) -> _Live:
        """Raises `McpFailed`. A cancelled caller leaves no connection behind."""
        live = cls(name, settings, environment, headers)
        try:
            live.client = await asyncio.shield(live._ready)
        except BaseException:
            await live.close()
            raise
        return live

    async def close(self) -> None:
        self._leave.set()
        if not self._ready.done():
            self._task.cancel()
        await to_the_end(_ended(self._task))

    def last_words(self) -> str:
        """What it printed to its standard error in the end, where it did."""
        text = self._errors.text()
        return f" ({text})" if text else ""

    async def _hold(self) -> None:
        try:
            async with self._client() as client:
                self._ready.set_result(client)
                await self._leave.wait()
        except Exception as exc:  # noqa: BLE001 - the SDK raises whatever its transports raise, in groups: this is a task's top
            self._fail(f"the MCP server {self._name} cannot be reached: {_innermost(exc)}{self.last_words()}")
        finally:
            self.lost = True
            self._fail(f"the MCP server {self._name} was let go")
            self._errors.close()

    def _fail(self, why: str) -> None:
        if not self._ready.done():
            self._ready.set_exception(McpFailed(why))
            self._ready.exception()  # retrieved: there may be no waiter any more

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        us = Implementation(name="tailrace", version=__version__)
        if self._settings.url is None:
            program, *arguments = self._settings.command
            wanted = {*DEFAULT_INHERITED_ENV_VARS, *self._settings.env_allow}
            env = {name: value for name, value in self._environment.items() if name in wanted}
            parameters = StdioServerParameters(command=program, args=arguments, env=env)
            async with Client(stdio_client(parameters, self._errors.file), client_info=us) as client:
                self._errors.file.close()  # ours; the server has its own by now
                yield client
            return
        key = self._environment.get(self._settings.key_env, "").strip() if self._settings.key_env else ""
        async with (
            httpx2.AsyncClient(
                headers={**self._headers, **({"Authorization": f"Bearer {key}"} if key else {})},
                timeout=httpx2.Timeout(30.0, read=None),  # a tool may take long: the call's own deadline counts
            ) as http,
            Client(streamable_http_client(self._settings.url, http_client=http), client_info=us) as client,
        ):
            yield client


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})


def _innermost(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return str(exc) or type(exc).__name__


class _Tail:
    """The end of what a server prints to its standard error: read as it comes, so that it never blocks."""

    def __init__(self) -> None:
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        self.file: TextIO = os.fdopen(theirs, "w")
        self._kept = b""
        asyncio.get_running_loop().add_reader(self._pipe, self._read)

    def text(self) -> str:
        """Its last line."""
        with suppress(OSError):  # all read, or closed
            while self._read():
                pass
        return self._kept.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()

    def close(self) -> None:
        self.file.close()
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
        self._pipe = -1  # the number may be reused

    def _read(self) -> bool:
        data = os.read(self._pipe, 65_536)
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe)
        self._kept = (self._kept + data)[-_TAIL_BYTES:]
        return bool(data)
