"""One MCP server of the config: connected at first use, kept, connected anew after it was lost.

Owns what may be asked of a server, within the time-out and the limits. What the answers mean to the agent is for
`servers`, `tools`, `resources` and `prompts` to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from mcp import Client, MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    CallToolResult,
    GetPromptResult,
    Prompt,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    Tool,
)
from pydantic import BaseModel, ValidationError

from tailrace.config.sections import McpServer
from tailrace.messages import JsonObject
from tailrace.ports import ToolContext
from tailrace.tools.mcp.connection import Listing, McpConnection, McpFailed, OnChange
from tailrace.values.schema_cost import value_size

T = TypeVar("T")
Page = tuple[Sequence[T], str | None]  # and the cursor of the next

# Of one server's lists. Each tool is offered to the model with every request; the others are listed when asked for.
MAX_TOOLS: Final = 500
MAX_RESOURCES: Final = 1000
MAX_PROMPTS: Final = 500
MAX_LIST_BYTES: Final = 2_000_000
_MAX_PAGES: Final = 100


def text_size(schema: object) -> int:
    """About how many characters a schema has as JSON."""
    return 16 * value_size(schema, MAX_LIST_BYTES // 16)


class Link:
    """One server of the config. `on_change` hears that one of its lists has changed, or may have: after a new
    connection."""

    def __init__(
        self,
        name: str,
        settings: McpServer,
        environment: Mapping[str, str],
        *,
        roots: Sequence[Path] = (),
        on_change: OnChange | None = None,
    ) -> None:
        self.name = name
        self._settings = settings
        self._environment = environment
        self._roots = roots
        self._on_change = on_change
        self._connecting = asyncio.Lock()
        self._live: McpConnection | None = None
        self._was_connected = False
        self._capable: frozenset[Listing] = frozenset()  # as the server said when it was last connected
        self.offers: frozenset[Listing] = frozenset()  # of which it also has some, when `look` last asked

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────

    async def tools(self) -> tuple[list[Tool], str]:
        """The tools within the limits, and a line about what was left out; empty where nothing was. Raises
        `McpFailed`."""

        async def listed(client: Client) -> tuple[list[Tool], str]:
            if self._capable and "tools" not in self._capable:
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

    async def resources(self) -> tuple[list[Resource], list[ResourceTemplate], bool]:
        """Its resources, its templates of such, and whether these are all. Raises `McpFailed`."""

        async def listed(client: Client) -> tuple[list[Resource], list[ResourceTemplate], bool]:
            async def page(cursor: str | None) -> Page[Resource]:
                found = await client.list_resources(cursor=cursor)
                return found.resources, found.next_cursor

            async def template_page(cursor: str | None) -> Page[ResourceTemplate]:
                found = await client.list_resource_templates(cursor=cursor)
                return found.resource_templates, found.next_cursor

            resources, is_all = await _every_page(page, _json_size, MAX_RESOURCES)
            try:
                templates, are_all = await _every_page(template_page, _json_size, MAX_RESOURCES)
            except MCPError as exc:
                if exc.code != METHOD_NOT_FOUND:
                    raise
                templates, are_all = [], True
            return resources, templates, is_all and are_all

        return await self._ask(listed, again=True)

    async def prompts(self) -> list[Prompt]:
        """Raises `McpFailed`."""

        async def listed(client: Client) -> list[Prompt]:
            async def page(cursor: str | None) -> Page[Prompt]:
                found = await client.list_prompts(cursor=cursor)
                return found.prompts, found.next_cursor

            prompts, _ = await _every_page(page, _json_size, MAX_PROMPTS)
            return prompts

        return await self._ask(listed, again=True)

    async def look(self) -> None:
        """Finds out whether it has resources and prompts: many servers say so and have none. Raises `McpFailed`."""

        async def found(client: Client) -> frozenset[Listing]:
            kinds: set[Listing] = {"tools"}
            if "prompts" in self._capable and (await client.list_prompts()).prompts:
                kinds.add("prompts")
            if "resources" in self._capable and await _has_resources(client):
                kinds.add("resources")
            return frozenset(kinds)

        self.offers = await self._ask(found, again=True)

    # ── one of them ──────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, tool: str, args: JsonObject, context: ToolContext, *, again: bool = False) -> CallToolResult:
        """`again`: makes the call once more where the server was lost; without it, a call that was under way is not
        repeated. Raises `McpFailed`."""

        async def told(progress: float, total: float | None, message: str | None) -> None:
            context.progress(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

        return await self._ask(lambda client: client.call_tool(tool, args, progress_callback=told), again=again)

    async def read(self, uri: str) -> ReadResourceResult:
        """Raises `McpFailed`."""
        return await self._ask(lambda client: client.read_resource(uri), again=True)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> GetPromptResult:
        """Raises `McpFailed`."""
        return await self._ask(lambda client: client.get_prompt(name, dict(arguments)), again=True)

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────

    async def close(self) -> None:
        if self._live is not None:
            await self._live.close()
            self._live = None

    async def _ask(self, work: Callable[[Client], Coroutine[None, None, T]], *, again: bool) -> T:
        """Connects where that is needed, and asks; all of it within the time-out."""
        timeout_s = self._settings.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    return await self._ask_once(work)
                except _ServerLost:
                    if not again:
                        raise
                return await self._ask_once(work)
        except TimeoutError as exc:
            raise McpFailed(f"the MCP server {self.name} did not answer within {timeout_s:g} s") from exc

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
                    self.name, self._settings, self._environment, roots=self._roots, on_change=self._on_change
                ).opened()
                self._capable = _capabilities(self._live.client.server_capabilities)
                if self._was_connected and self._on_change is not None:
                    self._on_change()
                self._was_connected = True
            return self._live


def _json_size(listed: BaseModel) -> int:
    """Names, addresses and arguments count as the description does."""
    return len(listed.model_dump_json())


class _ServerLost(McpFailed):
    """The connection ended; what was asked may or may not have been done."""


def _capabilities(capabilities: ServerCapabilities) -> frozenset[Listing]:
    kinds: tuple[tuple[Listing, object], ...] = (
        ("tools", capabilities.tools),
        ("resources", capabilities.resources),
        ("prompts", capabilities.prompts),
    )
    return frozenset(name for name, offered in kinds if offered is not None)


async def _has_resources(client: Client) -> bool:
    if (await client.list_resources()).resources:
        return True
    try:
        return bool((await client.list_resource_templates()).resource_templates)
    except MCPError as exc:
        if exc.code != METHOD_NOT_FOUND:
            raise
        return False


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
