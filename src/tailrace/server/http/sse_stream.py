"""One stream of server-sent events to one client: the only path by which events reach a socket.

Owns the bytes on the connection, the keep-alive comments and the deadline for clients that do not read. A send is one
write into the transport, which buffers what the socket cannot take. The head leaves with the first events and the end
of the body with the last ones, because each write is a system call. Knows no event and no dialect: `wire.sse` encodes
events, and refuses what could break out of one (J121). A disconnect, and dropping a client that does not read, cancel
the request's handler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import msgspec
from aiohttp import HttpVersion11, web

from tailrace.ports import Frame, LogPage
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.response_head import CONNECTION_CLOSED, CONNECTION_KEPT, NO_HEADERS
from tailrace.system.private_apis import HTTP_CHUNK, http_chunk, is_writing_paused, set_headers

_NOTHING: Final = -(1 << 62)
PIECE_BYTES: Final = 1 << 18  # of an event that is longer than this
LOOK_BYTES: Final = 1 << 14  # shared pages, between two looks at whether the client is behind
KEEP_ALIVE: Final = b": keep-alive\n\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
ErrorFrame: TypeAlias = Callable[[ApiError], bytes]


class StreamTiming(msgspec.Struct, frozen=True):
    """`silence_s`: a keep-alive comment follows so much silence (H92); `ping_s`: so does the dialect's own ping, where
    it has one (N163). `stuck_s`: a client that takes no byte for so long is dropped, at the latest after twice that
    (F73). `max_pending_bytes`: so is one with more buffered. `socket_s`: the age at which a web socket is closed."""

    silence_s: float = 15.0
    ping_s: float = 10.0
    stuck_s: float = 15.0
    max_pending_bytes: int = 8 << 20
    socket_s: float = 3600.0


class StreamMaker(Protocol):
    """What makes streams: the request pipeline."""

    @property
    def stream_timing(self) -> StreamTiming: ...

    def stream_head(self, request: web.Request, headers: Mapping[str, str] | None) -> bytes:
        """The response's head, when it is sent: what it says may be known only then."""

    def stream_failure(self, request: web.Request, error: ApiError, error_frame: ErrorFrame | None) -> bytes:
        """The event that ends a failed stream."""


