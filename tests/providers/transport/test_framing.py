"""Answers over real sockets, in every shape that HTTP/1.1 allows and in some that it does not."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from providers.transport.raw_servers import (
    CHUNKED,
    OK,
    READERS,
    client,
    post,
    pump_all,
    raw_server,
    read_all,
    read_request,
    saying,
)
from tailrace.errors import PeerError, ProviderError, StreamCut, TimedOut, Unavailable
from tailrace.providers.transport import http1_connection
from tailrace.providers.transport.port import HttpReply

Reader = Callable[[HttpReply], Awaitable[bytes]]
SHAPES = {
    "length": OK + b"Content-Length: 11\r\n\r\nhello world",
    "chunks": CHUNKED + b"6\r\nhello \r\n5;ext=1\r\nworld\r\n0\r\n\r\n",
    "trailers": CHUNKED + b"b\r\nhello world\r\n0\r\nX-Sum: 1\r\n\r\n",
    "interim": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    + OK
    + b"content-length: 11\r\n\r\nhello world",
    "no reason": b"HTTP/1.1 200\r\ncontent-length: 11\r\n\r\nhello world",
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_body_is_the_same_split_at_every_byte(shape: str, reader: Reader) -> None:
    raw = SHAPES[shape]
    answers = [*((raw[:at], raw[at:]) for at in range(1, len(raw))), tuple(raw[at : at + 1] for at in range(len(raw)))]

    async def answer(incoming: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for pieces in answers:
            await read_request(incoming)
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0)

    async with raw_server(answer) as url, client() as transport:
        for at in range(len(answers)):
            reply = await post(transport, url)
            assert (reply.status, await reader(reply)) == (200, b"hello world"), at
            assert reply.at_end
            reply.close()


async def test_what_follows_an_answer_in_the_same_read_is_none_of_it() -> None:
    raw = OK + b"Content-Length: 5\r\n\r\nhello" + OK + b"Content-Length: 3\r\n\r\nabc"
    async with raw_server(saying(raw)) as url, client() as transport:
        reply = await post(transport, url)
        assert await read_all(reply) == b"hello"
        reply.close()


async def test_a_refusal_with_an_encoding_and_no_body_keeps_its_status() -> None:
    raw = b"HTTP/1.1 401 Unauthorized\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"
    async with raw_server(saying(raw)) as url, client() as transport:
        reply = await post(transport, url)
        assert (reply.status, await read_all(reply)) == (401, b"")
        reply.close()


@pytest.mark.parametrize("reader", READERS)
async def test_a_body_without_a_length_ends_with_its_connection(reader: Reader) -> None:
    async with raw_server(saying(OK + b"\r\nhello ", b"world")) as url, client() as transport:
        reply = await post(transport, url)
        assert await reader(reply) == b"hello world"
        reply.close()


@pytest.mark.parametrize("raw", [OK + b"Content-Length: 20\r\n\r\nhello world", CHUNKED + b"20\r\nhello world"])
async def test_a_cut_comes_after_everything_that_had_arrived(raw: bytes) -> None:
    async with raw_server(saying(raw)) as url, client() as transport:
        reply = await post(transport, url)
        assert await reply.read() == b"hello world"
        with pytest.raises(StreamCut):
            await reply.read()
        seen: list[bytes] = []
        second = await post(transport, url)
        with pytest.raises(StreamCut):
            await second.pump(lambda data: bool(seen.append(data)))  # type: ignore[func-returns-value]
        assert b"".join(seen) == b"hello world"
        reply.close()
        second.close()


@pytest.mark.parametrize(
    ("raw", "error", "message"),
    [
        (b"", Unavailable, "closed before an answer came"),
        (b"HTTP/1.1 20", Unavailable, "before an answer came"),
        (OK + b"Content-Len", Unavailable, "before an answer came"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", PeerError, "does not speak HTTP"),
    ],
)
async def test_what_is_no_answer_is_a_typed_error(raw: bytes, error: type[ProviderError], message: str) -> None:
    async with raw_server(saying(raw)) as url, client() as transport:
        with pytest.raises(error, match=message):
            await post(transport, url)


async def test_a_peer_that_switches_protocols_unasked_is_no_success() -> None:
    raw = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nxx"
    async with raw_server(saying(raw)) as url, client() as transport:
        try:
            reply = await post(transport, url)
        except PeerError:
            return
        assert reply.status == 101
        reply.close()


async def test_an_answer_that_was_cut_leaves_no_cycle() -> None:
    async def ask() -> None:
        for reader in READERS:
            reply = await post(transport, url)
            with pytest.raises(StreamCut) as caught:
                await reader(reply)
            assert (str(caught.value), caught.value.code) == (
                "the connection broke in the middle of the answer",
                "stream_cut",
            )
            reply.close()
            del caught

    async with raw_server(saying(CHUNKED + b"20\r\nhello world")) as url, client() as transport:
        await ask()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await ask()
            await asyncio.sleep(0)
            gc.collect()
            left = [type(each).__module__ for each in gc.garbage]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not [module for module in left if module.startswith("tailrace.")]


async def test_a_chunk_that_is_none_cuts_the_answer() -> None:
    async with raw_server(saying(CHUNKED + b"5\r\nhello\r\nnot a size\r\n")) as url, client() as transport:
        reply = await post(transport, url)
        assert await reply.read() == b"hello"
        with pytest.raises(StreamCut):
            await reply.read()
        reply.close()


async def test_headers_are_found_in_any_case_and_the_first_of_two_counts() -> None:
    raw = OK + b"X-Odd: \xc3\xa9\r\nRetry-After: 1\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n"
    async with raw_server(saying(raw)) as url, client() as transport:
        reply = await post(transport, url)
        assert (reply.headers.get("retry-after"), reply.headers["x-odd"]) == ("1", "é")
        reply.close()


async def test_J126_an_endless_head_is_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        for number in range(4000):
            writer.write(b"x-%d: %b\r\n" % (number, b"y" * 4000))
            await writer.drain()

    async with raw_server(answer) as url, client() as transport:
        with pytest.raises(ProviderError):
            await asyncio.wait_for(post(transport, url), 30)


async def test_what_follows_an_answer_unasked_spoils_the_connection_alone() -> None:
    """The next request must not be answered with it."""
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await read_request(reader)
            writer.write(OK + b"content-length: 2\r\n\r\nhi" + b"HTTP/1.1 500 Smuggled\r\ncontent-length: 0\r\n\r\n")

    async with raw_server(answer) as url, client() as transport:
        for _ in range(3):
            reply = await post(transport, url)
            assert (reply.status, await read_all(reply)) == (200, b"hi")
            reply.close()
    assert connections == 3


async def test_an_answer_may_come_before_the_request_is_sent() -> None:
    """A server that refuses a large body says so without reading it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno")
        await writer.drain()
        while await reader.read(1 << 16):  # a close with unread bytes would be a reset
            pass

    async with raw_server(answer) as url, client() as transport:
        reply = await post(transport, url, b"x" * (32 << 20))
        assert (reply.status, await read_all(reply)) == (413, b"no")
        reply.close()


