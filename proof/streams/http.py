"""As much HTTP/1.1 as the test needs, so that it runs wherever Python does. Loopback only, no TLS.

A client here tells apart what a browser would: a body that ended in good order, and one whose connection broke.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

MAX_LINE = 2**24
SMALL_BUFFER = 4096  # bytes that a slow viewer's socket takes for it


class Broken(Exception):
    """The connection was refused, or broke before the body was whole."""


class SseEvent(NamedTuple):
    id: str
    event: str
    data: str

    def json(self) -> dict[str, object]:
        value = json.loads(self.data)
        return value if isinstance(value, dict) else {"value": value}


class Response:
    def __init__(self, status: int, headers: Mapping[str, str], reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises `Broken` where it is not whole."""
        try:
            if self.headers.get("transfer-encoding", "") == "chunked":
                while size := int((await self._reader.readuntil(b"\n")).split(b";")[0], 16):
                    yield (await self._reader.readexactly(size + 2))[:-2]
            elif "content-length" in self.headers:
                yield await self._reader.readexactly(int(self.headers["content-length"]))
            else:
                while piece := await self._reader.read(2**16):
                    yield piece
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as exc:
            raise Broken(str(exc) or type(exc).__name__) from exc

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def lines(self) -> AsyncIterator[str]:
        rest = b""
        async for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.rstrip(b"\r").decode(errors="replace")
        if rest:
            yield rest.decode(errors="replace")

    async def events(self) -> AsyncIterator[SseEvent]:
        """Server-sent events; comments and events without data are left out."""
        name, last_id, data = "", "", list[str]()
        async for line in self.lines():
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line and data:
                yield SseEvent(last_id, name, "\n".join(data))
            if not line:
                name, data = "", []
            elif field == "data":
                data.append(value)
            elif field == "event":
                name = value
            elif field == "id":
                last_id = value


@asynccontextmanager
async def stream(
    method: str,
    url: str,
    *,
    body: object = None,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    slow: bool = False,
) -> AsyncGenerator[Response, None]:
    """The response as soon as its head is there. Leaving the block closes the connection. Raises `Broken`."""
    address = urlsplit(url)
    target = (address.path or "/") + (f"?{address.query}" if address.query else "")
    content, kind = b"", ""
    if form is not None:
        content, kind = urlencode(form).encode(), "application/x-www-form-urlencoded"
    elif body is not None:
        content, kind = json.dumps(body).encode(), "application/json"
    sent = {"Host": address.netloc, "Connection": "close", "Accept": "*/*", **(headers or {})}
    if content or method != "GET":
        sent |= {"Content-Length": str(len(content))}
    if kind:
        sent |= {"Content-Type": kind}
    head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    connection = socket.socket()
    connection.setblocking(False)
    if slow:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    writer: asyncio.StreamWriter | None = None
    try:
        try:
            await asyncio.get_running_loop().sock_connect(connection, (address.hostname, address.port))
            reader, writer = await asyncio.open_connection(sock=connection, limit=SMALL_BUFFER if slow else MAX_LINE)
            writer.write(head.encode() + b"\r\n" + content)
            response = await _read_head(reader)
        except (OSError, EOFError, asyncio.LimitOverrunError) as exc:
            raise Broken(str(exc) or type(exc).__name__) from exc
        yield response
    finally:
        if writer is None:
            connection.close()
        else:
            writer.transport.abort()


async def _read_head(reader: asyncio.StreamReader) -> Response:
    status_line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {}
    for field in filter(None, fields):
        name, _, value = field.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Response(int(status_line.split()[1]), headers, reader)


class Answer(NamedTuple):
    status: int
    body: bytes

    def json(self) -> dict[str, object]:
        value = json.loads(self.body) if self.body else {}
        return value if isinstance(value, dict) else {"value": value}


async def fetch(
    method: str,
    url: str,
    *,
    body: object = None,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 20,
) -> Answer:
    """Raises `Broken`, also where the answer takes too long."""
    try:
        async with asyncio.timeout(timeout_s), stream(method, url, body=body, form=form, headers=headers) as response:
            return Answer(response.status, await response.body())
    except TimeoutError as exc:
        raise Broken(f"no answer within {timeout_s:g} s") from exc


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
