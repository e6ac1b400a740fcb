"""One client's connection to the misbehaving provider: requests in, one after the other, and their responses out.

It stands on asyncio's own protocols and not on an HTTP server, since what it must do no server allows: end a body
at any byte with or without its terminator, close before the status line, reset, shut one side only, and notice at
once that the client has left while it says nothing itself.

Time is the loop's alone, so a driven clock drives it; a stall waits for the client and for nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol, cast

import msgspec
from msgspec.structs import replace

from tailrace.messages import Dialect, JsonObject
from tailrace.testing.provider.compose import COMMENT, Response, compose, counted, failed, models
from tailrace.testing.provider.http import BadRequest, HttpRequest, RequestReader
from tailrace.testing.provider.kept import KeptResponses
from tailrace.testing.provider.scenario import Break, Scenario, UnknownScenario
from tailrace.testing.scripted.failures import BY_STATUS, INVALID, Failure
from tailrace.testing.scripted.reply import Reply
from tailrace.testing.scripted.request_reader import ScriptedRequest, scripted_request

KEEP_ALIVE_S = 5.0  # between the keep-alives of a scenario that sends them for ever
_ROUTES: dict[str, Dialect] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "anthropic",
}
_COUNT_ROUTES: dict[str, Dialect] = {
    "/v1/responses/input_tokens": "responses",
    "/v1/messages/count_tokens": "anthropic",
}
_FLOOD = b"x" * 65536


@dataclass
class RecordedRequest:
    """A request that came, and what became of it. Times are the loop's."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    connection: int  # which connection it came on, counted from 0
    received_at: float
    query: str = ""
    scenario: str = ""
    refusal: str = ""  # why a strict provider refused it
    bytes_sent: int = 0  # of the response body
    finished_at: float | None = None  # when the server had sent all that it meant to send
    disconnected_at: float | None = None  # when the client was seen to leave before that
    over: asyncio.Event = field(default_factory=asyncio.Event)  # set with either of the two

    def json(self) -> JsonObject:
        decoded: JsonObject = msgspec.json.decode(self.body)
        return decoded


class ConnectionHost(Protocol):
    """The provider, as one of its connections needs it."""

    def joined(self, connection: Connection, task: asyncio.Task[None]) -> int:
        """Counts the connection; returns its number."""

    def left(self, connection: Connection) -> None: ...

    async def record(self, request: RecordedRequest) -> None: ...

    def model_names(self) -> list[str]:
        """What `GET /v1/models` lists."""

    def refusal(self, request: ScriptedRequest, headers: Mapping[str, str], counting: bool, /) -> Failure | None:
        """Why the vendor's API would not take the request."""

    def choose(self, request: ScriptedRequest) -> Scenario:
        """What to answer. Raises `UnknownScenario`."""

    def signed(self, reply: Reply, request: ScriptedRequest, /) -> Reply:
        """The reply as it leaves the provider."""

    def choose_for_kept(self) -> Scenario:
        """How to deliver a response that is kept."""

    @property
    def kept(self) -> KeptResponses: ...

    @property
    def flowing(self) -> asyncio.Event:
        """Cleared while answers are to wait before their next piece."""


