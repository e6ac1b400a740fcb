"""The head of a stream as bytes: what the HTTP library would say, in one write with the first events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from aiohttp import web

from server.http_server import running_server
from tailrace.server.app import RouteModule
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.route import Route

STREAMED, WHOLE = "/v1/chat/streamed", "/v1/chat/whole"
CORS = "server: {drain_s: 0.05, cors_origins: ['https://page.example']}\n"


def writing(written: list[bytes], headers: dict[str, str] | None = None) -> RouteModule:
    """Two routes, one streamed and one whole; `written` gets each write of the streamed one."""

    def routes(pipeline: RequestPipeline) -> Sequence[Route]:
        async def streamed(request: web.Request) -> web.StreamResponse:
            transport = request.protocol.transport
            assert transport is not None
            stream = pipeline.stream(request, headers=headers)
            request.protocol.transport = _Watched(transport, written)  # type: ignore[assignment]
            try:
                stream.send(b"data: 1\n\n")
                return await stream.end(b"data: [DONE]\n\n")
            finally:
                request.protocol.transport = transport

        async def whole(_request: web.Request) -> web.StreamResponse:
            return web.Response(text="data")

        return [
            Route("GET", STREAMED, streamed, "any", "Streams.", streams=True),
            Route("GET", WHOLE, whole, "any", "Answers whole."),
        ]

    return routes


class _Watched:
    def __init__(self, transport: asyncio.Transport, written: list[bytes]) -> None:
        self._transport, self._written = transport, written

    def write(self, data: bytes) -> None:
        self._written.append(data)
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()


async def test_the_head_leaves_with_the_first_events_and_the_end_with_the_last(tmp_path: Path) -> None:
    written: list[bytes] = []
    async with running_server(tmp_path, extra=(writing(written),)) as server:
        for _ in range(2):  # over the same connection: the end of the first body is where it should be
            async with server.client.get(server.url + STREAMED) as response:
                assert await response.read() == b"data: 1\n\ndata: [DONE]\n\n"
    first, last, *_ = written
    assert len(written) == 4
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\r\n\r\n9\r\ndata: 1\n\n\r\n")
    assert last == b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


@pytest.mark.parametrize("origin", ["", "https://page.example"])
async def test_a_stream_and_a_whole_answer_say_the_same_of_themselves(tmp_path: Path, origin: str) -> None:
    asked = {"X-Request-Id": "given-1", **({"Origin": origin} if origin else {})}
    async with running_server(tmp_path, extra=(writing([]),), config=CORS) as server:
        heads = []
        for path in (STREAMED, WHOLE):
            async with server.client.get(server.url + path, headers=asked) as response:
                await response.read()
                heads.append(dict(response.headers))
    streamed, whole = heads
    assert streamed.pop("Transfer-Encoding") == "chunked"
    assert streamed.pop("Content-Type") == "text/event-stream; charset=utf-8"
    assert (streamed.pop("Cache-Control"), streamed.pop("X-Accel-Buffering")) == ("no-cache", "no")
    for head in heads:
        assert parsedate_to_datetime(head.pop("Date")).tzinfo is not None
    del whole["Content-Type"], whole["Content-Length"]
    assert streamed == whole
    assert ("Access-Control-Allow-Origin" in streamed) is bool(origin)


@pytest.mark.parametrize(("version", "asked"), [("1.0", ""), ("1.0", "keep-alive"), ("1.1", "close")])
async def test_a_connection_that_is_not_kept_ends_with_the_body(tmp_path: Path, version: str, asked: str) -> None:
    connection = f"Connection: {asked}\r\n" if asked else ""
    async with running_server(tmp_path, extra=(writing([]),)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port())
        writer.write(f"GET {STREAMED} HTTP/{version}\r\nHost: localhost\r\n{connection}\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(f"HTTP/{version} 200 OK".encode())
    assert (b"Connection: close" in head) is (version == "1.1")
    assert body.startswith(b"data: 1" if version == "1.0" else b"9\r\ndata: 1")


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\rb", "a\0b"])
async def test_J121_no_field_ends_the_head(tmp_path: Path, value: str) -> None:
    async with running_server(tmp_path, extra=(writing([], {"X-Field": value}),)) as server:
        status, body = await server.json("GET", STREAMED)
    assert (status, body["error"]["code"]) == (500, "internal_error")
