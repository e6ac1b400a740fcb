"""What our server adds to a raw model's stream, against a bare aiohttp prototype of the same path.

    python -m bench server

Chat in and chat out. The prototype decodes every chunk, builds every chunk anew, and does nothing else: no attempts,
no deadlines, no journal, no keys, no keep-alive. Provider, gateway and clients are processes of their own; the figure
is the gateway's tokens per second of its own CPU time, so neither the provider nor the clients count. Rounds of the
two alternate, so a noisy neighbour hits both.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
import msgspec
import uvloop
from aiohttp import web

from bench.gateway.prototypes import ENCODE, rebuilt
from bench.table import Table

FLAT_TOKENS, FLAT_STREAMS, FLAT_ROUNDS = 4000, 8, 7
PACED_TOKENS, PACED_STREAMS, PACED_ROUNDS, PACE_S = 200, 300, 3, 0.03
FIRST_TOKENS = 150
IDLE_STREAMS = 400
MANY_STREAMS, MANY_TOKENS, MANY_PACE_S, MANY_ARRIVALS_S = 1000, 300, 0.05, 10.0
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PATH = "/v1/chat/completions"


# ── the provider ─────────────────────────────────────────────────────────────────────────────────────────────


def chunks(tokens: int) -> list[bytes]:
    """A stream's events as HTTP chunks, one token each, the end included."""
    from tailrace.testing.scripted.render import events_of, frame
    from tailrace.testing.scripted.reply import reply
    from tailrace.testing.scripted.request_reader import scripted_request

    said = reply(" ".join(f"word{number}" for number in range(tokens)))
    told = scripted_request("chat", {"model": "bench", "stream_options": {"include_usage": True}})
    framed = [frame(event) for event in events_of("chat", said, told)]
    return [b"%x\r\n%b\r\n" % (len(event), event) for event in framed] + [b"0\r\n\r\n"]


class Upstream(asyncio.Protocol):
    """The model's name says how it answers: `flat`, `short`, `paced`, `many` or `idle`."""

    streams: dict[str, tuple[list[bytes], float]]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self._seen = b""

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, ended, body = self._seen.partition(b"\r\n\r\n")
        length = next((int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0)
        if not ended or len(body) < length:
            return
        self._seen = b""
        name = msgspec.json.decode(body[:length])["model"]
        pieces, pace_s = self.streams[name]
        self._transport.write(HEAD)
        if name in ("flat", "short"):
            self._transport.write(b"".join(pieces))
        elif name == "idle":
            self._transport.write(b"".join(pieces[:3]))
        else:
            self._next(iter(pieces), pace_s, self._loop.time())

    def _next(self, pieces: Iterator[bytes], pace_s: float, due: float) -> None:
        piece = next(pieces, None)
        if piece is not None and not self._transport.is_closing():
            self._transport.write(piece)
            self._loop.call_at(due + pace_s, self._next, pieces, pace_s, due + pace_s)


async def provide() -> None:
    Upstream.streams = {
        "flat": (chunks(FLAT_TOKENS), 0.0),
        "paced": (chunks(PACED_TOKENS), PACE_S),
        "many": (chunks(MANY_TOKENS), MANY_PACE_S),
        "idle": (chunks(10), 0.0),
        "short": (chunks(10), 0.0),
    }
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, backlog=2048)
    await reporting(server.sockets[0].getsockname()[1])


# ── the gateways ─────────────────────────────────────────────────────────────────────────────────────────────


