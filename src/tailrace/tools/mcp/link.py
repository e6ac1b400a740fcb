"""One MCP server of the config: connected at first use, kept, connected anew after it was lost.

Owns what may be asked of a server, within the time-out and the limits. What the answers mean to the agent is for
`servers` and `tools` to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Final, TypeVar

from mcp import Client, MCPError
from mcp_types import CONNECTION_CLOSED, CallToolResult, ElicitRequestParams, ElicitResult, Tool
from pydantic import ValidationError

from tailrace.config.sections import McpServer
from tailrace.messages import JsonObject
from tailrace.ports import ToolContext
from tailrace.tools.mcp.connection import McpConnection, McpFailed, OnChange
from tailrace.tools.mcp.elicitation import DECLINED, answer
from tailrace.values.schema_cost import value_size

T = TypeVar("T")
Page = tuple[Sequence[T], str | None]  # and the cursor of the next

# Of one server's list: each tool is offered to the model with every request.
MAX_TOOLS: Final = 2000
MAX_LIST_BYTES: Final = 2_000_000
_MAX_PAGES: Final = 100


def text_size(schema: object) -> int:
    """About how many characters a schema has as JSON."""
    return 16 * value_size(schema, MAX_LIST_BYTES // 16)


class Link:
    """One server of the config. `on_change` hears that one of its lists has changed, or may have: after a new
    connection."""

    def __init__(
        self, name: str, settings: McpServer, environment: Mapping[str, str], *, on_change: OnChange | None = None
    ) -> None:
        self.name = name
        self._settings = settings
        self.is_trusted = settings.trust
        self._environment = environment
        self._on_change = on_change
        self._connecting = asyncio.Lock()
        self._calls: list[ToolContext] = []  # under way
        self._deadlines: set[asyncio.Timeout] = set()  # of what is asked of the server
        self._live: McpConnection | None = None
        self._was_connected = False

    async def tools(self) -> tuple[list[Tool], str]:
        """The tools within the limits, and a line about what was left out; empty where nothing was. Raises
        `McpFailed`."""

        async def listed(client: Client) -> tuple[list[Tool], str]:
            if client.server_capabilities.tools is None:
                return [], ""

            async def page(cursor: str | None) -> Page[Tool]:
                found = await client.list_tools(cursor=cursor)
                return found.tools, found.next_cursor

            tools, is_all = await _every_page(
                page,
                lambda tool: len(tool.name) + len(tool.description or "") + text_size(tool.input_schema),
                MAX_TOOLS,
            )
            return tools, "" if is_all else self._left_out(len(tools))

        return await self._ask(listed, again=True)

    def _left_out(self, used: int) -> str:
        return f"the MCP server {self.name} lists more tools than can be offered; the first {used} are used"

    async def call(self, tool: str, args: JsonObject, context: ToolContext, *, again: bool = False) -> CallToolResult:
        """`again`: makes the call once more where the server was lost; without it, a call that was under way is not
        repeated. Raises `McpFailed`."""

        async def told(progress: float, total: float | None, message: str | None) -> None:
            context.progress(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

        self._calls.append(context)
        try:
            return await self._ask(lambda client: client.call_tool(tool, args, progress_callback=told), again=again)
        finally:
            self._calls.remove(context)

    async def _elicit(self, params: ElicitRequestParams) -> ElicitResult:
        """The protocol does not say for which call the server asks: with several under way, another person than the
        caller might be asked. No deadline runs while a person thinks."""
        if len(self._calls) != 1:
            return DECLINED
        loop = asyncio.get_running_loop()
        for deadline in self._deadlines:
            deadline.reschedule(None)
        try:
            return await answer(self.name, params, self._calls[0].ask)
        finally:
            for deadline in self._deadlines:
                deadline.reschedule(loop.time() + self._settings.timeout_s)

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────

    async def close(self) -> None:
        if self._live is not None:
            await self._live.close()
            self._live = None

    async def _ask(self, work: Callable[[Client], Coroutine[None, None, T]], *, again: bool) -> T:
        """Connects where that is needed, and asks; all of it within the time-out."""
        timeout_s = self._settings.timeout_s
        deadline = asyncio.timeout(timeout_s)
        self._deadlines.add(deadline)
        try:
            async with deadline:
                try:
                    return await self._ask_once(work)
                except _ServerLost:
                    if not again:
                        raise
                return await self._ask_once(work)
        except TimeoutError as exc:
            raise McpFailed(f"the MCP server {self.name} did not answer within {timeout_s:g} s") from exc
        finally:
            self._deadlines.discard(deadline)

    async def _ask_once(self, work: Callable[[Client], Coroutine[None, None, T]]) -> T:
        live = await self._connected()
        try:
            return await work(live.client)
        except MCPError as exc:
            if exc.code != CONNECTION_CLOSED:
                raise McpFailed(f"the MCP server {self.name} says: {exc.message}") from exc
            live.lost = True
            why = f"the MCP server {self.name} was lost{live.last_words()}; the next call connects anew"
            raise _ServerLost(why) from exc
        except (ValidationError, RuntimeError, ValueError) as exc:  # the SDK's words for a bad answer
            why = str(exc).partition("\n")[0]
            raise McpFailed(f"the MCP server {self.name} broke the protocol: {why}") from exc

    async def _connected(self) -> McpConnection:
        async with self._connecting:
            if self._live is not None and self._live.lost:
                await self.close()
            if self._live is None:
                self._live = await McpConnection(
                    self.name, self._settings, self._environment, on_elicit=self._elicit, on_change=self._on_change
                ).opened()
                if self._was_connected and self._on_change is not None:
                    self._on_change()
                self._was_connected = True
            return self._live


class _ServerLost(McpFailed):
    """The connection ended; what was asked may or may not have been done."""


async def _every_page(
    page: Callable[[str | None], Awaitable[Page[T]]], size_of: Callable[[T], int], most: int
) -> tuple[list[T], bool]:
    """All of a list, as far as the limits go, and whether that is all."""
    found: list[T] = []
    cursor: str | None = None
    size = 0
    for _ in range(_MAX_PAGES):
        items, cursor = await page(cursor)
        for item in items:
            size += size_of(item)
            if len(found) == most or size > MAX_LIST_BYTES:
                return found, False
            found.append(item)
        if cursor is None:
            return found, True
    return found, False
