"""A server over real sockets relays a stream the same with the extension and without it, whatever happens to it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from providers.http.test_relayed_events import chat_events
from providers.transport.raw_servers import raw_server, read_request
from relay.test_same_as_python import HEAD, LAST_CHUNK, without_framing
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.ports import Run
from tailrace.providers.http import streamed_answer
from tailrace.providers.transport.http1_transport import Http1Transport
from tailrace.server.app import serving
from tailrace.server.metrics.call_metrics import count_attempts, count_calls, count_runs
from tailrace.server.metrics.registry import Metrics
from tailrace.system.private_apis import http_chunk
from tailrace.wire.sse import SseDecoder

KEY = "sk-own-secret-of-ours"
WORDS = [f"word-{number} " for number in range(60)]
SAID = "".join(WORDS)
END = b"\r\n" + LAST_CHUNK


class Answering:
    """A request that has come to the provider: the test sends what it answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.connection = writer
        self.closed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def send(self, *data: bytes) -> None:
        self._writer.write(b"".join(data))

    async def left(self) -> None:
        """Returns when the server has closed its end."""
        assert await asyncio.wait_for(self._reader.read(), 10) == b""

    def end(self, *, close: bool) -> None:
        self.closed.set_result(close)


class Client:
    """Asks for a stream and reads it, or does not."""

    def __init__(self, port: int, *, receive_bytes: int = 0) -> None:
        self._socket = socket.socket()
        if receive_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setblocking(False)
        self.received = b""

    async def ask(self) -> None:
        body = msgspec.json.encode(
            {"model": "one/any", "stream": True, "messages": [{"role": "user", "content": "Go."}]}
        )
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.received = b""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async def read(self, most: int) -> None:
        data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._socket, most), 10)
        assert data, self.received[-2000:]
        self.received += data

    async def until(self, text: bytes) -> None:
        while text not in self.received:
            await self.read(1 << 20)

    def text(self) -> str:
        """What the stream has said so far."""
        _, _, body = self.received.partition(b"\r\n\r\n")
        said = []
        for event in SseDecoder().feed(without_framing(body)):
            if event.data != b"[DONE]":
                said += [choice["delta"].get("content") or "" for choice in msgspec.json.decode(event.data)["choices"]]
        return "".join(said)

    def leave(self) -> None:
        self._socket.close()


class Served:
    """The server with two providers, and its client."""

    def __init__(self, url: str, app: App, metrics: Metrics, asked: asyncio.Queue[Answering]) -> None:
        self.url, self.app, self.metrics, self._asked = url, app, metrics, asked
        self.clients: list[Client] = []
        self.answers: list[Answering] = []

    async def answering(self) -> Answering:
        self.answers.append(await asyncio.wait_for(self._asked.get(), 10))
        return self.answers[-1]

    def client(self, *, receive_bytes: int = 0) -> Client:
        self.clients.append(Client(int(self.url.rpartition(":")[2]), receive_bytes=receive_bytes))
        return self.clients[-1]

    def attached(self) -> int:
        """Streams whose sockets the extension has."""
        return sum(transport.poller.attached for transport in OPENED if transport.poller is not None)

    async def begin(self, client: Client, words: int = 10) -> Answering:
        """A stream whose first words have reached the client, one by one."""
        await client.ask()
        answering = await self.answering()
        events = chat_events(WORDS)
        answering.send(HEAD, http_chunk(events[0]))
        for word, event in zip(WORDS[:words], events[1:], strict=False):
            answering.send(http_chunk(event))
            await client.until(word.encode())
        return answering

    async def go_on(self, client: Client, answering: Answering, words: slice) -> None:
        for word, event in zip(WORDS[words], chat_events(WORDS)[1:-2][words], strict=True):
            answering.send(http_chunk(event))
            await client.until(word.encode())

    async def ended(self) -> Run:
        """The run of the call, once it is on record."""
        while True:
            runs = await self.app.journal.runs(kind="call")
            if runs and runs[0].finished is not None:
                return runs[0]
            await asyncio.sleep(0)

    def gaps(self) -> float:
        """How many times between two tokens were counted."""
        counted = self.metrics.inter_token
        return sum(counted.cells[at] for at in range(len(counted.bounds) + 1))

    async def recorded(self) -> str:
        return str([entry.event for entry in await self.app.journal.read((await self.ended()).id)])


