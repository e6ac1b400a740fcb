"""A client that shows the bytes: it sends one request on a connection of its own and keeps all that comes back."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tailrace.testing.provider import FaultyProvider

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}


@dataclass
class Heard:
    """What came before the connection ended."""

    raw: bytes
    reset: bool

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = self.raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return dict(line.split(": ", 1) for line in lines)

    @property
    def chunks(self) -> list[bytes]:
        """The chunks of a chunked body; the last is empty where the body was ended."""
        found, rest = [], self.raw.partition(b"\r\n\r\n")[2]
        while head := re.match(rb"([0-9a-f]+)\r\n", rest):
            size = int(head[1], 16)
            found.append(rest[head.end() : head.end() + size])
            rest = rest[head.end() + size + 2 :]
        return found

    @property
    def body(self) -> bytes:
        chunked = self.headers.get("transfer-encoding") == "chunked"
        return b"".join(self.chunks) if chunked else self.raw.partition(b"\r\n\r\n")[2]

    @property
    def ended(self) -> bool:
        """A chunked body came to its proper end."""
        return self.raw.endswith(b"\r\n0\r\n\r\n")

    def events(self) -> list[Any]:
        """The JSON of each event, with the text of those that hold none; LF framing only."""
        found = []
        for block in self.body.decode().split("\n\n"):
            data = "\n".join(line[6:] for line in block.split("\n") if line.startswith("data: "))
            if data:
                found.append(json.loads(data) if data.startswith("{") else data)
        return found


def encoded(dialect: str, model: str, *, stream: bool = True, **more: Any) -> bytes:
    """A request as bytes."""
    ask: dict[str, Any] = {"model": model, "stream": stream, **more}
    if dialect == "chat" and stream:
        ask["stream_options"] = {"include_usage": True}
    body = json.dumps(ask).encode()
    head = f"POST {PATHS[dialect]} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


@asynccontextmanager
async def connected(server: FaultyProvider) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def hear(server: FaultyProvider, dialect: str, model: str, *, stream: bool = True, **more: Any) -> Heard:
    """Everything until the server ends the connection."""
    raw, reset = bytearray(), False
    async with connected(server) as (reader, writer):
        writer.write(encoded(dialect, model, stream=stream, **more))
        try:
            while data := await reader.read(65536):
                raw += data
        except ConnectionResetError:
            reset = True
    return Heard(bytes(raw), reset)
