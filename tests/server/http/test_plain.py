"""The short way of a request: it takes what can be read in one way only, and the client sees no difference."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from server.http_server import RunningServer, raw, running_server
from tailrace.server.http.listener import ConnectionLimits
from tailrace.server.http.pipeline import RequestPipeline, stopping
from tailrace.server.http.plain.connection import (
    MAX_BODY_BYTES,
    MAX_WAITING_BYTES,
    REST_S,
    PlainConnection,
    parse_plain_head,
)
from tailrace.server.http.request_body import read_body
from tailrace.server.http.route import Route

LINE = b"POST /echo HTTP/1.1"
TARGETS = {LINE: "echo"}
HOST = b"Host: 127.0.0.1\r\n"
SEEN: ContextVar[str] = ContextVar("SEEN", default="nothing")


def request_bytes(body: bytes = b'{"a":1}', *, fields: bytes = b"", line: bytes = LINE) -> bytes:
    return line + b"\r\n" + HOST + fields + b"Content-Length: %d\r\n\r\n" % len(body) + body


# ── the head ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plain_head_says_where_its_body_is() -> None:
    data = request_bytes(b"12345", fields=b"X-A: b \r\nconnection: Keep-Alive\r\nX-Empty:\r\n") + b"POST"
    head = parse_plain_head(data, TARGETS)
    assert head is not None
    assert (head.target, head.keep_alive, data[head.body_at : head.end]) == ("echo", True, b"12345")
    assert list(head.headers.items()) == [
        ("Host", "127.0.0.1"),
        ("X-A", "b"),
        ("connection", "Keep-Alive"),
        ("X-Empty", ""),
        ("Content-Length", "5"),
    ]
    closed = parse_plain_head(request_bytes(fields=b"Connection: close\r\n"), TARGETS)
    assert closed is not None
    assert not closed.keep_alive


@pytest.mark.parametrize(
    "data",
    [
        request_bytes(line=b"POST /echo HTTP/1.0"),
        request_bytes(line=b"GET /echo HTTP/1.1"),
        request_bytes(line=b"POST /echo?a=1 HTTP/1.1"),
        request_bytes(line=b"POST  /echo HTTP/1.1"),
        request_bytes(fields=b"Transfer-Encoding: chunked\r\n"),
        request_bytes(fields=b"Content-Encoding: gzip\r\n"),
        request_bytes(fields=b"Expect: 100-continue\r\n"),
        request_bytes(fields=b"Connection: Upgrade\r\n"),
        request_bytes(fields=b"Upgrade: websocket\r\n"),
        request_bytes(fields=b"Proxy-Connection: close\r\n"),
        request_bytes(fields=b"Host: b\r\n"),
        request_bytes(fields=b"content-LENGTH: 7\r\n"),
        request_bytes(fields=b"X-A : b\r\n"),
        request_bytes(fields=b"X-A: b\r\n c\r\n"),
        request_bytes(fields=b"X-A: b\nX-B: c\r\n"),
        request_bytes(fields=b"X-A: b\rX-B: c\r\n"),
        request_bytes(fields=b"X-A: b\0\r\n"),
        request_bytes(fields=b"X-A\r\n"),
        request_bytes(fields=b": b\r\n"),
        request_bytes(fields=b"X A: b\r\n"),
        request_bytes(fields=b"X-A: %b\r\n" % (b"a" * 9_000)),
        request_bytes(fields=b"".join(b"X-%d: b\r\n" % number for number in range(80))),
        LINE + b"\r\n" + HOST + b"\r\n",
        LINE + b"\r\n" + HOST + b"Content-Length: +7\r\n\r\n1234567",
        LINE + b"\r\n" + HOST + b"Content-Length: 7, 7\r\n\r\n1234567",
        LINE + b"\r\n" + HOST + "Content-Length: ٧\r\n\r\n1234567".encode(),
        LINE + b"\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
        LINE + b"\r\n" + HOST + b"Content-Length: 7\r\n",
        request_bytes().replace(HOST, b""),
        LINE + b"\r\n\r\n",
        LINE,
        b"\r\n" + request_bytes(),
        b"",
    ],
)
def test_what_could_be_read_in_another_way_is_not_plain(data: bytes) -> None:
    assert parse_plain_head(data, TARGETS) is None


@pytest.mark.parametrize("value", [b" ", b"a ", b"\t a"])
def test_L140_time_is_linear_in_a_value_that_is_no_value(value: bytes) -> None:
    def seconds(count: int) -> float:
        data = request_bytes(fields=b"X-A:%b\0\r\n" % (value * (count // len(value))))
        start = time.thread_time()
        assert parse_plain_head(data, TARGETS) is None
        return time.thread_time() - start

    small = min(seconds(250) for _ in range(5))
    assert min(seconds(7_500) for _ in range(3)) < 200 * small  # a quadratic reader takes 900 times as long


pieces = st.sampled_from(
    [
        b"X-A: 7\r\n",
        b"X-B:\t 7 \r\n",
        b"X-A",
        b"Host",
        b"Content-Length",
        b":",
        b" ",
        b"\r\n",
        b"\n",
        b"7",
        b"\xff",
        b"\0",
    ]
)


@given(st.sampled_from([HOST, b""]), st.lists(st.one_of(pieces, st.binary(max_size=4)), max_size=12).map(b"".join))
def test_a_head_that_is_plain_is_what_the_library_reads(host: bytes, between: bytes) -> None:
    data = LINE + b"\r\n" + host + between + b"Content-Length: 3\r\n\r\nabc"
    head = parse_plain_head(data, TARGETS)
    if head is None:
        return
    loop = asyncio.new_event_loop()
    try:
        messages, upgraded, rest = HttpRequestParser(BaseProtocol(loop), loop, 1 << 16).feed_data(data)
    finally:
        loop.close()
    [(message, content)] = messages
    assert list(message.headers.items()) == list(head.headers.items())
    assert (upgraded, rest, message.should_close) == (False, b"", not head.keep_alive)
    assert content.read_nowait() == data[head.body_at : head.end]


# ── the connection ───────────────────────────────────────────────────────────────────────────────────────────


def way_of(connection: object) -> str:
    return "plain" if isinstance(connection, PlainConnection) else "library"


def echo_routes(_: RequestPipeline) -> Sequence[Route]:
    async def echo(request: web.Request) -> web.Response:
        before = SEEN.get()
        SEEN.set("a request")
        body = await read_body(request, as_json=False)
        return web.json_response(
            {"way": way_of(request.protocol), "bytes": len(body), "before": before, "path": request.path}
        )

    return [Route("POST", "/echo", echo, "any", "Says what came.", plain=True)]


@asynccontextmanager
async def echoing(home: Path, **settings: object) -> AsyncIterator[RunningServer]:
    async with running_server(home, extra=(echo_routes,), **settings) as server:  # type: ignore[arg-type]
        yield server


def bodies(answer: bytes) -> list[dict[str, object]]:
    """The JSON bodies of answers that follow each other."""
    found = []
    while answer:
        head, _, rest = answer.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        size = int(lengths[0].partition(b":")[2])
        found.append(json.loads(rest[:size]))
        answer = rest[size:]
    return found


def said(way: str, size: int = 7) -> dict[str, object]:
    return {"way": way, "bytes": size, "before": "nothing", "path": "/echo"}


LAST = request_bytes(fields=b"Connection: close\r\n")


async def test_plain_requests_behind_each_other_are_answered_in_order(tmp_path: Path) -> None:
    async with echoing(tmp_path) as server:
        answer = await raw(server.port(), request_bytes() + request_bytes(b"{}") + LAST)
    assert bodies(answer) == [said("plain"), said("plain", 2), said("plain")]


async def test_the_head_of_an_answer_is_the_same_on_both_ways(tmp_path: Path) -> None:
    def names(answer: bytes) -> list[bytes]:
        return [line.partition(b":")[0] for line in answer.partition(b"\r\n\r\n")[0].split(b"\r\n")]

    async with echoing(tmp_path) as server:
        short = await raw(server.port(), LAST)
        long = await raw(server.port(), LAST.replace(b"Host:", b"TE: a\r\nHost:"))
    assert names(short) == names(long)
    assert [bodies(short), bodies(long)] == [[said("plain")], [said("library")]]


@pytest.mark.parametrize(
    "other",
    [
        request_bytes(fields=b"Expect: 100-continue\r\n"),
        LINE + b"\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n7\r\n1234567\r\n0\r\n\r\n",
        request_bytes(bytes(7), line=b"POST /echo?a=1 HTTP/1.1"),
    ],
)
async def test_a_request_that_is_not_plain_goes_to_the_library_and_all_after_it(tmp_path: Path, other: bytes) -> None:
    async with echoing(tmp_path) as server:
        answer = await raw(server.port(), request_bytes() + other + LAST)
    answer = answer.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    assert bodies(answer) == [said("plain"), said("library"), said("library")]


async def test_bytes_behind_a_plain_request_that_are_no_request_are_refused(tmp_path: Path) -> None:
    async with echoing(tmp_path) as server:
        answer = await raw(server.port(), request_bytes() + b"\x16\x03\x01 nonsense\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert b" 400 Bad Request" in answer


async def test_a_body_that_comes_after_its_head_is_waited_for_and_not_for_long(tmp_path: Path) -> None:
    async with echoing(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port())
        data = request_bytes()
        writer.write(data[:-5])
        await asyncio.sleep(0)
        writer.write(data[-5:])
        [first] = bodies(await _answer(reader))
        writer.write(data[:-5])
        await asyncio.sleep(REST_S * 3)  # longer than the rest is waited for: what is tested is that time
        writer.write(data[-5:])
        [second] = bodies(await _answer(reader))
        writer.close()
        await writer.wait_closed()
    assert [first, second] == [said("plain"), said("library")]


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head + await reader.readexactly(int(length.partition(b":")[2]))


@pytest.mark.parametrize("sent", [b"", LINE])
async def test_J126_a_connection_without_a_whole_head_is_cut(tmp_path: Path, sent: bytes) -> None:
    limits = ConnectionLimits(headers_s=0.2)
    async with echoing(tmp_path, limits=limits) as server, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port())
        writer.write(sent)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_a_connection_that_is_idle_for_long_is_closed(tmp_path: Path) -> None:
    async with echoing(tmp_path, limits=ConnectionLimits(idle_s=0.2)) as server, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port())
        writer.write(request_bytes())
        await _answer(reader)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_F68_a_client_that_leaves_ends_its_request(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    def waiting_routes(_: RequestPipeline) -> Sequence[Route]:
        async def wait(request: web.Request) -> web.Response:
            assert way_of(request.protocol) == "plain"
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError("unreachable")

        return [Route("POST", "/echo", wait, "any", "Waits.", plain=True)]

    async with running_server(tmp_path, extra=(waiting_routes,)) as server, asyncio.timeout(10):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port())
        writer.write(request_bytes())
        await begun.wait()
        writer.close()
        await ended.wait()


async def test_what_waits_behind_a_request_is_bounded(tmp_path: Path) -> None:
    sizes: list[int] = []

    def slow_routes(_: RequestPipeline) -> Sequence[Route]:
        async def slow(request: web.Request) -> web.Response:
            if not sizes:
                transport = request.transport
                assert transport is not None
                async with asyncio.timeout(10):
                    while transport.is_reading():  # noqa: ASYNC110 - a transport has no event for it
                        await asyncio.sleep(0)
            sizes.append(len(await read_body(request, as_json=False)))
            return web.Response(text="done")

        return [Route("POST", "/echo", slow, "any", "Waits.", plain=True)]

    async with running_server(tmp_path, extra=(slow_routes,)) as server:
        many = request_bytes(bytes(1_000)) * (MAX_WAITING_BYTES // 500)
        answer = await raw(server.port(), many + LAST)
    assert sizes == [1_000] * (MAX_WAITING_BYTES // 500) + [7]
    assert answer.count(b"200 OK") == len(sizes)


async def test_an_answer_that_cannot_be_sent_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken_routes(_: RequestPipeline) -> Sequence[Route]:
        async def broken(_: web.Request) -> web.Response:
            return web.Response(headers={"X-A": "b\r\nc"})

        return [Route("POST", "/echo", broken, "any", "Answers what cannot be sent.", plain=True)]

    async with running_server(tmp_path, extra=(broken_routes,)) as server:
        assert await raw(server.port(), request_bytes()) == b""
    assert "an answer cannot be sent" in caplog.text


@pytest.mark.parametrize("fields", [b"", b"TE: a\r\n"])
async def test_an_error_that_says_that_the_connection_closes_closes_it(tmp_path: Path, fields: bytes) -> None:
    def stopping_routes(_: RequestPipeline) -> Sequence[Route]:
        async def refuse(_: web.Request) -> web.Response:
            raise stopping()

        return [Route("POST", "/echo", refuse, "any", "Refuses.", plain=True)]

    async with running_server(tmp_path, extra=(stopping_routes,)) as server, asyncio.timeout(10):
        answer = await raw(server.port(), request_bytes(fields=fields) * 2)
    assert answer.count(b"HTTP/1.1 503") == 1
