"""The gateway of the fake Discord: sessions that are identified, resumed and cut, and keep what was not heard."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

HEARTBEAT_MS = 41_250


class Op:
    """What a payload is."""

    DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID_SESSION, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11


class GatewaySession:
    """What one identified client is told, in order. It outlives its connections: a client resumes from what it has
    heard, and hears the rest."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._wire: GatewayWire | None = None

    async def dispatch(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, data))
        if self._wire is not None:
            await self._wire.send(Op.DISPATCH, data, event, len(self.events))

    async def attach(self, wire: GatewayWire, heard: int) -> None:
        """Everything after the first `heard` events goes out on this connection."""
        self._wire = wire
        for number, (event, data) in enumerate(self.events[heard:], heard + 1):
            await wire.send(Op.DISPATCH, data, event, number)

    def detach(self, wire: GatewayWire) -> None:
        self._wire = None if self._wire is wire else self._wire


class GatewayWire:
    """One connection. Compresses as the client asked (`compress=zlib-stream`)."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        self.socket, self._request = socket, request
        zlib_stream = request.query.get("compress") == "zlib-stream"
        self._compressor = zlib.compressobj() if zlib_stream else None

    async def send(self, op: int, data: Any = None, event: str | None = None, number: int | None = None) -> None:
        payload = msgspec.json.encode({"op": op, "d": data, "t": event, "s": number})
        with suppress(ConnectionError):  # a closed connection gets it after resuming
            if self._compressor is None:
                await self.socket.send_str(payload.decode())
            else:
                packed = self._compressor.compress(payload) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
                await self.socket.send_bytes(packed)

    async def receive(self) -> tuple[int, Any] | None:
        """Opcode and data of the next payload; None at the end."""
        message = await self.socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            return None
        payload = msgspec.json.decode(message.data)
        return payload["op"], payload.get("d")

    def abort(self) -> None:
        """The connection is gone, without a word."""
        if self._request.transport is not None:
            self._request.transport.abort()
