"""A model endpoint that sends more than any client should take, until the client closes. The model's name says what."""

from __future__ import annotations

import asyncio
import json
import random
import re
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial

BLOCK = 60_000
COMMENT = b": " + b"y" * BLOCK + b"\n\n"
FIELDS = ("content", "reasoning_content", "unknown_to_us")
MOST = 1 << 28  # of unpacked bytes: such an attack ends by itself in the end


def endless(field: str, letter: str = "y") -> Iterator[bytes]:
    """At full speed."""
    chunk = {"choices": [{"index": 0, "delta": {field: letter * BLOCK}}]}
    event = json.dumps(chunk, ensure_ascii=False).encode()
    for _ in range(0, MOST, BLOCK):
        yield b"data: " + event + b"\n\n"


def packed(wbits: int, noise: int) -> Iterator[bytes]:
    """Comments; the more noise is in them, the less they unpack to."""
    packer, rng = zlib.compressobj(wbits=wbits), random.Random(1)
    for _ in range(0, MOST, BLOCK):
        yield packer.compress(b": " + rng.randbytes(noise).hex().encode() + COMMENT)
    yield packer.flush()


BODIES: dict[str, tuple[str, Callable[[], Iterator[bytes]]]] = {
    **{f"endless-{field}": ("identity", partial(endless, field)) for field in FIELDS},
    "endless-wide": ("identity", partial(endless, "content", "\N{WATER WAVE}")),
    "gzip": ("gzip", lambda: packed(31, 0)),
    "gzip-with-noise": ("gzip", lambda: packed(31, 300)),
    "deflate": ("deflate", lambda: packed(-15, 0)),
    "zstd": ("zstd", lambda: iter((b"\x28\xb5\x2f\xfd" + bytes(60),))),
}


@asynccontextmanager
async def hostile_provider() -> AsyncGenerator[str, None]:
    """Its base URL."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, limit=1 << 26)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = re.search(rb"(?i)content-length: *(\d+)", head)
            asked = json.loads(await reader.readexactly(int(size[1]) if size else 0))
            encoding, body = BODIES[asked["model"]]
            writer.write(
                f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: {encoding}\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            for piece in body():
                if piece:
                    writer.write(piece)
                    await writer.drain()
            break
    writer.close()
