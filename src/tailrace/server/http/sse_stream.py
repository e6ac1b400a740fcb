"""One stream of server-sent events to one client: the only path by which events reach a socket.

Owns the bytes on the connection, the keep-alive comments and the deadline for clients that do not read. A send is one
write into the transport: no task, no queue and no wait per event; the transport buffers what the socket cannot take.
The head leaves with the first events and the end of the body with the last ones, because each write is a system call.
One timer per stream does the rest. Knows no event and no dialect: `wire.sse` encodes events, and refuses what could
break out of one (J121).

A disconnect cancels the request's handler, also while nothing is being written; so does dropping a client that does
not read. A handler therefore needs no check of its own: sending to a disconnected client is a no-op.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import HttpVersion11, web

from tailrace.private_apis import HTTP_CHUNK, http_chunk
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.response_head import CONNECTION_CLOSED, CONNECTION_KEPT

_NOTHING: Final = -(1 << 62)
PIECE_BYTES: Final = 1 << 18  # of an event that is longer than this
KEEP_ALIVE: Final = b": keep-alive\n\n"
LAST_CHUNK: Final = b"0\r\n\r\n"


class StreamTiming(msgspec.Struct, frozen=True):
    """`silence_s`: a keep-alive comment follows so much silence (H92). `stuck_s`: a client that takes no byte for so
    long is dropped, at the latest after twice that (F73). `max_pending_bytes`: so is one with more buffered."""

    silence_s: float = 15.0
    stuck_s: float = 15.0
    max_pending_bytes: int = 8 << 20


class EventStream:
    """The response of one streaming request. The pipeline makes and closes it.

    The head is sent by `begin`, by the first `send`, or after the first silence. Until then an exception of the
    handler becomes a status (D52); from then on an error event (H94).
    """

    def __init__(
        self,
        request: web.Request,
        *,
        head: Callable[[], bytes],
        error_frame: Callable[[ApiError], bytes],
        timing: StreamTiming,
    ) -> None:
        """`head` makes the response's head when it is sent: what it says may be known only then."""
        self._request = request
        self._head = head
        self._protocol = request.protocol
        self._error_frame = error_frame
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None  # known once the head is sent
        self._chunked = True
        self._written = 0
        self._inside_event = False  # the client has a part of an event
        self._taken = _NOTHING  # bytes that the socket had taken at the last timer
        self._now = self._loop.time
        self._max_pending_bytes = timing.max_pending_bytes
        self._last_sent = self._now()
        self._timer = self._loop.call_later(timing.silence_s, self._on_timer)

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
        if (head := self._take_head()) and self._transport is not None:
            self._transport.write(head)

    def _take_head(self) -> bytes:
        """The head, where it is not sent yet and the client is there: the caller sends it now."""
        transport = self._protocol.transport
        if self._transport is not None or transport is None or transport.is_closing():
            return b""
        head = self._head()
        self._chunked = self._request.version >= HttpVersion11  # before it, a body ends with its connection
        self._transport = transport
        self._request.writer.output_size += len(head)  # for the library: the answer has begun
        self._last_sent = self._now()
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
        self._last_sent = self._now()
        if transport.get_write_buffer_size() > self._max_pending_bytes:
            self._drop()

    def _send_first(self, data: bytes) -> None:
        """The head and these events in one write."""
        head = self._take_head()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        sent = head + HTTP_CHUNK % (len(data), data) if data and self._chunked else head + data
        if sent:
            transport.write(sent)
            self._written += len(sent)
            self._last_sent = self._now()
        if transport.get_write_buffer_size() > self._max_pending_bytes:
            self._drop()

    def send_shared(self, data: bytes) -> bool:
        """Sends whole events that other streams are sent too, one after the other: what they are on the connection is
        made once for all. Returns False, with nothing sent, where the client has to be waited for: it is behind, or
        they are many bytes. `send_pieces` does that."""
        transport = self._transport
        if transport is None or self._protocol.writing_paused or len(data) > PIECE_BYTES:
            return False
        if data and not transport.is_closing():
            if self._chunked:
                data = _shared_chunk(data)
            transport.write(data)
            self._written += len(data)
            self._last_sent = self._loop.time()
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

    @property
    def behind(self) -> bool:
        """The transport's buffer is above its high-water mark: `await caught_up()` before sending more."""
        return self._protocol.writing_paused

    def takes(self, data_bytes: int) -> bool:
        """Whether `send` may be called with about so much: the client need not be waited for."""
        return not self._protocol.writing_paused and data_bytes <= PIECE_BYTES

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
        self._send_last(data)
        transport = self._protocol.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        if self._protocol.writing_paused:
            await self._request.writer.drain()
        return CONNECTION_KEPT if self._chunked and self._request.keep_alive else CONNECTION_CLOSED

    def _send_last(self, data: bytes) -> None:
        """Sends these events and the end of the body in one write, with the head where it is not sent."""
        head = self._take_head() if self._transport is None else b""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._chunked:
            data = HTTP_CHUNK % (len(data), data) + LAST_CHUNK if data else LAST_CHUNK
        if head or data:
            transport.write(head + data)
        self._written += len(head) + len(data)

    async def fail(self, error: ApiError) -> web.StreamResponse:
        """Ends a stream that has begun with an error event, never with a regular end. Inside an event nothing else can
        be said: the connection is aborted, and the client comes back with the last whole event."""
        if self._inside_event:
            self._drop()
            raise ConnectionResetError("the stream ended inside an event")
        return await self.end(self._error_frame(error))

    # ── the timer ────────────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self) -> None:
        """Drops a client that does not read; sends a keep-alive after a silence."""
        transport = self._transport
        now = self._now()
        if transport is not None and (pending := transport.get_write_buffer_size()):
            taken = self._written - pending
            if taken <= self._taken:
                self._drop()
                return
            self._taken = taken
            self._timer = self._loop.call_later(self._timing.stuck_s, self._on_timer)
            return
        self._taken = _NOTHING
        due = self._last_sent + self._timing.silence_s
        if now >= due:
            self.send(KEEP_ALIVE)
            due = now + self._timing.silence_s
        self._timer = self._loop.call_at(due, self._on_timer)

    def _drop(self) -> None:
        """Aborts the connection and discards its buffer; aiohttp then cancels the handler."""
        self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """The handler has ended. Lets go of what knows this stream: a request leaves no cycle behind (L148)."""
        self._timer.cancel()
        self._error_frame, self._head = _nothing, bytes


class _LastChunk:
    data = chunk = b""


def _shared_chunk(data: bytes) -> bytes:
    """As `http_chunk`. The viewers of one run are sent the same object in a row: it is remembered until the next."""
    if data is not _LastChunk.data:
        _LastChunk.data, _LastChunk.chunk = data, http_chunk(data)
    return _LastChunk.chunk


def _nothing(_error: ApiError) -> bytes:
    return b""