class EventStream:
    """The response of one streaming request. The pipeline makes and closes it.

    The head is sent by `begin`, by the first `send`, or after the first silence. Until then an exception of the
    handler becomes a status (D52); from then on an error event (H94).
    """

    __slots__ = (
        *("_chunked", "_error_frame", "_frame", "_headers", "_inside_event", "_keep_alive", "_last_sent", "_look_at"),
        *("_loop", "_maker", "_max_pending_bytes", "_protocol", "_request", "_silence_s", "_taken", "_timer"),
        *("_transport", "_written"),
    )

    def __init__(
        self,
        maker: StreamMaker,
        request: web.Request,
        loop: asyncio.AbstractEventLoop,
        *,
        error_frame: ErrorFrame | None = None,
        headers: Mapping[str, str] | None = None,
        ping: bytes = b"",
    ) -> None:
        """`ping`: the dialect's own event for a silent stream."""
        self._maker = maker
        self._request = request
        self._headers = headers
        self._protocol = request.protocol
        self._error_frame = error_frame
        self._loop = loop
        self._transport: asyncio.Transport | None = None  # known once the head is sent
        self._chunked = True
        self._written = 0
        self._look_at = 0  # at so many bytes written
        self._inside_event = False  # the client has a part of an event
        self._taken = _NOTHING  # bytes that the socket had taken at the last timer
        timing = maker.stream_timing
        self._keep_alive, self._silence_s = (ping, timing.ping_s) if ping else (KEEP_ALIVE, timing.silence_s)
        self._max_pending_bytes = timing.max_pending_bytes
        self._last_sent = loop.time()
        self._timer = loop.call_at(self._last_sent + self._silence_s, self._on_timer)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def begun(self) -> bool:
        """The head is sent: an error can no longer be a status."""
        return self._transport is not None

    @property
    def gone(self) -> bool:
        """The client has disconnected."""
        transport = self._protocol.transport
        return transport is None or transport.is_closing()

    def begin(self) -> None:
        """Sends the head now; a no-op once it is sent."""
        self._send_first(b"")

    def _take_head(self) -> bytes:
        """The head, where it is not sent yet and the client is there: the caller sends it now."""
        transport = self._protocol.transport
        if transport is None or transport.is_closing():
            return b""
        head = self._maker.stream_head(self._request, self._headers)
        set_headers(self._request, NO_HEADERS)  # they have been read
        self._chunked = self._request.version >= HttpVersion11  # before it, a body ends with its connection
        self._transport = transport
        self._request.writer.output_size += len(head)  # for the library: the answer has begun
        self._last_sent = self._loop.time()
        return head

    def send(self, data: bytes) -> None:
        """Sends whole events, all that there are at once. Never waits and never raises; a no-op once the client has
        disconnected. A client with more than `max_pending_bytes` buffered is dropped."""
        transport = self._transport
        if transport is None:
            self._send_first(data)
            return
        if not data or transport.is_closing():
            return  # an empty chunk ends the body
        if self._chunked:
            data = HTTP_CHUNK % (len(data), data)
        transport.write(data)
        self._written += len(data)
        self._last_sent = self._loop.time()
        if transport.get_write_buffer_size() > self._max_pending_bytes:
            self.drop()

    def write_between(self, prefix: bytes, suffix: bytes) -> Callable[[bytes], float]:
        """For events that differ in what stands between these bytes alone: sends one, and returns the time."""
        return WriteBetween(self.send, prefix, suffix, self._transport, self._chunked)

    def _send_first(self, data: bytes, end: bytes = b"") -> None:
        """The head, where it is not sent, and these events in one write; `end`: the end of the body too."""
        head = self._take_head() if self._transport is None else b""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._chunked:
            data = HTTP_CHUNK % (len(data), data) + end if data else end
        if sent := head + data:
            transport.write(sent)
            self._written += len(sent)
            self._last_sent = self._loop.time()
        if transport.get_write_buffer_size() > self._max_pending_bytes:
            self.drop()

    def page_sender(self, frame: Frame) -> Callable[[LogPage], bool]:
        """Sends what `frame` makes of a page; False, with nothing sent, where it is long or the client behind. Once in
        `LOOK_BYTES` it looks at the connection, which ignores what it is given while it closes. Else it makes no call
        but `write`: -30 % of the interpreter's CPU per viewer and token (`python -m bench fanout`)."""
        self._frame = frame
        return self._send_page

    def _send_page(self, page: LogPage) -> bool:
        transport = self._transport
        if page is not _SHARED.page or self._frame is not _SHARED.frame:
            _SHARED.page, _SHARED.frame, _SHARED.sent_at = page, self._frame, self._loop.time()
            _SHARED.data = page.framed(self._frame)
            _SHARED.chunk = http_chunk(_SHARED.data) if _SHARED.data else b""
        data = _SHARED.chunk if self._chunked else _SHARED.data
        if transport is None or len(data) > PIECE_BYTES:
            return False
        if self._written >= self._look_at:
            if is_writing_paused(self._protocol):
                return False
            self._look_at = self._written + LOOK_BYTES
        if data:
            transport.write(data)
            self._written += len(data)
            self._last_sent = _SHARED.sent_at
        return True

    async def send_pieces(self, data: bytes) -> None:
        """Sends whole events however long they are: each piece when the client has taken those before it. By `send` an
        event longer than `max_pending_bytes` would drop the client, again each time that it comes back."""
        sent = 0
        while len(data) - sent > PIECE_BYTES and not self.gone:
            self._inside_event = True
            self.send(data[sent : sent + PIECE_BYTES])
            sent += PIECE_BYTES
            await self.caught_up()
        self.send(data[sent:] if sent else data)
        self._inside_event = False

    def takes(self, data_bytes: int) -> bool:
        """Whether `send` may be called with about so much: the head is sent, and the client need not be waited for."""
        return self._transport is not None and not is_writing_paused(self._protocol) and data_bytes <= PIECE_BYTES

    async def caught_up(self) -> None:
        """Returns when the transport's buffer has drained. A handler that reads from a log waits here between batches,
        so that a slow viewer costs no memory (F72)."""
        if self._protocol.writing_paused:
            await self._request.writer.drain()

    async def end(self, data: bytes = b"") -> web.StreamResponse:
        """Sends the last events and ends the stream; a slow client still gets what is buffered. The handler returns it:
        `return await stream.end()`."""
        if len(data) > PIECE_BYTES:
            await self.send_pieces(data)
            data = b""
        self._send_first(data, LAST_CHUNK)
        transport = self._protocol.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        if is_writing_paused(self._protocol):
            await self._request.writer.drain()
        return CONNECTION_KEPT if self._chunked and self._request.keep_alive else CONNECTION_CLOSED

    async def fail(self, error: ApiError) -> web.StreamResponse:
        """Ends a stream that has begun with an error event, never with a regular end. Inside an event nothing else can
        be said: the connection is aborted, and the client comes back with the last whole event."""
        if self._inside_event:
            self.drop()
            raise ConnectionResetError("the stream ended inside an event")
        return await self.end(self._maker.stream_failure(self._request, error, self._error_frame))

    # ── the timer ────────────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self) -> None:
        """Drops a client that does not read; sends a keep-alive after a silence."""
        transport, timing, now = self._transport, self._maker.stream_timing, self._loop.time()
        if transport is not None and (pending := transport.get_write_buffer_size()):
            taken = self._written - pending
            if taken <= self._taken:
                self.drop()
                return
            self._taken, due = taken, now + timing.stuck_s
        else:
            self._taken, due = _NOTHING, self._last_sent + self._silence_s
            if now >= due:
                self.send(self._keep_alive)
                due = now + self._silence_s
        self._timer = self._loop.call_at(due, self._on_timer)

    def drop(self) -> None:
        """Aborts the connection and discards its buffer; the handler is then cancelled."""
        self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """The handler has ended. Lets go of what knows this stream: a request leaves no cycle behind (L148)."""
        self._timer.cancel()
        self._error_frame = None


class WriteBetween(msgspec.Struct, frozen=True):
    """What `write_between` makes. The extension writes into the transport's socket itself."""

    send: Callable[[bytes], None]
    prefix: bytes
    suffix: bytes
    transport: asyncio.Transport | None
    is_chunked: bool

    def __call__(self, body: bytes) -> float:
        self.send(b"%b%b%b" % (self.prefix, body, self.suffix))
        return time.monotonic()


class _Shared:
    """The page that was sent to a stream last. The viewers of one run are sent the same one in a row, in one tick of
    the loop: its chunk is made and the clock is read once for all of them."""

    page: LogPage | None = None
    frame: Frame | None = None
    data = chunk = b""
    sent_at = 0.0


_SHARED: Final = _Shared()
