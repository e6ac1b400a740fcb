"""One connection to an MCP server: its process or HTTP session and the SDK's client, from the making to the end.

The SDK wants to be entered and left in one task, so each connection lives in a task of its own; calls come from
anywhere. Hears when the server's tools have changed, and what it asks a person. Offers it neither sampling nor roots;
the SDK refuses them when they are asked for all the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Literal, TextIO, TypeAlias, TypeVar

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.session import IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, ToolsListChanged
from mcp_types import CONNECTION_CLOSED, Implementation, ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tailrace import __version__
from tailrace.config.sections import McpServer
from tailrace.errors import TailraceError
from tailrace.system.own_task import finish
from tailrace.tools.mcp.elicitation import OnElicit
from tailrace.tools.typed import preview_line

log = logging.getLogger("tailrace.tools.mcp")
T = TypeVar("T")
# How the connection begins: `legacy` is the handshake of the protocol to 2025-11-25, `auto` asks for a newer one first.
Opening: TypeAlias = Literal["auto", "legacy"]
OnChange: TypeAlias = Callable[[], None]
_CHANGED: Final = (ToolListChangedNotification, ToolsListChanged)
_TAIL_BYTES: Final = 2000
_A_DAY_S: Final = 86_400.0
_MAX_LOG_CHARS: Final = 500
# How many Tailrace processes stand above a server. One that is `tailrace mcp` itself must not start the next for ever.
DEPTH_VARIABLE: Final = "TAILRACE_MCP_DEPTH"


def depth_in(environment: Mapping[str, str]) -> int:
    given = environment.get(DEPTH_VARIABLE, "")
    return int(given) if given.isdecimal() else 0


class _SdkLines(logging.Handler):
    """Writes what the SDK logs of a connection as one line, without its traceback: that the connection was lost, or
    that a request was refused (401), which the SDK reports nowhere else."""

    connections = 0

    def emit(self, record: logging.LogRecord) -> None:
        failure = record.exc_info[1] if record.exc_info else None
        why = f": {_told(failure)}" if failure is not None else ""
        log.log(min(record.levelno, logging.WARNING), "MCP: %s%s", record.getMessage(), why)


_SDK_LINES: Final = _SdkLines(logging.WARNING)


@contextmanager
def _sdk_lines_logged() -> Iterator[None]:
    """The handler is on the SDK's logger while there are connections: a host program may use the SDK itself."""
    logger = logging.getLogger("mcp")
    _SDK_LINES.connections += 1
    logger.addHandler(_SDK_LINES)
    try:
        yield
    finally:
        _SDK_LINES.connections -= 1
        if not _SDK_LINES.connections:
            logger.removeHandler(_SDK_LINES)


class McpFailed(TailraceError):
    """The server could not be started or reached, or was lost, or did not answer; says which."""


