"""A file is read up to the bound and no further, whatever the homeserver says of its size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tailrace.delivery.port import Attachment
from tailrace.errors import PlatformError
from tailrace.integrations.matrix.adapter import MatrixPlatform

MAX_BYTES = 100_000
PIECE = b"x" * 65536
WITHIN_S = 20.0


class Repository:
    """Of a homeserver what files are fetched from. Each download waits, once a part was sent, for the client to leave:
    who reads to the end waits for ever."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.left = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        match request.match_info["media"]:
            case "small":
                return web.Response(body=b"some notes")
            case "declared":
                return await self._stream(request, length=MAX_BYTES + 1, pieces=1)
            case "endless":
                return await self._stream(request, length=None, pieces=4)
            case _:
                return web.json_response({"errcode": "M_NOT_FOUND", "error": "Not found"}, status=404)

    async def _stream(self, request: web.Request, *, length: int | None, pieces: int) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = length
        await response.prepare(request)
        try:
            for _ in range(pieces):
                await response.write(PIECE)
            await asyncio.Event().wait()
        finally:  # cancelled, or the connection is closed
            self.left.set()
        return response


@asynccontextmanager
async def bot() -> AsyncIterator[tuple[MatrixPlatform, Repository]]:
    repository, app = Repository(), web.Application()
    app.router.add_get("/_matrix/client/v1/media/download/{server}/{media}", repository.serve)
    async with TestServer(app, handler_cancellation=True) as server:
        platform = MatrixPlatform(str(server.make_url("")), "@bot:localhost", token="a-token")
        try:
            yield platform, repository
        finally:
            await platform.close()


def file(media: str) -> Attachment:
    return Attachment(f"mxc://localhost/{media}", f"{media}.txt")


async def test_the_content_is_asked_for_with_the_token_in_no_address() -> None:
    async with bot() as (platform, repository):
        assert await platform.fetch(file("small"), max_bytes=10) == b"some notes"
        [request] = repository.requests
        assert request.headers["Authorization"] == "Bearer a-token"
        assert "a-token" not in str(request.url)
        with pytest.raises(PlatformError, match=r"nothing\.txt could not be fetched: matrix answered 404"):
            await platform.fetch(file("nothing"), max_bytes=10)


@pytest.mark.parametrize("media", ["declared", "endless"])
async def test_a_file_that_is_too_large_is_left_before_its_end(media: str) -> None:
    async with bot() as (platform, repository), asyncio.timeout(WITHIN_S):
        with pytest.raises(PlatformError, match=f"larger than {MAX_BYTES} bytes"):
            await platform.fetch(file(media), max_bytes=MAX_BYTES)
        await repository.left.wait()
