"""What a model call costs over a bare aiohttp read of the same socket: to the first token, per token, at 200 streams.

    python -m bench call

The server is a process of its own that writes prepared bytes, one token a write: as fast as it can (a burst, in
which a reader finds many tokens at once) or at the pace of a quick model (in which each token is a read of its own,
as in life). Both readers take turns in one process, so a noisy neighbour hits both; per-token figures are this
process's CPU time.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import aiohttp
import msgspec
import uvloop

from bench.table import Table
from tailrace.messages import AnyDelta, Dialect, ModelRequest, user
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller
from tailrace.providers.call_listener import CallListener
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.provider import HttpProvider
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.providers.transport.port import Transport

TOKENS = 500
FIRST_TOKENS = 150  # calls per dialect
STREAMS = 200
ROUNDS = 7
PACE_S = 0.01  # between the tokens of a paced stream: a quick model
PACED_TOKENS = 200
DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic")
ASK = ModelRequest("bench", (user("Where does the water go?"),))
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


# ── the server, in a process of its own ──────────────────────────────────────────────────────────────────────


def chunks(dialect: Dialect, tokens: int) -> list[bytes]:
    """The stream's writes: one event each, framed as HTTP chunks, the end included."""
    from tailrace.testing.scripted.render import events_of, frame
    from tailrace.testing.scripted.reply import reply
    from tailrace.testing.scripted.request_reader import scripted_request

    said = reply(" ".join(f"word{number}" for number in range(tokens)))
    told = scripted_request(dialect, {"model": "bench", "stream_options": {"include_usage": True}})
    framed = [frame(event) for event in events_of(dialect, said, told)]
    return [b"%x\r\n%b\r\n" % (len(event), event) for event in framed] + [b"0\r\n\r\n"]


class Connection(asyncio.Protocol):
    """Answers any request with the stream of its path, a write per event."""

    streams: dict[bytes, list[bytes]]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports do not derive from it
        self._loop = asyncio.get_running_loop()
        self._seen = b""

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, ended, body = self._seen.partition(b"\r\n\r\n")
        if not ended:
            return
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(body) >= length:
            path = head.split(b" ", 2)[1]
            self._seen = body[length:]
            self._transport.write(HEAD)
            self._write_next(iter(self.streams[path]), PACE_S if path.startswith(b"/paced") else 0.0)

    def _write_next(self, pieces: Iterator[bytes], pace_s: float) -> None:
        piece = next(pieces, None)
        if piece is not None and not self._transport.is_closing():
            self._transport.write(piece)
            self._loop.call_later(pace_s, self._write_next, pieces, pace_s)


async def serve() -> None:
    Connection.streams = {
        prefix + PATHS[dialect].encode(): chunks(dialect, tokens)
        for dialect in DIALECTS
        for prefix, tokens in ((b"", TOKENS), (b"/paced", PACED_TOKENS))
    }
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


# ── the readers ──────────────────────────────────────────────────────────────────────────────────────────────

Reader = Callable[[], Awaitable[float]]  # reads one stream; returns when its first token was there


class FirstToken(CallListener):
    def __init__(self) -> None:
        self.at = 0.0

    def deltas(self, deltas: list[AnyDelta]) -> None:
        if deltas and not self.at:
            self.at = time.perf_counter()


class Readers:
    """The two of them for one address and dialect."""

    def __init__(self, session: aiohttp.ClientSession, transport: Transport, base: str, dialect: Dialect) -> None:
        provider = HttpProvider(Endpoint(name="bench", dialect=dialect, base_url=base + "/v1"), transport)
        self._session = session
        self._url = base + PATHS[dialect]
        self._body = msgspec.json.encode(provider.request_body(ASK, stream=True))
        self._routes = [Route(provider, "bench")]
        self._caller = Caller()

    async def bare(self) -> float:
        """The bytes, and nothing done with them."""
        first = 0.0
        async with self._session.post(self._url, data=self._body) as response:
            async for data in response.content.iter_any():
                if not first and b"word0" in data:
                    first = time.perf_counter()
        return first

    async def call(self) -> float:
        """The whole of it: attempts, deadlines, decoding, a listener, the rebuilt body."""
        listener = FirstToken()
        result = await self._caller.complete(ASK, self._routes, listener=listener)
        assert result.completion.stop == "end"
        return listener.at


async def first_token_ms(read: Reader) -> float:
    began = time.perf_counter()
    return (await read() - began) * 1000


async def cpu_s(read: Reader, at_once: int) -> float:
    began = time.process_time()
    await asyncio.gather(*(read() for _ in range(at_once)))
    return time.process_time() - began


async def latency_row(table: Table, readers: Readers, dialect: Dialect) -> None:
    bare, call = [], []
    for _ in range(FIRST_TOKENS):
        bare.append(await first_token_ms(readers.bare))
        call.append(await first_token_ms(readers.call))
    table.row(dialect, _spread(bare), _spread(call), statistics.median(call) - statistics.median(bare))


async def rate_row(table: Table, readers: Readers, dialect: Dialect, kind: str, at_once: int, rounds: int) -> None:
    tokens = at_once * (PACED_TOKENS if kind == "paced" else TOKENS)
    bare, call = [], []
    for _ in range(rounds):
        bare.append(await cpu_s(readers.bare, at_once))
        call.append(await cpu_s(readers.call, at_once))
    fast, ours = statistics.median(bare), statistics.median(call)
    added_us = (ours - fast) / tokens * 1e6
    table.row(dialect, kind, at_once, tokens / fast, tokens / ours, f"{fast / ours:.0%}", f"{added_us:.1f} µs")


async def measure(base: str) -> list[Table]:
    latency = Table("to the first token, one stream (ms, p50 / p90)", "dialect", "bare", "call", "added p50")
    rate = Table(
        "tokens per second of CPU time",
        "dialect",
        "stream",
        "at once",
        "bare",
        "call",
        "call / bare",
        "added per token",
    )
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, open_transport() as transport:
        for dialect in DIALECTS:
            burst = Readers(session, transport, base, dialect)
            paced = Readers(session, transport, base + "/paced", dialect)
            await latency_row(latency, burst, dialect)
            await rate_row(rate, burst, dialect, "burst", 1, ROUNDS * 5)
            await rate_row(rate, burst, dialect, "burst", STREAMS, ROUNDS)
            await rate_row(rate, paced, dialect, "paced", STREAMS, 2)
    return [latency, rate]


def _spread(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{statistics.median(ordered):.2f} / {ordered[int(len(ordered) * 0.9)]:.2f}"


def main() -> list[Table]:
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.call", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        return uvloop.run(measure(f"http://127.0.0.1:{port}"))
    finally:
        server.terminate()
        server.communicate()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        uvloop.run(serve())
    else:
        for table in main():
            print(f"{table}\n")
