"""Pushed bodies: the sink is called as the bytes arrive, and nothing of that can be interrupted half way."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from contextvars import ContextVar

import pytest

from providers.transport.raw_servers import CHUNKED, OK, client, post, raw_server, read_request, saying
from tailrace.config.sections import TransportSettings
from tailrace.providers.transport.http1_connection import LARGE_READ_BYTES
from tailrace.providers.transport.http1_transport import open_transport

RUN: ContextVar[str] = ContextVar("RUN", default="nobody's")


class Paced:
    """A server that sends a chunk whenever the test says so."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.left = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED)
        gone = asyncio.ensure_future(reader.read())
        try:
            while True:
                saying = asyncio.ensure_future(self.said.get())
                await asyncio.wait((gone, saying), return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    saying.cancel()
                    return
                data = saying.result()
                writer.write(b"%x\r\n%b\r\n" % (len(data), data))
                if not data:
                    return
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            self.left.set()


async def test_a_token_wakes_no_task() -> None:
    """The reader's task runs once at the beginning and once at the end, however many pieces come."""
    server = Paced()
    pieces: list[bytes] = []
    arrived = asyncio.Event()
    switches = 0

    def sink(data: bytes) -> bool:
        pieces.append(data)
        arrived.set()
        assert asyncio.current_task() is None
        return False

    async with raw_server(server) as url, open_transport(TransportSettings(proxy="none")) as transport:
        reply = await post(transport, url)

        async def read() -> None:
            nonlocal switches
            pumping = reply.pump(sink).__await__()
            try:
                while True:
                    switches += 1
                    await _step(next(pumping))
            except StopIteration:
                pass

        reading = asyncio.create_task(read())
        for number in range(50):
            arrived.clear()
            server.said.put_nowait(b"token %d" % number)
            await asyncio.wait_for(arrived.wait(), 10)
        server.said.put_nowait(b"")
        await reading
        reply.close()
    assert b"".join(pieces).count(b"token") == 50
    assert switches == 2  # the wait for the end, and the end


async def _step(waited_for: object) -> None:
    """Waits for what a coroutine has yielded."""
    assert isinstance(waited_for, asyncio.Future)
    waited_for._asyncio_future_blocking = False
    await asyncio.wait((waited_for,))


async def test_the_sink_runs_in_the_context_of_its_reader() -> None:
    server = Paced()
    seen: list[str] = []
    async with raw_server(server) as url, client() as transport:
        reply = await post(transport, url)
        RUN.set("ours")
        for data in (b"a", b"b", b""):
            server.said.put_nowait(data)
        await reply.pump(lambda _data: bool(seen.append(RUN.get())))  # type: ignore[func-returns-value]
        reply.close()
    assert set(seen) == {"ours"}


async def test_what_the_sink_raises_ends_the_pump() -> None:
    async with raw_server(saying(CHUNKED + b"1\r\na\r\n", b"1\r\nb\r\n0\r\n\r\n")) as url, client() as transport:
        reply = await post(transport, url)

        def refuse(_data: bytes) -> bool:
            raise LookupError("enough of this")

        with pytest.raises(LookupError, match="enough of this"):
            await reply.pump(refuse)
        reply.close()


async def test_F70_a_cancelled_reader_gets_nothing_more_and_the_connection_is_dropped() -> None:
    server = Paced()
    pieces: list[bytes] = []
    first = asyncio.Event()

    def sink(data: bytes) -> bool:
        pieces.append(data)
        first.set()
        return False

    async with raw_server(server) as url, client() as transport:
        reply = await post(transport, url)
        reading = asyncio.create_task(reply.pump(sink))
        server.said.put_nowait(b"one")
        await asyncio.wait_for(first.wait(), 10)
        server.said.put_nowait(b"two")
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        seen = len(pieces)
        reply.close()
        await asyncio.wait_for(server.left.wait(), 10)
    assert len(pieces) == seen


async def test_a_sink_that_has_enough_leaves_the_rest_to_read() -> None:
    server = Paced()
    async with raw_server(server) as url, client() as transport:
        reply = await post(transport, url)
        server.said.put_nowait(b"one")
        await reply.pump(lambda _data: True)
        server.said.put_nowait(b"two")
        assert await reply.read() == b"two"
        server.said.put_nowait(b"")
        assert await reply.read() == b""
        assert reply.at_end
        reply.close()


async def test_cancelling_before_the_head_drops_the_connection() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        await reader.read()
        left.set()

    async with raw_server(silent) as url, client() as transport:
        asking = asyncio.create_task(post(transport, url))
        await asyncio.wait_for(asked.wait(), 10)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(left.wait(), 10)


async def test_a_whole_answer_is_there_at_once() -> None:
    async with raw_server(saying(OK + b"content-length: 2\r\n\r\nhi")) as url, client() as transport:
        reply = await post(transport, url)
        pieces: list[bytes] = []
        await reply.pump(lambda data: bool(pieces.append(data)))  # type: ignore[func-returns-value]
        assert (b"".join(pieces), reply.at_end) == (b"hi", True)
        reply.close()
        reply.close()


async def test_O178_the_loop_has_its_turn_between_two_large_reads() -> None:
    """uvloop would read 32 times in a row from a socket that is always full."""
    size, turns = 16 << 20, 0
    got: list[tuple[int, int]] = []

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def sink(data: bytes) -> bool:
        hashlib.sha256(data * 4).digest()  # without the interpreter's lock: the server fills the socket meanwhile
        got.append((turns, len(data)))
        return False

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(OK + b"content-length: %d\r\n\r\n" % size + bytes(size))

    counting = asyncio.ensure_future(count())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.ensure_future(asyncio.to_thread(serve, listening))
        async with client() as transport:
            await (await post(transport, f"http://127.0.0.1:{listening.getsockname()[1]}/v1")).pump(sink)
        await serving
    counting.cancel()
    assert sum(length for _, length in got) == size
    large = [turn for turn, length in got if length >= LARGE_READ_BYTES]
    assert len(large) > 2
    assert len(set(large)) >= len(large) - 1  # the first one waited for its reader
