"""The one path by which events reach a socket: quick, alive in silence, and done with readers that do not read."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import FrameType

import aiohttp
import pytest
import uvloop
from aiohttp import web

from server.http_server import RunningServer, running_server, sse
from tailrace.errors import Rejected
from tailrace.events import Entry, MessageChunk, ReasoningChunk
from tailrace.journal.viewed_lines import sse_with_reasoning, sse_without_reasoning
from tailrace.ports import Batch, LogPage
from tailrace.server.app import RouteModule
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.route import Route
from tailrace.server.http.sse_stream import KEEP_ALIVE, PIECE_BYTES, EventStream, StreamTiming
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, reply
from tailrace.wire.sse import encode_event

Play = Callable[[EventStream], Awaitable[None]]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
HEAD = "GET /v1/chat/play HTTP/1.{}\r\nHost: localhost\r\n\r\n"


def playing(play: Play, ended: asyncio.Event | None = None) -> RouteModule:
    """A route whose stream does what the test says."""

    def routes(frame: RequestPipeline) -> Sequence[Route]:
        async def handler(request: web.Request) -> web.StreamResponse:
            stream = frame.stream(request)
            try:
                await play(stream)
                return await stream.end(b"data: [DONE]\n\n")
            finally:
                if ended is not None:
                    ended.set()

        return [Route("GET", "/v1/chat/play", handler, "any", "Plays.", streams=True)]

    return routes


async def body_of(server: RunningServer) -> bytes:
    async with server.client.get(server.url + "/v1/chat/play") as response:
        assert response.status == 200
        return await response.read()


# ── alive in silence ─────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_H92_silence_is_filled_with_comments(tmp_path: Path) -> None:
    async def play(stream: EventStream) -> None:
        stream.send(b"data: 1\n\n")
        await asyncio.sleep(14)
        stream.send(b"data: 2\n\n")
        await asyncio.sleep(50)
        stream.send(b"data: 3\n\n")

    async with running_server(tmp_path, extra=(playing(play),)) as server:
        body = await body_of(server)
    quiet = KEEP_ALIVE * 3
    assert body == b"data: 1\n\ndata: 2\n\n" + quiet + b"data: 3\n\ndata: [DONE]\n\n"


@driven
async def test_H92_a_head_that_nobody_sent_goes_out_after_the_first_silence(tmp_path: Path) -> None:
    async def play(stream: EventStream) -> None:
        await asyncio.sleep(20)

    async with running_server(tmp_path, extra=(playing(play),)) as server:
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with server.client.get(server.url + "/v1/chat/play") as response:
            assert loop.time() - asked_at == pytest.approx(15, abs=0.1)
            assert await response.read() == KEEP_ALIVE + b"data: [DONE]\n\n"


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_D52_a_failure_before_the_first_event_is_a_status(tmp_path: Path) -> None:
    async def play(stream: EventStream) -> None:
        raise Rejected("too long", status=400, code="context_length_exceeded")

    async with running_server(tmp_path, extra=(playing(play),)) as server:
        status, body = await server.json("GET", "/v1/chat/play")
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")


async def test_H94_a_failure_later_is_an_error_event_and_no_clean_end(tmp_path: Path) -> None:
    async def play(stream: EventStream) -> None:
        stream.send(b"data: 1\n\n")
        raise Rejected("too long", status=400, code="context_length_exceeded")

    async with running_server(tmp_path, extra=(playing(play),)) as server:
        body = await body_of(server)
    assert body.startswith(b'data: 1\n\ndata: {"error":{"message":"too long"')
    assert b"[DONE]" not in body


def test_J121_what_is_sent_cannot_write_the_next_event() -> None:
    for hostile in ("a\nb", "a\rb", "a\0b"):
        with pytest.raises(ValueError, match="must not contain"):
            encode_event(b"{}", event=hostile)
        with pytest.raises(ValueError, match="must not contain"):
            encode_event(b"{}", id=hostile)


async def test_a_client_of_http_1_0_gets_the_events_and_the_end_of_the_connection(tmp_path: Path) -> None:
    async def play(stream: EventStream) -> None:
        stream.send(b"data: 1\n\n")

    async with running_server(tmp_path, extra=(playing(play),)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port())
        writer.write(HEAD.format(0).encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert b"chunked" not in head.lower()
    assert body == b"data: 1\n\ndata: [DONE]\n\n"


# ── clients that leave ───────────────────────────────────────────────────────────────────────────────────────


def leaving(loop_factory: LoopFactory, tmp_path: Path, *, reset: bool, begun: bool) -> float:
    """How long a handler that waits in silence lives on after its client has left."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        waiting, ended = asyncio.Event(), asyncio.Event()

        async def play(stream: EventStream) -> None:
            if begun:
                stream.begin()
            waiting.set()
            await asyncio.sleep(3600)

        async with running_server(tmp_path, extra=(playing(play, ended),)) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port())
            writer.write(HEAD.format(1).encode())
            await waiting.wait()
            left_at = loop.time()
            if reset:
                writer.transport.abort()
            else:
                writer.close()
            async with asyncio.timeout(30):
                await ended.wait()
            return loop.time() - left_at

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_F68_a_client_that_leaves_in_silence_cancels_the_handler(
    tmp_path: Path, loop_factory: LoopFactory, reset: bool, begun: bool
) -> None:
    assert leaving(loop_factory, tmp_path, reset=reset, begun=begun) < StreamTiming().silence_s, (
        "noticed before anything is sent"
    )


