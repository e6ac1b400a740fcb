"""Servers whose every byte a test writes itself, and a client to ask them with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias, cast

from providers import faulty_calls
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.providers.transport.port import HttpReply, Transport

Answer: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def raw_server(answer: Answer) -> AsyncGenerator[str, None]:
    """`answer` is called once for each connection; the connection is closed when it returns."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        tasks.add(task)
        try:
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), 0)
    return head, await reader.readexactly(length)


def saying(*pieces: bytes, close: bool = True) -> Answer:
    """Each request of a connection is answered with these bytes, written one piece at a time."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if close:
                return

    return answer


@asynccontextmanager
async def client() -> AsyncGenerator[Transport, None]:
    async with open_transport(faulty_calls.TRANSPORT) as transport:
        yield transport


async def post(transport: Transport, url: str, body: bytes = b"{}", *, timeout_s: float = 10.0) -> HttpReply:
    return await transport.post(url, headers={"accept": "*/*"}, body=body, connect_timeout_s=timeout_s)


async def read_all(reply: HttpReply) -> bytes:
    pieces: list[bytes] = []
    while data := await reply.read():
        pieces.append(data)
    return b"".join(pieces)


async def pump_all(reply: HttpReply) -> bytes:
    pieces: list[bytes] = []

    def sink(data: bytes) -> bool:
        pieces.append(data)
        return False

    await reply.pump(sink)
    return b"".join(pieces)


READERS = (read_all, pump_all)