class Connection(asyncio.Protocol):
    """The protocol of one connection, and the task that answers on it."""

    def __init__(self, host: ConnectionHost) -> None:
        self._host = host
        self._reader = RequestReader()
        self._inbox: asyncio.Queue[HttpRequest] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self._current: RecordedRequest | None = None
        self._number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(0)  # a write that returned is with the kernel
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._serve())
        self._number = self._host.joined(self, self._task)

    def data_received(self, data: bytes) -> None:
        try:
            requests = self._reader.feed(data)
        except BadRequest as exc:
            refusal = Response(400, "text/plain", (str(exc).encode(),), {"connection": "close"})
            self._transport.write(_head(refusal) + refusal.pieces[0])
            self._transport.close()
            return
        if self._reader.expects_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        for request in requests:
            self._inbox.put_nowait(request)

    def eof_received(self) -> None:
        self._gone()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._gone()
        self._writable.set()
        self._host.left(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def abort(self) -> None:
        self._transport.abort()

    def _gone(self) -> None:
        """The client has left: whatever is being played to it ends now."""
        if self._current is not None and not self._current.over.is_set():
            self._current.disconnected_at = self._loop.time()
            self._current.over.set()
        self._task.cancel()

    async def _serve(self) -> None:
        going_on = True
        while going_on:
            going_on = await self._answer(await self._inbox.get())
        self._transport.close()

    async def _answer(self, request: HttpRequest) -> bool:
        """Whether the connection can be used again."""
        record = RecordedRequest(
            request.method, request.path, request.headers, request.body, self._number, self._loop.time(), request.query
        )
        self._current = record
        played, response = self._respond(request, record)
        await self._host.record(record)
        reusable = await self._play(played, response, record) and request.keeps_alive
        record.finished_at = self._loop.time()
        record.over.set()
        return reusable

    def _respond(self, request: HttpRequest, record: RecordedRequest) -> tuple[Scenario, Response]:
        if request.path == "/v1/models" and request.method == "GET":
            anthropic = "anthropic-version" in request.headers  # their clients always send it
            return Scenario(), models(self._host.model_names(), anthropic=anthropic)
        if self._host.kept.is_asked_for(request):
            chosen = Scenario() if request.method == "POST" else self._host.choose_for_kept()
            record.scenario = chosen.name
            return chosen, self._host.kept.respond(request, chosen)
        counts = _COUNT_ROUTES.get(request.path)
        dialect = counts or _ROUTES.get(request.path)
        if dialect is None or request.method != "POST":
            missing = Failure(404, f"no route {request.method} {request.path}", INVALID, "not_found_error")
            return Scenario(), failed(missing, "chat", scripted_request("chat", {}))
        try:
            body = msgspec.json.decode(request.body, type=dict)
        except msgspec.MsgspecError:
            return Scenario(), failed(BY_STATUS[400], dialect, scripted_request(dialect, {}))
        scripted = scripted_request(dialect, body)
        refusal = self._host.refusal(scripted, request.headers, counts is not None)
        if refusal is not None:
            record.refusal = refusal.message
            return Scenario(), failed(refusal, dialect, scripted)
        if counts is not None:
            return Scenario(), counted(counts, request.body)
        return self._chosen(scripted, record)

    def _chosen(self, scripted: ScriptedRequest, record: RecordedRequest) -> tuple[Scenario, Response]:
        try:
            chosen = self._host.choose(scripted)
            chosen = replace(chosen, reply=self._host.signed(chosen.reply, scripted))
            record.scenario = chosen.name
            if chosen.streams_only and not scripted.streamed:
                chosen = Scenario(name=chosen.name, reply=chosen.reply, refuses=chosen.refuses)
            response = compose(chosen, scripted.dialect, scripted)
        except UnknownScenario as exc:
            unknown = Failure(404, str(exc), INVALID, "not_found_error", "model_not_found", "model")
            return Scenario(), failed(unknown, scripted.dialect, scripted)
        if scripted.dialect == "responses" and response.status == 200:
            self._host.kept.keep(chosen, scripted)
        return chosen, response

    # playing a response

    async def _play(self, played: Scenario, response: Response, record: RecordedRequest) -> bool:
        if played.headers_after_s:
            await asyncio.sleep(played.headers_after_s)
        if played.instead == "silence":
            await self._stall()
        if played.instead == "drop":
            return False
        stop = _stop_at(played.broken, response) if played.broken else response.size
        await self._write(_head(response))
        for piece in _cut_up(response.pieces, stop, played.write_bytes):
            if played.pace_s and record.bytes_sent:
                await asyncio.sleep(played.pace_s)
            await self._host.flowing.wait()
            await self._send(piece, response, record)
            await asyncio.sleep(0)  # lets the client read each write by itself
        if played.broken and not (played.broken.kind == "end" and response.chunked):
            await self._break(played.broken, response, record)
            return False
        if response.chunked:
            await self._write(b"0\r\n\r\n")
        return True

    async def _break(self, broken: Break, response: Response, record: RecordedRequest) -> None:
        match broken.kind:
            case "cut" | "end":
                return
            case "reset":
                sock: socket.socket = self._transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._transport.abort()
            case "stall":
                await self._stall()
            case "half-close":
                self._transport.write_eof()
                await self._stall()
            case "pings" | "comments":
                while True:
                    await self._send(COMMENT if broken.kind == "comments" else response.keep_alive, response, record)
                    await asyncio.sleep(KEEP_ALIVE_S)
            case "endless-line":
                await self._send(b"data: ", response, record)
                while True:
                    await self._send(_FLOOD, response, record)
                    await asyncio.sleep(0)

    async def _stall(self) -> None:
        """Says nothing more until the client leaves, which cancels this."""
        await self._loop.create_future()

    async def _send(self, piece: bytes, response: Response, record: RecordedRequest) -> None:
        record.bytes_sent += len(piece)
        await self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if response.chunked else piece)

    async def _write(self, data: bytes) -> None:
        self._transport.write(data)
        await self._writable.wait()


def _stop_at(broken: Break, response: Response) -> int:
    """The byte at which the break happens; what must not tear an event waits for the end of one."""
    at = broken.at.within(response.size) if broken.at is not None else len(response.pieces[0])
    if broken.kind not in ("pings", "comments", "endless-line"):
        return at
    ends = accumulate(map(len, response.pieces))
    return max((end for end in ends if end <= at), default=0)


def _cut_up(pieces: tuple[bytes, ...], stop: int, write_bytes: int) -> Iterator[bytes]:
    """The first `stop` bytes, in the writes they are sent in."""
    if write_bytes:
        body = b"".join(pieces)
        pieces = tuple(body[at : at + write_bytes] for at in range(0, len(body), write_bytes))
    for piece in pieces:
        if sent := piece[: max(0, stop)]:
            yield sent
        stop -= len(piece)


def _head(response: Response) -> bytes:
    length = {"transfer-encoding": "chunked"} if response.chunked else {"content-length": str(response.size)}
    headers = {"content-type": response.content_type, **response.headers, **length}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {response.status} {'OK' if response.status == 200 else 'Error'}\r\n{lines}\r\n".encode()