async def test_sending_to_a_client_that_is_gone_does_nothing(tmp_path: Path) -> None:
    ended = asyncio.Event()
    survived: list[bool] = []

    async def play(stream: EventStream) -> None:
        stream.begin()
        try:
            await asyncio.sleep(3600)
        finally:
            stream.send(b"data: too late\n\n")
            survived.append(stream.gone)

    async with running_server(tmp_path, extra=(playing(play, ended),)) as server:
        async with server.client.get(server.url + "/v1/chat/play") as response:
            response.close()
        await ended.wait()
    assert survived == [True]


# ── clients that do not read ─────────────────────────────────────────────────────────────────────────────────

LINE = b"data: " + b"x" * 4090 + b"\n\n"


async def deaf(port: int, path: str = "/v1/chat/play") -> socket.socket:
    """A client that asks and never reads."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


@pytest.mark.parametrize("half_closed", [False, True])
async def test_F73_a_reader_that_does_not_read_is_dropped_and_hurts_nobody(tmp_path: Path, half_closed: bool) -> None:
    loop = asyncio.get_running_loop()
    ended, stuck = asyncio.Event(), asyncio.Event()
    begun: list[float] = []

    async def play(stream: EventStream) -> None:
        begun.append(loop.time())
        stream.begin()
        while stream.takes(0):
            stream.send(LINE * 16)
        stuck.set()
        await stream.caught_up()
        raise AssertionError("nobody reads")

    timing = StreamTiming(silence_s=0.1, stuck_s=0.1)
    async with running_server(
        tmp_path, Scenario(reply=reply("One two three"), pace_s=0.01), extra=(playing(play, ended),), timing=timing
    ) as server:
        client = await deaf(server.port())
        await stuck.wait()
        if half_closed:
            client.shutdown(socket.SHUT_WR)
        events = await server.events(f"/runs/{await server.start()}/stream")
        async with asyncio.timeout(30):
            await ended.wait()
        client.close()
    assert events[-1]["status"] == "completed"
    assert loop.time() - begun[0] < StreamTiming().stuck_s


async def test_F73_a_reader_is_dropped_although_more_is_sent_all_the_time(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def play(stream: EventStream) -> None:
        stream.begin()
        while stream.takes(0):
            stream.send(LINE * 16)
        while True:
            stream.send(b"data: a token\n\n")
            await asyncio.sleep(0.01)

    timing = StreamTiming(silence_s=0.1, stuck_s=0.1)
    async with running_server(tmp_path, extra=(playing(play, ended),), timing=timing) as server:
        client = await deaf(server.port())
        async with asyncio.timeout(30):
            await ended.wait()
        client.close()


async def test_F72_a_reader_for_whom_too_much_piles_up_is_dropped_at_once(tmp_path: Path) -> None:
    ended = asyncio.Event()
    sent = 0

    async def play(stream: EventStream) -> None:
        nonlocal sent
        while not stream.gone:
            stream.send(LINE * 256)
            sent += len(LINE) * 256
            await asyncio.sleep(0)

    timing = StreamTiming(max_pending_bytes=1 << 20)
    async with running_server(tmp_path, extra=(playing(play, ended),), timing=timing) as server:
        client = await deaf(server.port())
        async with asyncio.timeout(10):
            await ended.wait()
        client.close()
    assert sent < 64 << 20  # what the kernel takes, and one more


async def test_F73_the_last_events_reach_a_slow_reader(tmp_path: Path) -> None:
    async def play(stream: EventStream) -> None:
        for _ in range(64):
            stream.send(LINE * 16)

    async with running_server(tmp_path, extra=(playing(play),)) as server:
        client = await deaf(server.port())
        loop = asyncio.get_running_loop()
        received = bytearray()
        while not received.endswith(b"0\r\n\r\n"):
            piece = await loop.sock_recv(client, 8192)
            assert piece, "the stream was cut"
            received += piece
        client.close()
    assert received.count(b"data: x") == 64 * 16
    assert b"data: [DONE]\n\n" in received


async def test_a_slow_viewer_of_a_run_reads_on_from_the_log(tmp_path: Path) -> None:
    """F72: what it has not read is not kept for it."""
    async with running_server(tmp_path, *["long"] * 1) as server:
        run = await server.start()
        await server.app.agents.finished(run)
        client = await deaf(server.port(), f"/runs/{run}/stream")
        loop = asyncio.get_running_loop()
        received = bytearray()
        while not received.endswith(b"0\r\n\r\n"):
            received += await loop.sock_recv(client, 65536)
        client.close()
        whole = await server.events(f"/runs/{run}/stream")
    assert received.count(b"event: ") == len(whole)


# ── what it costs ────────────────────────────────────────────────────────────────────────────────────────────


class Counting(asyncio.Transport):
    """Counts the writes of the transport that it stands for."""

    def __init__(self, real: asyncio.Transport) -> None:
        self._real = real
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self._real.write(data)

    def is_closing(self) -> bool:
        return self._real.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._real.get_write_buffer_size()


async def test_one_send_is_one_write_and_no_task(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    async def play(stream: EventStream) -> None:
        stream.begin()
        assert stream._transport is not None
        counting = Counting(stream._transport)
        stream._transport = counting
        before = len(asyncio.all_tasks())
        for number in range(100):
            stream.send(b"data: %d\n\ndata: more\n\n" % number)
        seen.append((len(counting.writes), len(asyncio.all_tasks()) - before))

    async with running_server(tmp_path, extra=(playing(play),)) as server:
        body = await body_of(server)
    assert seen == [(100, 0)]
    assert body.count(b"data: ") == 201


async def test_H94_first_events_that_a_failure_follows_at_once_leave_before_its_error_event(tmp_path: Path) -> None:
    async def play(stream: EventStream) -> None:
        stream.send(b"data: 1\n\n")
        raise Rejected("too long", status=400, code="context_length_exceeded")

    async with running_server(tmp_path, extra=(playing(play),)) as server:
        body = await body_of(server)
    assert body.startswith(b'data: 1\n\ndata: {"error":{"message":"too long"')


async def test_many_viewers_of_one_run_are_sent_the_same_bytes(tmp_path: Path) -> None:
    async with running_server(tmp_path, Scenario(reply=reply("word " * 200), pace_s=0.001)) as server:
        run = await server.start()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as client:

            async def watch() -> list[int]:
                async with client.get(f"{server.url}/runs/{run}/stream") as response:
                    return [event["seq"] async for event in sse(response)]

            seen = await asyncio.gather(*(watch() for _ in range(50)))
    assert len({tuple(seqs) for seqs in seen}) == 1
    assert seen[0] == list(range(1, len(seen[0]) + 1))


def page_of(text: str) -> LogPage:
    return Batch((Entry(1, MessageChunk(text)),)).page


async def test_a_page_that_others_are_sent_too_is_one_write_and_no_other_call(tmp_path: Path) -> None:
    called: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        caller = frame if event == "c_call" else frame.f_back  # the write is a function in Python on some loops
        if event in ("call", "c_call") and caller is not None and caller.f_code.co_name == "_send_page":
            called.append(frame.f_code.co_name if event == "call" else getattr(argument, "__name__", ""))

    async def play(stream: EventStream) -> None:
        send, page = stream.page_sender(sse_without_reasoning), page_of("word")
        assert not send(page)  # the head is not sent
        stream.begin()
        assert send(page)
        sys.setprofile(note)
        taken = send(page)
        sys.setprofile(None)
        assert taken
        assert not send(page_of("x" * PIECE_BYTES))
        assert stream.page_sender(sse_with_reasoning)(Batch((Entry(2, ReasoningChunk("why")),)).page)

    async with running_server(tmp_path, extra=(playing(play),)) as server:
        body = await body_of(server)
    assert body.count(b"word") == 2
    assert body.count(b"why") == 1
    assert [name for name in called if name != "len"] == ["write"]


async def test_a_page_is_refused_for_a_client_that_is_behind(tmp_path: Path) -> None:
    refused = asyncio.Event()

    async def play(stream: EventStream) -> None:
        stream.begin()
        send, sent = stream.page_sender(sse_without_reasoning), 0
        while send(page_of("x" * 8000)):
            sent += 8000
            assert sent < 64 << 20
            await asyncio.sleep(0)
        assert not stream.takes(0)
        refused.set()

    async with running_server(tmp_path, extra=(playing(play),)) as server:
        reader = await deaf(int(server.url.rpartition(":")[2]))
        async with asyncio.timeout(30):
            await refused.wait()
        reader.close()


def long_routes(pipeline: RequestPipeline) -> Sequence[Route]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await pipeline.stream(request).end(b"data: " + b"x" * (16 << 20) + b"\n\n")

    return [Route("GET", "/long", answer, "any", "Plays.", streams=True)]


async def test_a_last_event_longer_than_a_client_may_have_buffered_arrives(tmp_path: Path) -> None:
    timing = StreamTiming(max_pending_bytes=1 << 20)
    async with (
        running_server(tmp_path, extra=(long_routes,), timing=timing) as server,
        server.client.get(server.url + "/long") as response,
    ):
        assert len(await response.read()) == (16 << 20) + 8
