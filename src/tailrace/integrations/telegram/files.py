"""Files that people have sent, read as they come: python-telegram-bot's own download has them whole in memory before
their size can be checked."""

from __future__ import annotations

import ssl
from functools import cache

import httpx

_PIECE = 65536  # bytes


@cache
def tls() -> ssl.SSLContext:
    """One for all connections: reading the certificates takes longer than the rest of the start."""
    return httpx.create_ssl_context()


class RefusedFile(Exception):
    """The server gave something else than the file."""


class OversizedFile(Exception):
    """The file is larger than it may be."""


async def read_file(url: str, *, max_bytes: int, deadlines: httpx.Timeout) -> bytes:
    """Hardly more than `max_bytes` are read. Raises `RefusedFile`, `OversizedFile`, and as httpx does."""
    content = bytearray()
    async with (
        httpx.AsyncClient(verify=tls(), timeout=deadlines) as client,
        client.stream("GET", url) as response,
    ):
        if response.status_code != 200:
            raise RefusedFile(f"telegram answered {response.status_code}")
        if int(response.headers.get("content-length") or 0) > max_bytes:
            raise OversizedFile
        async for piece in response.aiter_bytes(_PIECE):
            content += piece
            if len(content) > max_bytes:
                raise OversizedFile
    return bytes(content)