async def test_a_large_request_does_not_hold_the_loop() -> None:
    body = b"0123456789abcdef" * (1 << 20)
    ticks = 0
    taken: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append((await read_request(reader))[1])
        writer.write(OK + b"content-length: 0\r\n\r\n")

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    async with raw_server(answer) as url, client() as transport:
        ticking = asyncio.create_task(tick())
        reply = await post(transport, url, body)
        ticking.cancel()
        reply.close()
    assert taken == [body]
    assert ticks > 16


async def test_a_body_that_nobody_reads_waits_at_the_peer() -> None:
    """Backpressure: the memory of a stalled reader is bounded."""
    sent = 0
    stuck = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(OK + b"content-length: %d\r\n\r\n" % (64 << 20))
        for _ in range(64):
            writer.write(b"x" * (1 << 20))
            try:
                async with asyncio.timeout(1):
                    await writer.drain()
            except TimeoutError:
                stuck.set()
                await writer.drain()
            sent += 1

    async with raw_server(answer) as url, client() as transport:
        reply = await post(transport, url)
        await asyncio.wait_for(stuck.wait(), 60)
        assert sent < 60
        assert len(await read_all(reply)) == 64 << 20
        reply.close()


async def test_no_connection_within_its_deadline() -> None:
    """A listener that never accepts: its queue is full, and the system does not answer."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        waiting = [socket.socket() for _ in range(4)]
        try:
            for other in waiting:
                other.setblocking(False)
                other.connect_ex(listener.getsockname())
            async with client() as transport:
                with pytest.raises(TimedOut, match=r"no connection within 0\.1 s") as caught:
                    await post(transport, url, timeout_s=0.1)
            assert caught.value.deadline == "connect"
        finally:
            for other in waiting:
                other.close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "http:///path", "http://[::1/"])
async def test_an_address_that_is_none_is_rejected(url: str) -> None:
    async with client() as transport:
        with pytest.raises(ProviderError) as caught:
            await post(transport, url)
        assert caught.value.code == "invalid_url"


@pytest.mark.parametrize("value", ["two\r\nx-lines: 1", "nul\0"])
async def test_a_header_cannot_end_its_line(value: str) -> None:
    async with raw_server(saying(OK + b"content-length: 0\r\n\r\n")) as url, client() as transport:
        with pytest.raises((ProviderError, ValueError)):
            await transport.post(url, headers={"x-a": value}, body=b"", connect_timeout_s=5)


async def test_what_is_sent_is_http_1_1_with_the_length_of_the_body() -> None:
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append((await read_request(reader))[0])
            writer.write(OK + b"content-length: 0\r\n\r\n")

    async with raw_server(answer) as url, client() as transport:
        for headers in ({"x-a": "1"}, {"x-a": "1"}, {"x-a": "2"}):
            reply = await transport.post(f"{url}/a b?q=1", headers=headers, body=b"{}", connect_timeout_s=5)
            reply.close()
        reply = await transport.get(url, headers={}, connect_timeout_s=5)
        reply.close()
    lines = [head.split(b"\r\n") for head in heads]
    assert [line[0] for line in lines] == [b"POST /v1/a%20b?q=1 HTTP/1.1"] * 3 + [b"GET /v1 HTTP/1.1"]
    assert [dict(field.lower().split(b": ") for field in line[1:-2]).get(b"x-a") for line in lines] == [
        *(b"1", b"1", b"2", None)
    ]
    assert all(
        dict(field.lower().split(b": ") for field in line[1:-2])[b"content-length"] == b"2" for line in lines[:3]
    )
    assert dict(field.lower().split(b": ") for field in lines[3][1:-2])[b"host"] == url[7:].removesuffix("/v1").encode()


async def test_both_ways_of_reading_may_follow_each_other() -> None:
    async with (
        raw_server(saying(CHUNKED + b"1\r\na\r\n", b"1\r\nb\r\n1\r\nc\r\n0\r\n\r\n")) as url,
        client() as transport,
    ):
        reply = await post(transport, url)
        await reply.pump(lambda data: data.endswith(b"a") or True)
        rest = await read_all(reply)
        assert rest in (b"", b"bc")
        assert await pump_all(reply) == b""
        reply.close()


def test_the_limits_are_what_the_documentation_says() -> None:
    assert http1_connection.MAX_HEAD_BYTES == 128 * 1024