class McpConnection:
    """One connection, in a task of its own. `on_change` hears that its tools have changed."""

    client: Client

    def __init__(
        self,
        name: str,
        settings: McpServer,
        environment: Mapping[str, str],
        *,
        on_elicit: OnElicit,
        on_change: OnChange | None = None,
    ) -> None:
        self._name = name
        self._on_elicit = on_elicit
        self._settings = settings
        self._environment = environment
        self._on_change = on_change
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._errors = _Tail()
        self.lost = False
        self._task = asyncio.create_task(self._hold())

    async def opened(self) -> McpConnection:
        """Raises `McpFailed`. A cancelled caller leaves no connection behind."""
        try:
            self.client = await asyncio.shield(self._ready)
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        self._leave.set()
        if not self._ready.done():
            self._task.cancel()
        await finish(_until_ended(self._task))

    def last_words(self) -> str:
        """What it printed to its standard error in the end, where it did."""
        text = self._errors.text()
        return f" ({text})" if text else ""

    async def _hold(self) -> None:
        try:
            with _sdk_lines_logged():
                await self._hold_by_any_opening()
        except Exception as exc:  # noqa: BLE001 - the SDK raises whatever its transports raise, in groups: this is a task's top
            self._fail(f"the MCP server {self._name} cannot be reached: {self._reason(exc)}{self.last_words()}")
        finally:
            self.lost = True
            self._fail(f"the MCP server {self._name} was let go")
            self._errors.close()

    async def _hold_by_any_opening(self) -> None:
        if self._settings.uses_sse:  # a newer protocol has no such transport, and some servers die of it
            await self._hold_with("legacy")
            return
        try:
            await self._hold_with("auto")
        except Exception as exc:
            if self._ready.done() or not _is_closed(exc):  # older servers end at a request that they do not know
                raise
            log.debug("the MCP server %s ends at server/discover; the handshake follows", self._name)
            self.lost = False
            await self._hold_with("legacy")

    async def _hold_with(self, opening: Opening) -> None:
        async with self._client(opening) as client, asyncio.TaskGroup() as group:
            self._ready.set_result(client)
            listening = group.create_task(self._listen(client))
            await self._leave.wait()
            listening.cancel()

    def _reason(self, exc: BaseException) -> str:
        if (command := self._settings.command) and shutil.which(command[0], path=self._environment.get("PATH")) is None:
            return f"there is no program {command[0]}"
        return _told(exc)

    def _fail(self, why: str) -> None:
        if not self._ready.done():
            self._ready.set_exception(McpFailed(why))
            self._ready.exception()  # retrieved: there may be no waiter any more

    @asynccontextmanager
    async def _client(self, opening: Opening) -> AsyncIterator[Client]:
        options: dict[str, Any] = {
            "mode": opening,
            "client_info": Implementation(name="tailrace", version=__version__),
            "cache": None,
            "message_handler": self._heard,
            "elicitation_callback": lambda _context, params: self._on_elicit(params),
        }
        if self._settings.url is None:
            program, *arguments = self._settings.command
            wanted = {*DEFAULT_INHERITED_ENV_VARS, *self._settings.env_allow}
            env = {name: value for name, value in self._environment.items() if name in wanted}
            env[DEPTH_VARIABLE] = str(depth_in(self._environment) + 1)
            parameters = StdioServerParameters(command=program, args=arguments, env=env)
            async with Client(stdio_client(parameters, self._errors.file), **options) as client:
                self._errors.file.close()  # ours; the server has its own by now
                yield client
            return
        headers = headers_of(self._settings, self._environment)
        if self._settings.uses_sse:
            sse = sse_client(self._settings.url, headers, timeout=30.0, sse_read_timeout=_A_DAY_S)
            async with Client(sse, **options) as client:
                yield client
            return
        async with (
            _http(headers) as http,
            Client(streamable_http_client(self._settings.url, http_client=http), **options) as client,
        ):
            yield client

    # ── what it says unasked ─────────────────────────────────────────────────────────────────────────────────

    async def _heard(self, message: IncomingMessage) -> None:
        """Servers to 2025-11-25 announce changes by themselves."""
        if isinstance(message, _CHANGED) and self._on_change is not None:
            self._on_change()

    async def _listen(self, client: Client) -> None:
        """Servers from 2026-07-28 announce changes to who listens. Where that breaks off, the lists stay as they are
        until the next connection."""
        offered = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or offered is None or not offered.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as events:
                async for event in events:
                    if isinstance(event, _CHANGED) and self._on_change is not None:
                        self._on_change()
        except (MCPError, SubscriptionLost, TimeoutError) as exc:
            log.debug("the MCP server %s no longer announces changes: %s", self._name, exc)


def headers_of(settings: McpServer, environment: Mapping[str, str]) -> dict[str, str]:
    """What is sent with every request to `url`. What comes from the environment stands before what the file says."""
    given = {name: environment.get(variable, "").strip() for name, variable in settings.headers_env.items()}
    key = environment.get(settings.key_env, "").strip() if settings.key_env else ""
    return {**settings.headers, **given, **({"Authorization": f"Bearer {key}"} if key else {})}


def _http(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """A tool may take long: the call's own deadline counts, not the socket's."""
    return httpx2.AsyncClient(headers=dict(headers), timeout=httpx2.Timeout(30.0, read=None))


async def _until_ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})


def _innermost(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def _told(exc: BaseException) -> str:
    """The failure in one line. An address may hold a key, so it is left out."""
    innermost = _innermost(exc)
    if isinstance(innermost, httpx2.HTTPStatusError):
        return f"HTTP {innermost.response.status_code} {innermost.response.reason_phrase}"
    return preview_line(str(innermost), _MAX_LOG_CHARS) or type(innermost).__name__


def _is_closed(exc: BaseException) -> bool:
    innermost = _innermost(exc)
    return isinstance(innermost, MCPError) and innermost.code == CONNECTION_CLOSED


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
        with suppress(OSError):  # closed
            while self._read():
                pass
        return self._kept.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()

    def close(self) -> None:
        self.file.close()
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
        self._pipe = -1  # the number may be reused

    def _read(self) -> bool:
        try:
            data = os.read(self._pipe, 65_536)
        except BlockingIOError:  # `text` has read what the loop was about to say is there
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe)
        self._kept = (self._kept + data)[-_TAIL_BYTES:]
        return bool(data)