OPENED: list[Http1Transport] = []


@pytest.fixture(autouse=True)
def opened_transports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The pools of connections that a test opens."""
    made = Http1Transport.__init__

    def note(self: Http1Transport, *args: Any) -> None:
        made(self, *args)
        OPENED.append(self)

    monkeypatch.setattr(Http1Transport, "__init__", note)
    yield
    OPENED.clear()


@asynccontextmanager
async def server(home: Path, **call: Any) -> AsyncGenerator[Served, None]:
    asked: asyncio.Queue[Answering] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            answering = Answering(reader, writer)
            asked.put_nowait(answering)
            if await answering.closed:
                return

    async with raw_server(answer) as url:
        provider = {"dialect": "chat", "base_url": url, "key_env": "PROVIDER_KEY"}
        config = {
            "model": {"provider": "one", "name": "any", "fallbacks": [{"provider": "two", "name": "any"}]},
            "providers": {"one": provider, "two": provider},
            "call": {"max_attempts": 1, "backoff_s": 0.001, "backoff_max_s": 0.002, "idle_timeout_s": 20, **call},
            "server": {"drain_s": 0.05},
        }
        (home / "config.yaml").write_bytes(msgspec.json.encode(config))
        metrics = Metrics()
        async with (
            open_app(
                load({"HOME": str(home), "PROVIDER_KEY": KEY}, home),
                directory=home,
                middleware=[count_calls(metrics)],
                observers=[count_attempts(metrics)],
                on_end=count_runs(metrics),
            ) as app,
            serving(app, port=0, metrics=metrics) as served,
        ):
            yield (running := Served(served.url, app, metrics, asked))
        for answering in running.answers:
            if not answering.closed.done():
                answering.end(close=True)
        for client in running.clients:
            client.leave()


def rest_of(words: list[str]) -> bytes:
    """The end of an answer whose last words these are."""
    return b"".join(map(http_chunk, chat_events(words)[1:])) + LAST_CHUNK


async def test_a_stream_is_recorded_and_counted_and_its_connection_used_again(tmp_path: Path, relays_in: str) -> None:
    async with server(tmp_path) as served:
        client = served.client()
        answering = await served.begin(client)
        assert served.attached() == (relays_in == "C")
        await served.go_on(client, answering, slice(10, 60))
        assert served.attached() == (relays_in == "C")
        answering.send(rest_of([]))
        await client.until(END)
        answering.end(close=False)
        assert client.text() == SAID
        assert served.attached() == 0
        run = await served.ended()
        assert run.finished is not None
        assert (run.finished.status, run.finished.output) == ("completed", SAID)
        assert SAID in (await served.recorded()).replace("', '", "")
        assert served.gaps() >= 59
        again = await served.begin(client)
        assert again.connection is answering.connection
        again.send(rest_of([]))
        await client.until(END)
        again.end(close=True)


async def test_many_streams_at_once_each_have_their_own_words(tmp_path: Path, relays_in: str) -> None:
    async with server(tmp_path) as served:
        clients = [served.client() for _ in range(20)]
        answers = [await served.begin(client) for client in clients]
        assert served.attached() == (20 if relays_in == "C" else 0)
        for number, answering in enumerate(answers):
            answering.send(http_chunk(chat_events([f"of {number}"])[1]))
        for number, (client, answering) in enumerate(zip(clients, answers, strict=True)):
            await client.until(b"of %d" % number)
            answering.send(rest_of([]))
            await client.until(END)
            answering.end(close=True)
            assert client.text() == "".join(WORDS[:10]) + f"of {number}"
        assert served.attached() == 0


@pytest.mark.parametrize("how", ["closed", "reset", "inside an event"])
async def test_a_stream_that_is_cut_goes_on_at_the_fallback(tmp_path: Path, relays_in: str, how: str) -> None:
    async with server(tmp_path) as served:
        client = served.client()
        answering = await served.begin(client)
        if how == "inside an event":
            answering.send(http_chunk(chat_events(["lost"])[1])[:50])
        elif how == "reset":
            cut = answering.connection.get_extra_info("socket")
            cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        answering.end(close=True)
        second = await served.answering()
        assert served.attached() == 0
        second.send(HEAD, rest_of(WORDS[10:]))
        await client.until(END)
        second.end(close=True)
        assert client.text() == SAID
        assert [run.finished.status for run in [await served.ended()] if run.finished] == ["completed"]
        assert served.metrics.failovers.cells_of("two")[0] == 1


async def test_a_client_that_leaves_ends_the_call(tmp_path: Path, relays_in: str) -> None:
    async with server(tmp_path) as served:
        client = served.client()
        answering = await served.begin(client, words=30)
        client.leave()
        await answering.left()
        answering.end(close=True)
        run = await served.ended()
        assert served.attached() == 0
        assert run.finished is not None
        assert run.finished.status != "completed"
        assert "word-29" in await served.recorded()


async def test_a_client_that_does_not_read_for_a_while_loses_nothing(tmp_path: Path, relays_in: str) -> None:
    """Its socket is full: what comes then waits in the transport, in order."""
    words = [f"{number:06} " + "x" * 2000 for number in range(1200)]
    async with server(tmp_path) as served:
        client = served.client(receive_bytes=1 << 16)
        answering = await served.begin(client)
        for number, event in enumerate(chat_events(words)[1:-2]):
            answering.send(http_chunk(event))
            await asyncio.sleep(0)
            if number > 600:  # its socket has room now and then
                await client.read(4096)
        answering.send(rest_of(["the end"]))
        await client.until(END)
        answering.end(close=True)
        assert client.text() == "".join([*WORDS[:10], *words, "the end"])
        assert served.attached() == 0


async def test_a_provider_that_falls_silent_is_given_up(tmp_path: Path, relays_in: str) -> None:
    """Words that were relayed count as life; then none come."""
    async with server(tmp_path, idle_timeout_s=0.5) as served:
        client = served.client()
        answering = await served.begin(client, words=30)
        second = await served.answering()
        await answering.left()
        answering.end(close=True)
        assert served.attached() == 0
        second.send(HEAD, rest_of(WORDS[30:]))
        await client.until(END)
        second.end(close=True)
        assert client.text() == SAID


async def test_j114_a_key_that_the_provider_repeats_is_not_relayed(tmp_path: Path, relays_in: str) -> None:
    async with server(tmp_path) as served:
        client = served.client()
        answering = await served.begin(client)
        for piece in ("it is ", KEY[:9], KEY[9:], " indeed"):
            answering.send(http_chunk(chat_events([piece])[1]))
            await asyncio.sleep(0.01)
        await served.go_on(client, answering, slice(10, 20))
        answering.send(rest_of([]))
        await client.until(END)
        answering.end(close=True)
        assert client.text() == "".join(WORDS[:10]) + "it is [redacted] indeed" + "".join(WORDS[10:20])
        assert KEY not in await served.recorded()


async def test_what_is_relayed_is_recorded_while_the_stream_goes_on(
    tmp_path: Path, relays_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each word is due at once: the log has it before the next one comes, and it is still relayed."""
    monkeypatch.setattr(streamed_answer, "RELAYED_EVERY_S", 0.0)
    async with server(tmp_path) as served:
        client = served.client()
        answering = await served.begin(client, words=40)
        assert served.attached() == (relays_in == "C")
        assert served.gaps() >= 38
        answering.send(rest_of(WORDS[40:]))
        await client.until(END)
        answering.end(close=True)
        assert client.text() == SAID


async def test_a_server_that_stops_lets_go_of_every_socket(tmp_path: Path, relays_in: str) -> None:
    async with server(tmp_path) as served:
        await served.begin(served.client())
    assert served.attached() == 0
