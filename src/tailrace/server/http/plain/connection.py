"""A connection that brings plain requests, until it brings something else.

Owns the short way between a socket and the request pipeline. A plain request becomes one task. Its head can be read in
one way only: a request line that is known to the letter, HTTP/1.1, each header once and within the grammar of RFC 9110
(5.1, 5.5), the host among them, a body of a given length that is neither encoded nor announced. The library's way takes
ten kilobytes a stream. The first bytes that are not plain, or not all there soon, go to a connection of the library,
with everything after them: nothing is refused here. A handler sees no difference.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar, cast

import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import RawRequestMessage, StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from tailrace.app.http_connection import HttpConnection, failure_response
from tailrace.app.telemetry.logging_setup import PEERS
from tailrace.server.http.body_budget import FREE_BYTES
from tailrace.server.http.plain.file_limit import FileLimit
from tailrace.server.http.response_head import NO_HEADERS, StreamSent
from tailrace.system.private_apis import fill_request, request_count, set_writer

REST_S: Final = 0.1  # for a body that has begun to arrive: many clients send head and body by two writes
T = TypeVar("T")
MAX_HEAD_BYTES: Final = 8_192
MAX_FIELDS: Final = 64
MAX_BODY_BYTES: Final = FREE_BYTES  # of bodies that the budget does not count
MAX_WAITING_BYTES: Final = MAX_HEAD_BYTES + MAX_BODY_BYTES  # of requests behind the one that is being answered
# `*+` never gives a space back: the value's pattern takes spaces too, and each way to share them would be tried (L140).
_FIELD: Final = re.compile(
    r"^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*+((?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)[ \t]*\r\n", re.MULTILINE
)
_NAME: Final = re.compile(r"^([^:\n]+)", re.MULTILINE)  # of a text of fields alone
_LENGTH: Final = re.compile(r"[0-9]{1,6}")
_NEEDED: Final = frozenset({"host", "content-length"})  # RFC 9112, 3.2: a request without a Host is refused
_NOT_PLAIN: Final = frozenset(
    {"transfer-encoding", "content-encoding", "expect", "upgrade", "trailer", "te", "proxy-connection"}
)
_KEPT: Final = {"keep-alive": True, "close": False}


class PlainHead(msgspec.Struct, Generic[T], frozen=True):
    """`target`: what the request line stands for. The request is the bytes to `end`, its body those from `body_at`."""

    target: T
    headers: CIMultiDictProxy[str]
    keep_alive: bool
    body_at: int
    end: int


def parse_plain_head(data: bytes, targets: Mapping[bytes, T]) -> PlainHead[T] | None:
    """The head at the beginning of these bytes; None where it is not plain or not whole. `targets` by request line."""
    line_end = data.find(b"\r\n")
    target = targets.get(data[:line_end])
    head_end = data.find(b"\r\n\r\n", line_end, MAX_HEAD_BYTES)
    if target is None or head_end < 0:
        return None
    text = data[line_end + 2 : head_end + 2].decode("utf-8", "surrogateescape")
    count = len(fields := _FIELD.findall(text))
    if count != text.count("\n") or count > MAX_FIELDS:
        return None  # a line is no field
    names = set(_NAME.findall(text.lower()))
    if len(names) != count or not names.isdisjoint(_NOT_PLAIN) or not names >= _NEEDED:
        return None
    headers = CIMultiDict(fields)
    length = headers["Content-Length"]
    kept = _KEPT.get(headers["Connection"].lower()) if "connection" in names else True
    if kept is None or _LENGTH.fullmatch(length) is None or (body_bytes := int(length)) > MAX_BODY_BYTES:
        return None
    return PlainHead(target, CIMultiDictProxy(headers), kept, head_end + 4, head_end + 4 + body_bytes)


class PlainTarget(NamedTuple):
    """What answers requests with one request line."""

    kept: RawRequestMessage  # of a request whose connection stays open; without headers
    closed: RawRequestMessage
    match_info: web.UrlMappingMatchInfo
    serve: Callable[[web.Request], Awaitable[web.StreamResponse]]

    @classmethod
    def of(
        cls,
        method: str,
        path: str,
        match_info: web.UrlMappingMatchInfo,
        serve: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> tuple[bytes, PlainTarget]:
        """The request line, and what it stands for."""
        kept, closed = (
            RawRequestMessage(method, path, HttpVersion11, NO_HEADERS, (), should_close, None, False, False, URL(path))
            for should_close in (False, True)
        )
        return f"{method} {path} HTTP/1.1".encode(), cls(kept, closed, match_info, serve)


class PlainConnections:
    """What the connections of one listener share. `headers_s`, `idle_s`: as `ConnectionLimits` has them."""

    def __init__(
        self,
        targets: Mapping[bytes, PlainTarget],
        new_connection: Callable[[], HttpConnection],
        *,
        headers_s: float,
        idle_s: float,
        max_body_bytes: int,
        file_limit: FileLimit,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.targets = targets
        self.new_connection = new_connection
        self.headers_s = headers_s
        self.first_s = min(headers_s, idle_s)
        self.idle_s = idle_s
        self.file_limit = file_limit
        # A connection of ours has what a request needs of one; the library's annotation names its own class.
        self.new_request = partial(cast("Callable[..., web.Request]", web.Request), client_max_size=max_body_bytes)
        self.context = copy_context()  # of every request, whatever the one before it has set
        self.open: set[PlainConnection] = set()

    def connect(self) -> PlainConnection:
        return PlainConnection(self)

    async def close(self, timeout_s: float = 1.0) -> None:
        """Waits for answers that are being written, then closes every connection."""
        if tasks := [task for connection in self.open if (task := connection.task) is not None]:
            await asyncio.wait(tasks, timeout=timeout_s)
        for connection in tuple(self.open):
            connection.close()


class PlainConnection(BaseProtocol):
    """One connection; one request at a time, those behind it wait in the buffer."""

    __slots__ = (
        *("_buffer", "_full", "_idle_since", "_needed", "_rest_timer", "_shared", "_timer", "_used"),
        *("output_size", "task"),
    )

    ssl_context = peername = sockname = None  # a client is known neither by TLS nor by its address

    def __init__(self, shared: PlainConnections) -> None:
        super().__init__(shared.loop)
        self._shared = shared
        self._timer: asyncio.TimerHandle | None = None  # ends a connection that is silent for too long
        self.task: asyncio.Task[None] | None = None  # answers a request
        self.output_size = 0  # of an answer that has begun
        self._idle_since = shared.loop.time()
        self._used = False  # a request has come
        self._buffer = b""
        self._full = False  # reading is paused
        self._needed = 0  # bytes of a request of which the buffer has the beginning
        self._rest_timer: asyncio.TimerHandle | None = None

    # ── the socket ───────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._shared.file_limit.refuses(stream := cast("asyncio.Transport", transport)):
            return
        self.transport = stream
        self._shared.open.add(self)
        self._timer = self._shared.loop.call_at(self._idle_since + self._shared.first_s, self._on_timer)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._leave()
        if self.task is not None:
            self.task.cancel()  # a disconnect ends the request, also while nothing is written (F68)

    def data_received(self, data: bytes) -> None:
        if self.task is None and not self._buffer:
            self._take(data)
            return
        self._buffer += data
        if self.task is None:
            if len(self._buffer) >= self._needed:
                self._take_buffer()
        elif len(self._buffer) > MAX_WAITING_BYTES and self.transport is not None and not self._full:
            self._full = True
            self.transport.pause_reading()

    def _on_timer(self) -> None:
        """Ends a connection whose first request's head does not come (J126), and one that has been idle for long."""
        now = self._shared.loop.time()
        due = (now if self.task is not None else self._idle_since) + self._shared.idle_s
        if self.transport is not None and not self._used:
            self.transport.abort()
        elif due <= now:
            self.close()
        else:
            self._timer = self._shared.loop.call_at(due, self._on_timer)

    def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.transport is not None:
            self.transport.close()

    def _leave(self) -> None:
        """The shared part forgets this connection."""
        self._shared.open.discard(self)
        for timer in (self._timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._rest_timer = None

    async def drain(self) -> None:
        """For a stream, to which the connection is its own writer: returns when the client has taken enough."""
        await self._drain_helper()

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, data: bytes) -> None:
        """Begins the next request where all its bytes are here; keeps them, or hands over, where they are not."""
        head = parse_plain_head(data, self._shared.targets)
        if head is None:
            self._hand_over(data)
            return
        shared, target = self._shared, head.target
        if len(data) < head.end:
            self._buffer, self._needed = data, head.end
            self._rest_timer = shared.loop.call_later(REST_S, self._hand_over_buffer)
            return
        self._used = True
        self.output_size = 0
        if rest := data[head.end :]:
            self._buffer = rest
        message = target.kept if head.keep_alive else target.closed
        request = shared.new_request(message, EMPTY_PAYLOAD, self, self, None, shared.loop)
        fill_request(request, head.headers, target.match_info, data[head.body_at : head.end])
        answer = self._answer(request, target.serve)
        self.task = shared.loop.create_task(answer, context=shared.context.copy())

    def _take_buffer(self) -> None:
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None
        data, self._buffer = self._buffer, b""
        self._take(data)

    async def _answer(
        self, request: web.Request, serve: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> None:
        kept = False
        try:
            try:
                response = await serve(request)
            except ConnectionError:
                return  # the client has gone
            except Exception as exc:  # noqa: BLE001 - the top of a task: it is logged, and the client is told
                response = failure_response(request, 500, exc)
            if not isinstance(response, StreamSent):
                set_writer(request, StreamWriter(self, self._shared.loop))
                await response.prepare(request)
                await response.write_eof()
            kept = bool(response.keep_alive)
        except (ConnectionError, asyncio.CancelledError):
            # Nothing waits for this task. As its result, the exception would be in a cycle with the task (L148).
            PEERS.debug("a client has gone before its answer")
        except Exception:  # noqa: BLE001 - as above
            PEERS.exception("an answer cannot be sent")
        finally:
            self.task = None
            self._go_on(kept=kept)

    def _go_on(self, *, kept: bool) -> None:
        """An answer has been sent, or given up."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if not kept:
            transport.close()
            return
        self._idle_since = self._shared.loop.time()
        if self._full:
            self._full = False
            transport.resume_reading()
        if self._buffer:
            self._shared.context.copy().run(self._take_buffer)  # not in this request's context

    # ── the HTTP library ─────────────────────────────────────────────────────────────────────────────────────

    def _hand_over_buffer(self) -> None:
        self._rest_timer = None
        data, self._buffer = self._buffer, b""
        self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        """The library has this connection from here on, and these bytes first."""
        transport, shared = self.transport, self._shared
        if transport is None:
            return
        self._leave()
        connection = shared.new_connection()
        if not self._used:
            due = self._idle_since + shared.headers_s
            shared.loop.call_at(due, abort_if_silent, connection)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self.writing_paused:
            connection.pause_writing()
        self.transport = None
        connection.data_received(data)


def abort_if_silent(connection: HttpConnection) -> None:
    """For a connection of the library's that should have brought a whole head by now (J126)."""
    if request_count(connection) == 0 and connection.transport is not None:
        connection.transport.abort()
