"""The messages of one MCP host, from stdin and to stdout, as the SDK's server takes and gives them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from tailrace.system.json_rpc.lines import INVALID_REQUEST, NotRpc, RpcMessage, refused
from tailrace.system.json_rpc.stdio import Pipes, StdioChannel

LAST_WRITES_S: Final = 2.0  # for the host to read what was answered before its end
_KEPT_REASONS: Final = 1000


class Cancelled:
    """Which requests the host has cancelled, and why, by id."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def note(self, message: mcp_types.JSONRPCMessage) -> None:
        """Seen here before the SDK cancels the request's handler. An id that comes again is another request."""
        if isinstance(message, mcp_types.JSONRPCRequest):
            self.forget(message.id)
        elif isinstance(message, mcp_types.JSONRPCNotification) and message.method == "notifications/cancelled":
            params: dict[str, Any] = message.params or {}
            self._reasons[str(params.get("requestId"))] = str(params.get("reason") or "")
            if len(self._reasons) > _KEPT_REASONS:  # of requests that had ended, or never were
                del self._reasons[next(iter(self._reasons))]

    def reason_of(self, request_id: mcp_types.RequestId | None) -> str | None:
        """None where the host did not cancel it. Asked once: ids may come again."""
        return self._reasons.pop(str(request_id), None)

    def forget(self, request_id: mcp_types.RequestId | None) -> None:
        self._reasons.pop(str(request_id), None)


class Streams(NamedTuple):
    """What the SDK's server reads from and writes to."""

    incoming: MemoryObjectReceiveStream[SessionMessage | Exception]
    outgoing: MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def stdio_streams(pipes: Pipes, cancelled: Cancelled) -> AsyncGenerator[Streams, None]:
    """The messages of the host, to the end of its input, and those to it. A host that reads no more counts as gone."""
    channel = StdioChannel(pipes)
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with to_server:
            while (received := await channel.receive()) is not None:
                message = _parsed(received)
                if isinstance(message, NotRpc):
                    with suppress(ConnectionError):
                        await channel.write(message.reply)
                    continue
                cancelled.note(message)
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the server is ending
                    await to_server.send(SessionMessage(message))

    async def write() -> None:
        async for item in from_server:
            await channel.send(item.message.model_dump(mode="json", by_alias=True, exclude_unset=True))

    try:
        async with asyncio.TaskGroup() as group:
            reading, writing = group.create_task(read()), group.create_task(write())
            yield Streams(incoming, outgoing)
            reading.cancel()
            outgoing.close()
            await asyncio.wait({writing}, timeout=LAST_WRITES_S)
            writing.cancel()
    finally:
        for stream in (to_server, incoming, outgoing, from_server):
            stream.close()
        await channel.close()


def _parsed(received: RpcMessage) -> mcp_types.JSONRPCMessage | NotRpc:
    """An answer that breaks the protocol becomes an error for the request that waits for it: to send an error back
    would answer the host's own request of that number."""
    try:
        return mcp_types.jsonrpc_message_adapter.validate_python(received, by_name=False)
    except ValidationError as exc:
        number = received.get("id")
        if "method" not in received:
            error = mcp_types.ErrorData(code=INVALID_REQUEST, message="the host's answer is no JSON-RPC 2.0 response")
            return mcp_types.JSONRPCError(jsonrpc="2.0", id=number, error=error)
        place = ".".join(map(str, exc.errors(include_url=False)[0]["loc"][1:]))
        return refused(INVALID_REQUEST, f"not a JSON-RPC 2.0 message: {place} is missing or wrong", number)
