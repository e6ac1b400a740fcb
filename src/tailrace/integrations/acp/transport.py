"""The channel as the ACP SDK's `Transport`, and the ids of requests, which the SDK keeps to itself.

Ids go by context. The SDK starts the task of each request from the task that received it, so the handler finds the id
of its request in `handled_id`; and it sends a request from the task that asks, which finds its id in `sent_id`. With
them either side can take a request back (`$/cancel_request`).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol, TypeAlias

from tailrace.system.json_rpc.lines import RpcMessage

RequestId: TypeAlias = int | str
handled_id: Final[ContextVar[RequestId | None]] = ContextVar("handled_id", default=None)
sent_id: Final[ContextVar[RequestId | None]] = ContextVar("sent_id", default=None)


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