async def prototype(base: str) -> None:
    """The same path with nothing but decoding and encoding."""
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def handle(request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        body["model"] = body["model"].partition("/")[2]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        async with session.post(base + PATH, data=ENCODE(body)) as upstream:
            await response.prepare(request)
            rest = b""
            async for data in upstream.content.iter_any():
                *events, rest = (rest + data).split(b"\n\n")
                if events:
                    await response.write(b"".join(rebuilt(event) for event in events))
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_post(PATH, handle)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    assert runner.server is not None
    server = await asyncio.get_running_loop().create_server(runner.server, "127.0.0.1", 0, backlog=2048)
    await reporting(server.sockets[0].getsockname()[1])
    await session.close()
    await runner.cleanup()


async def ours(base: str) -> None:
    """The whole of it, as `tailrace serve` runs it."""
    from tailrace.app import open_app
    from tailrace.config.load import load
    from tailrace.server.app import serving
    from tailrace.server.metrics.call_metrics import count_attempts, count_calls, count_runs
    from tailrace.server.metrics.registry import Metrics

    with tempfile.TemporaryDirectory() as home:
        config = {
            "model": {"provider": "up", "name": "flat"},
            "providers": {"up": {"dialect": "chat", "base_url": base + "/v1"}},
            "server": {"drain_s": 0.1},
        }
        (Path(home) / "config.yaml").write_bytes(msgspec.json.encode(config))
        metrics = Metrics()
        async with (
            open_app(
                load({}, Path(home)),
                middleware=[count_calls(metrics)],
                observers=[count_attempts(metrics)],
                on_end=count_runs(metrics),
                on_lag=metrics.journal_lag.observe,
            ) as app,
            serving(app, port=0, metrics=metrics) as server,
        ):
            await reporting(int(server.url.rpartition(":")[2]))


async def reporting(port: int) -> None:
    """Tells the port; then, for each line that comes, CPU seconds and resident bytes. Until there are no more."""
    print(port, flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        gc.collect()
        print(time.process_time(), resident_bytes(), flush=True)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


class Process:
    """One of the above, in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "bench.server", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self.url = f"http://127.0.0.1:{int(self._out.readline())}"

    def usage(self) -> tuple[float, int]:
        """CPU seconds and resident bytes so far."""
        self._in.write("\n")
        cpu_s, rss = self._out.readline().split()
        return float(cpu_s), int(rss)

    def end(self) -> None:
        self._in.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# ── the clients ──────────────────────────────────────────────────────────────────────────────────────────────


class Stream(msgspec.Struct):
    """What a client saw. Times are of the loop."""

    asked_at: float
    first_at: float = 0.0
    tokens: int = 0
    whole: bool = False


def body_for(model: str) -> bytes:
    return msgspec.json.encode({"model": model, "stream": True, "messages": [{"role": "user", "content": "Go."}]})


async def read_stream(session: aiohttp.ClientSession, url: str, model: str) -> Stream:
    seen = Stream(time.perf_counter())
    tail = b""
    async with session.post(url + PATH, data=body_for(model)) as response:
        assert response.status == 200, await response.text()
        async for data in response.content.iter_any():
            if count := data.count(b"word"):
                seen.tokens += count
                seen.first_at = seen.first_at or time.perf_counter()
            tail = (tail + data)[-32:]
    seen.whole = tail.endswith(b"data: [DONE]\n\n")
    return seen


class Reader(asyncio.Protocol):
    """A client that costs next to nothing: the machine is to be busy with the gateway, not with those who read it."""

    def __init__(self, request: bytes) -> None:
        self.seen = Stream(time.perf_counter())
        self.over: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        self._request = request
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        seen = self.seen
        if count := data.count(b"word"):
            seen.tokens += count
            seen.first_at = seen.first_at or time.perf_counter()
        self._tail = (self._tail + data)[-32:]
        if self._tail.endswith(b"0\r\n\r\n"):
            seen.whole = b"[DONE]" in self._tail
            self.over.set_result(seen)

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(self.seen)


async def read_cheaply(port: int, model: str) -> Stream:
    body = body_for(model)
    head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    request = head % (PATH.encode(), len(body)) + body
    transport, reader = await asyncio.get_running_loop().create_connection(lambda: Reader(request), "127.0.0.1", port)
    try:
        return await reader.over
    finally:
        transport.close()


@asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=None)
    headers = {"content-type": "application/json"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=timeout, headers=headers
    ) as client:
        yield client


async def per_core(gateway: Process, model: str, streams: int, tokens: int) -> float:
    """Tokens per second of the gateway's CPU time."""
    async with session() as client:
        before = gateway.usage()[0]
        seen = await asyncio.gather(*(read_stream(client, gateway.url, model) for _ in range(streams)))
        cpu_s = gateway.usage()[0] - before
    assert all(s.whole and s.tokens == tokens for s in seen), "tokens were lost"
    return streams * tokens / cpu_s


async def first_token_ms(url: str, model: str) -> list[float]:
    async with session() as client:
        seen = [await read_stream(client, url, model) for _ in range(FIRST_TOKENS)]
    return [(s.first_at - s.asked_at) * 1000 for s in seen[10:]]


async def idle_kb(gateway: Process) -> float:
    """Resident kilobytes per stream that has begun and is silent."""
    async with session() as client, contextlib.AsyncExitStack() as stack:
        for _ in range(20):  # what is allocated once is not a stream's
            response = await stack.enter_async_context(client.post(gateway.url + PATH, data=body_for("up/idle")))
            await response.content.readany()
        before = gateway.usage()[1]
        for _ in range(IDLE_STREAMS):
            response = await stack.enter_async_context(client.post(gateway.url + PATH, data=body_for("up/idle")))
            await response.content.readany()
        return (gateway.usage()[1] - before) / IDLE_STREAMS / 1000


async def many_at_once(gateway: Process) -> tuple[int, int, list[float], float]:
    """Streams that came whole, tokens, when each had its first token (ms, in the order in which they were asked for),
    resident kB per stream at the height."""
    port = int(gateway.url.rpartition(":")[2])
    before = gateway.usage()[1]
    reading: list[asyncio.Task[Stream]] = []
    for _ in range(MANY_STREAMS):
        reading.append(asyncio.create_task(read_cheaply(port, "up/many")))
        await asyncio.sleep(MANY_ARRIVALS_S / MANY_STREAMS)
    height = gateway.usage()[1]
    seen = await asyncio.gather(*reading)
    first = [(s.first_at - s.asked_at) * 1000 for s in seen]
    return sum(s.whole for s in seen), sum(s.tokens for s in seen), first, (height - before) / MANY_STREAMS / 1000


# ── the tables ───────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def processes() -> Iterator[tuple[Process, Process, Process]]:
    upstream = Process("provide")
    gateways = [Process("prototype", upstream.url), Process("ours", upstream.url)]
    try:
        yield upstream, gateways[0], gateways[1]
    finally:
        for process in (*gateways, upstream):
            process.end()


async def alternating(
    rounds: int, bare: Callable[[], Awaitable[float]], full: Callable[[], Awaitable[float]]
) -> tuple[float, float]:
    """The medians of both, measured in turns; the first round warms up."""
    pairs = [(await bare(), await full()) for _ in range(rounds + 1)][1:]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


async def measure() -> list[Table]:
    rates = Table(
        "tokens per second and core, raw model, chat in and out",
        *("load", "streams", "prototype", "tailrace", "tailrace / prototype"),
    )
    rest = Table(
        "one stream's first token, and what an idle one holds", "what", "direct", "prototype", "tailrace", "added"
    )
    many = Table(
        f"{MANY_STREAMS} streams at {1 / MANY_PACE_S:.0f} tokens/s",
        *("whole", "tokens", "lost", "first token ms p50: first 100", "all", "last 100", "kB per stream"),
    )
    with processes() as (_, bare, full):  # fresh ones: what was freed before would hide what is taken
        held = [await idle_kb(gateway) for gateway in (bare, full)]
    with processes() as (upstream, bare, full):
        for name, model, streams, tokens, rounds in (
            ("flat out", "up/flat", FLAT_STREAMS, FLAT_TOKENS, FLAT_ROUNDS),
            (f"paced, {1 / PACE_S:.0f}/s each", "up/paced", PACED_STREAMS, PACED_TOKENS, PACED_ROUNDS),
        ):
            slow, fast = await alternating(
                rounds, partial(per_core, bare, model, streams, tokens), partial(per_core, full, model, streams, tokens)
            )
            rates.row(name, streams, slow, fast, f"{fast / slow:.0%}")
        direct = statistics.median(await first_token_ms(upstream.url, "short"))
        proto = statistics.median(await first_token_ms(bare.url, "up/short"))
        own = statistics.median(await first_token_ms(full.url, "up/short"))
        rest.row("first token, ms p50", f"{direct:.2f}", f"{proto:.2f}", f"{own:.2f}", f"{own - direct:.2f} ms")
        rest.row("idle stream, kB", "-", f"{held[0]:.0f}", f"{held[1]:.0f}", "-")
        whole, tokens, first, kb = await many_at_once(full)
        early, all_of_them, late = (statistics.median(part) for part in (first[:100], first, first[-100:]))
        many.row(whole, tokens, MANY_STREAMS * MANY_TOKENS - tokens, early, all_of_them, late, kb)
    return [rates, rest, many]


def main() -> list[Table]:
    _raise_file_limit()
    return uvloop.run(measure())


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _run(argv: list[str]) -> Any:
    match argv:
        case ["provide"]:
            return uvloop.run(provide())
        case ["prototype", base]:
            return uvloop.run(prototype(base))
        case ["ours", base]:
            return uvloop.run(ours(base))
        case _:
            for table in main():
                print(f"{table}\n")
            return None


if __name__ == "__main__":
    _run(sys.argv[1:])
