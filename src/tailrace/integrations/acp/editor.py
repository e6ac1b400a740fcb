"""The editor at the other end: what it offers, what is asked of it, and the lines that are sent to it.

Owns the requests from agent to editor. Where the connection has ended, a request waits until it is cancelled: the
process is about to end, and a turn that it executes must not take that for an answer.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import Any, Final, NoReturn, Protocol, TypeAlias

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.schema import ClientCapabilities

from tailrace.errors import ToolRefused
from tailrace.events import Decision
from tailrace.messages import JsonObject
from tailrace.system.json_rpc.lines import RpcMessage, rpc_line

log = logging.getLogger("tailrace.integrations.acp")
# The ids of requests go by context, since the SDK keeps them to itself. It starts the task of each request from the
# task that received it, so the handler finds the id of its request in `handled_id`; and it sends a request from the
# task that asks, which finds its id in `sent_id`. With them either side can take a request back (`$/cancel_request`).
RequestId: TypeAlias = int | str
handled_id: Final[ContextVar[RequestId | None]] = ContextVar("handled_id", default=None)
sent_id: Final[ContextVar[RequestId | None]] = ContextVar("sent_id", default=None)
FS_TIMEOUT_S: Final = 30.0  # for an editor to read or write one file
# The answers to a question that an editor shows as buttons, by the id that it sends back.
OPTIONS: Final[tuple[tuple[Decision, str, str], ...]] = (
    ("once", "Allow once", "allow_once"),
    ("always", "Always allow", "allow_always"),
    ("session", "Allow in this session", "allow_always"),
    ("deny", "Reject", "reject_once"),
)
_OPTIONS: Final = [{"optionId": option, "name": name, "kind": kind} for option, name, kind in OPTIONS]
_DECISIONS: Final[dict[str, Decision]] = {option: option for option, _, _ in OPTIONS}


class Channel(Protocol):
    """Messages from and to the editor: `StdioChannel` outside tests."""

    async def receive(self) -> RpcMessage | None: ...

    async def send(self, message: RpcMessage) -> None: ...

    async def write(self, lines: bytes) -> None:
        """Raises `ConnectionError`."""

    def post(self, lines: bytes) -> None:
        """Writes without waiting for the editor to read."""

    async def close(self) -> None: ...


class EditorTransport:
    """The channel as the ACP SDK's `Transport`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def receive(self) -> RpcMessage | None:
        message = await self._channel.receive()
        handled_id.set(message.get("id") if message is not None and "method" in message else None)
        return message

    async def send(self, message: RpcMessage) -> None:
        if "method" in message:
            sent_id.set(message.get("id"))
        await self._channel.send(message)

    async def close(self) -> None:
        await self._channel.close()


class EditorRefused(ToolRefused):
    """The editor answered with an error, or not in time."""


class Editor:
    """One connection. `connect` must be called before anything is asked."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._connection: Connection | None = None
        self.offered = ClientCapabilities()

    def connect(self, connection: Connection) -> None:
        self._connection = connection

    async def write(self, lines: bytes) -> None:
        """Sends lines of the protocol. Where the editor is gone, waits until it is cancelled."""
        try:
            if lines:
                await self._channel.write(lines)
        except ConnectionError:
            await _never()

    async def ask_permission(self, session_id: str, tool_call: JsonObject) -> Decision | None:
        """The user's decision; None where the editor did not ask, or says that the turn was cancelled. What cannot be
        understood means no."""
        params = {"sessionId": session_id, "toolCall": tool_call, "options": _OPTIONS}
        try:
            answer = await self._request("session/request_permission", params)
        except EditorRefused as exc:
            log.warning("the editor did not ask for an approval: %s", exc)
            return None
        match answer:
            case {"outcome": {"outcome": "selected", "optionId": str(option)}}:
                return _DECISIONS.get(option, "deny")
            case {"outcome": {"outcome": "cancelled"}}:
                return None
            case _:
                log.warning("the editor's answer to an approval cannot be understood")
                return "deny"

    # ── files ────────────────────────────────────────────────────────────────────────────────────────────────

    async def read_text(self, session_id: str, path: str) -> str:
        """The file as the editor has it, unsaved changes included. Raises `EditorRefused`."""
        params = {"sessionId": session_id, "path": path}
        answer = await self._request("fs/read_text_file", params, timeout_s=FS_TIMEOUT_S)
        if not isinstance(answer, dict) or not isinstance(text := answer.get("content"), str):
            raise EditorRefused("the editor gave no content")
        return text

    async def write_text(self, session_id: str, path: str, text: str) -> None:
        """Raises `EditorRefused`."""
        params = {"sessionId": session_id, "path": path, "content": text}
        await self._request("fs/write_text_file", params, timeout_s=FS_TIMEOUT_S)

    async def _request(self, method: str, params: JsonObject, *, timeout_s: float | None = None) -> Any:
        if self._connection is None:
            raise EditorRefused("there is no editor")
        sent_id.set(None)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connection.send_request(method, params)
        except asyncio.CancelledError:
            self._take_back()
            raise
        except RequestError as exc:
            raise EditorRefused(f"the editor refused {method}: {exc}") from exc
        except TimeoutError as exc:
            self._take_back()
            raise EditorRefused(f"the editor did not answer {method} within {timeout_s:g} s") from exc
        except ConnectionError:
            await _never()

    def _take_back(self) -> None:
        """Tells the editor that the request which this task sent last needs no answer any more: a question that was
        answered elsewhere disappears there. An editor that does not know the notification ignores it."""
        if (number := sent_id.get()) is not None:
            params = {"requestId": number}
            self._channel.post(rpc_line({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params}))


async def _never() -> NoReturn:
    """Until the caller is cancelled."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("the future is never resolved")
