"""One HTTP/1.1 connection, and the answer that is under way on it. Bytes of a body reach the reader's sink in the
callback in which the loop delivers them: on the way of a token there is no future, no task switch and no queue."""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Mapping
from contextvars import Context, copy_context
from copy import copy
from typing import TYPE_CHECKING, Final, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from tailrace.errors import PeerError, ProviderError, StreamCut, Unavailable
from tailrace.providers.transport.compression import Decompressor, decompressor_of
from tailrace.providers.transport.port import EVENT_STREAM, BodySink
from tailrace.providers.transport.request_head import Destination

if TYPE_CHECKING:
    from tailrace_relay import DirectReader, Poller

LARGE_READ_BYTES = 64 * 1024  # tokens never are
MAX_HEAD_BYTES = 128 * 1024  # of a head, of trailers, and of any other framing between two pieces of a body
HIGH_WATER_BYTES = 256 * 1024  # of a body without a reader: past this the peer has to wait
_EVENT_STREAM: Final = EVENT_STREAM.encode()
WRITE_BYTES = 256 * 1024  # of a large request, per write
_OK_LENIENCIES: Final = {
    "lenient_headers": True,
    "lenient_optional_cr_before_lf": True,
    "lenient_spaces_after_chunk_size": True,
}  # what servers get wrong and every client forgives


class ConnectionOwner(Protocol):
    """The pool, as its connections need it."""

    poller: Poller | None  # of the extension

    def released(self, connection: Http1Connection) -> None:
        """The answer was received whole, and the connection can be used again."""

    def lost(self, connection: Http1Connection) -> None:
        """The connection has ended."""


class Http1Reply:
    """Satisfies `HttpReply`. `status` is 0 until the head is there."""

    def __init__(self, connection: Http1Connection) -> None:
        self.status = 0
        self.fields: list[tuple[bytes, bytes]] = []
        self.content_type = b""
        self.encodings: list[bytes] = []  # each value of `content-encoding`
        self.untouched = True  # not a byte of an answer came
        self._loop = connection.loop
        self._connection: Http1Connection | None = connection
        self._headers: dict[str, str] | None = None
        self._decompressor: Decompressor | None = None
        self.is_packed = False  # known once the head is there
        self._buffered: list[bytes] = []
        self._size = 0
        self._has_body = False  # compressed
        self._unfinished: tuple[ProviderError | None] | None = None  # what to `finish` with once all is decompressed
        self._ended = False
        self._error: ProviderError | None = None
        self._waiter: asyncio.Future[bool] | None = None  # true: the sink has enough
        self._sink: BodySink | None = None
        self.diverted: BodySink | None = None  # is asked first
        self._context: Context  # of the sink's reader

    # ── for the reader ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case. Of a header that came more than once, the first."""
        if self._headers is None:
            headers: dict[str, str] = {}
            for name, value in self.fields:
                headers.setdefault(name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape"))
            self._headers = headers
        return self._headers

    @property
    def is_event_stream(self) -> bool:
        return self.content_type == _EVENT_STREAM

    @property
    def at_end(self) -> bool:
        return self._ended and not self._buffered and self._error is None

    async def read(self) -> bytes:
        while not self._buffered:
            if self._ended and self._error is None:
                return b""
            await self.woken()
        return self._take_buffered()

    async def pump(self, sink: BodySink) -> None:
        while True:
            if self._buffered and sink(self._take_buffered()):
                return
            if self._ended:
                break
            self._waiter = waiter = self._loop.create_future()
            self._sink, self._context = sink, copy_context()
            try:
                if await waiter:
                    return
            finally:
                self._waiter = self._sink = self.diverted = None
        if self._error is not None:
            self._raise_error()

    def divert(self, sink: BodySink | None) -> None:
        self.diverted = sink

    def call_sink(self) -> None:
        self.receive(b"")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        self._buffered.clear()

    def _raise_error(self) -> None:
        """Raises a copy: an exception holds the frames that it went through, and they hold this reply."""
        if self._error is not None:
            raise copy(self._error) from self._error.__cause__

    # ── for the connection ───────────────────────────────────────────────────────────────────────────────────

    def woken(self) -> asyncio.Future[bool]:
        """Is done when something has happened. Raises the error that the answer has ended with."""
        if self._error is not None:
            self._raise_error()
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def wake(self, *, enough: bool = False) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(enough)

    @property
    def ended(self) -> bool:
        """Nothing follows, for whatever reason."""
        return self._ended

    def open(self, status: int) -> None:
        """The head is there."""
        self.status = status
        for encoding in self.encodings:
            try:
                self._decompressor = decompressor_of(encoding.decode("latin-1"))
                self.is_packed = self._decompressor is not None
            except PeerError as exc:
                self._fail(exc)
                return
        self.wake()

    def receive_packed(self, data: bytes) -> None:
        """A piece of a body that is compressed."""
        if self._decompressor is None or self._ended:
            self.receive(data)
        else:
            self._has_body = True
            self._unpack(data)

    def _unpack(self, data: bytes = b"") -> None:
        """A step; the loop has its turn before the next one (O180)."""
        if (decompressor := self._decompressor) is None or self._ended:
            return
        try:
            piece = decompressor.feed(data)
        except PeerError as exc:
            self._fail(exc)
            return
        if piece:
            self.receive(piece)
        if decompressor.has_more:
            if self._connection is not None:
                self._connection.pause_reading()
            if self._size <= HIGH_WATER_BYTES:
                self._loop.call_soon(self._unpack)
        elif self._unfinished is not None:
            self.finish(*self._unfinished)
        elif self._connection is not None and self._size <= HIGH_WATER_BYTES:
            self._connection.resume_reading()

    def receive(self, data: bytes) -> None:
        """A piece of the body, unpacked."""
        sink, waiter = self._sink, self._waiter
        if sink is None or waiter is None or waiter.done():
            self._keep(data)
            return
        try:
            enough = self._context.run(sink, data)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it belongs to the reader
            self._sink = None
            waiter.set_exception(exc)
        else:
            if enough:
                self._sink = None
                self.wake(enough=True)

    def finish(self, error: ProviderError | None = None) -> None:
        """Nothing follows. An error is raised after everything that had arrived was read."""
        if self._decompressor is not None and self._decompressor.has_more:
            self._unfinished, self._connection = (error,), None
            return
        if self._error is None:
            if error is None and self._decompressor is not None and self._has_body:
                try:
                    self._decompressor.close()
                except PeerError as exc:
                    error = exc
            self._error = error
        self._ended = True
        self._connection = None
        if self._waiter is not None:
            self.wake()

    def _fail(self, error: PeerError) -> None:
        """The rest of the body cannot be understood."""
        connection, self._connection = self._connection, None
        self._decompressor = None
        self.finish(error)
        if connection is not None:
            connection.abort()

    def _keep(self, data: bytes) -> None:
        self.diverted = None  # what follows may not overtake this
        if self._ended or not data:
            return
        self._buffered.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER_BYTES and self._connection is not None:
            self._connection.pause_reading()
        if self._waiter is not None:
            self.wake()

    def _take_buffered(self) -> bytes:
        buffered = self._buffered
        data = buffered[0] if len(buffered) == 1 else b"".join(buffered)
        buffered.clear()
        size, self._size = self._size, 0
        if size > HIGH_WATER_BYTES:
            if self._decompressor is not None and self._decompressor.has_more:
                self._loop.call_soon(self._unpack)
            elif self._connection is not None:
                self._connection.resume_reading()
        return data


class Http1Connection(asyncio.Protocol):
    """Answers one request at a time."""

    def __init__(self, owner: ConnectionOwner, destination: Destination) -> None:
        self.destination = destination
        self.loop = get_running_loop()
        self.idle_since = 0.0
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._reply: Http1Reply | None = None
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # the parser's callback: the pieces of one read are passed on together
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_OK_LENIENCIES)
        self._complete = False
        self._own_pieces = 0
        self._framing_bytes = 0  # since the last piece of a body
        self._has_length = False
        self._reusable = True
        self._is_sending = False
        self._is_read_paused = False
        self._is_write_paused = False
        self._direct: DirectReader | None = None  # while it is attached, the transport is paused

    # ── for the pool ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes) -> Http1Reply:
        """Writes a request; the reply has no head yet."""
        reply = self._reply = Http1Reply(self)
        self._complete = False
        self._framing_bytes = 0
        if self._transport is None:
            self._lose(reply, None)
        else:
            self._transport.write(data)
        return reply

    async def send_large(self, head: bytes, body: bytes) -> Http1Reply:
        """The same in pieces, none before the one before it has nearly left. Ends early where the peer answers
        early."""
        self._is_sending = True
        reply = self.send(head)
        pieces = memoryview(body)
        for start in range(0, len(body), WRITE_BYTES):
            while self._is_write_paused and self._transport is not None and not (reply.status or reply.ended):
                await reply.woken()
            if self._transport is None or reply.status or reply.ended:
                self._reusable = False  # what the peer would read next is the rest of this request
                break
            self._transport.write(pieces[start : start + WRITE_BYTES])
        self._is_sending = False
        return reply

    def abort(self) -> None:
        """Drops the connection now. The reader of its answer gets nothing more."""
        self._reply = None
        self._reusable = False
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        if not self._is_read_paused and self._transport is not None:
            self._read_by_transport()
            self._is_read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_read_paused and self._transport is not None:
            self._is_read_paused = False
            self._transport.resume_reading()

    def _set_reading(self, reply: Http1Reply, data: bytes, body: bytes) -> None:
        """After a large read, or one behind which others are diverted: the extension reads them from plain sockets."""
        if len(body) >= LARGE_READ_BYTES:
            self._let_others_go_on()
        elif (poller := self._owner.poller) is not None:
            if self._direct is None:
                self._direct = poller.reader(self._transport)
            if self._direct is not None:
                self._direct.attach(self.data_received, reply, data, body)

    def _read_by_transport(self) -> None:
        if self._direct is not None:
            self._direct.detach()

    def _let_others_go_on(self) -> None:
        """uvloop reads up to 32 times in a row from a socket that has more: a second, where each takes 30 ms. Paused
        for one turn of the loop, it reads once (O178)."""
        transport = self._transport
        if transport is None or self._is_read_paused:
            return

        def go_on() -> None:
            if not self._is_read_paused and not transport.is_closing():
                transport.resume_reading()

        transport.pause_reading()
        self.loop.call_soon(go_on)

    def _has_too_much_framing(self, more_bytes: int) -> bool:
        self._framing_bytes += more_bytes
        return self._framing_bytes > MAX_HEAD_BYTES

    # ── asyncio's callbacks ──────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        reply, parser = self._reply, self._parser
        if reply is None or parser is None:  # no request was sent: the next answer could not be told from this
            self.abort()
            return
        reply.untouched = False
        error: Exception | None = None
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as exc:
            error = exc
        if self._complete:
            del self._pieces[self._own_pieces :]
        if pieces := self._pieces:
            body = pieces.pop()
            if pieces:  # a read of one piece is a token
                body = b"".join((*pieces, body))
                pieces.clear()
            self._framing_bytes = 0
            if reply.is_packed:
                reply.receive_packed(body)
            elif (diverted := reply.diverted) is None or not diverted(body):
                reply.receive(body)
                if reply.diverted is not None or len(body) >= LARGE_READ_BYTES:
                    self._set_reading(reply, data, body)
        elif not self._complete and self._has_too_much_framing(len(data)):
            self._break(reply, PeerError(f"a head of more than {MAX_HEAD_BYTES} bytes"))
            return
        if self._complete:
            self._end_reply(reply)
        elif error is not None:
            said = "" if isinstance(error, HttpParserUpgrade) else f": {error}"
            self._break(reply, _cut() if reply.status else PeerError(f"the peer does not speak HTTP{said}"))

    def eof_received(self) -> None:
        """The transport closes itself, and `connection_lost` tells what that means."""

    def connection_lost(self, exc: Exception | None) -> None:
        reply, self._reply = self._reply, None
        self._read_by_transport()
        self._transport = None
        self._parser = None  # it refers to this connection
        del self.on_body
        self._owner.lost(self)
        if reply is not None:
            self._lose(reply, exc)

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self._is_sending and self._reply is not None:
            self._reply.wake()

    # ── the parser's callbacks ───────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        if self._complete:  # more than was asked for
            self._reusable = False
        self._has_length = False

    def on_header(self, name: bytes, value: bytes) -> None:
        reply = self._reply
        if reply is None or reply.status or self._complete:  # a trailer
            return
        reply.fields.append((name, value))
        match len(name):
            case 14 if name.lower() == b"content-length":
                self._has_length = True
            case 17 if name.lower() == b"transfer-encoding":
                self._has_length = value == b"chunked" or value.lower().find(b"chunked") >= 0
            case 16 if name.lower() == b"content-encoding":
                reply.encodings.append(value)
            case 12 if name.lower() == b"content-type" and not reply.content_type:
                reply.content_type = value

    def on_headers_complete(self) -> None:
        reply, parser = self._reply, self._parser
        if reply is None or parser is None or reply.status or self._complete:
            return
        status = parser.get_status_code()
        if status < 200:  # an interim answer; the real one follows (RFC 9110, 15.2)
            reply.fields.clear()
            reply.encodings.clear()
            reply.content_type = b""
            return
        self._reusable = self._reusable and parser.should_keep_alive()
        reply.open(status)

    def on_message_complete(self) -> None:
        if self._reply is not None and self._reply.status and not self._complete:
            self._complete = True
            self._own_pieces = len(self._pieces)  # what follows in the same read was not asked for

    # ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _end_reply(self, reply: Http1Reply) -> None:
        """The answer was received whole: the connection is released before the reader has read all of it."""
        self._reply = None
        if self._is_read_paused:
            self.resume_reading()
        if self._reusable and not self._is_sending:
            self._owner.released(self)
        else:
            self.abort()
        reply.finish()

    def _break(self, reply: Http1Reply, error: ProviderError) -> None:
        self.abort()
        reply.finish(error)

    def _lose(self, reply: Http1Reply, exc: Exception | None) -> None:
        if not reply.status:
            reply.finish(_no_answer(exc))
        elif self._has_length or exc is not None:
            reply.finish(_cut())
        else:  # a body without a length ends with its connection
            reply.finish()


def _no_answer(exc: Exception | None) -> Unavailable:
    if exc is None:
        return Unavailable("the connection was closed before an answer came")
    error = Unavailable(f"the connection failed before an answer came: {exc}")
    error.__cause__ = exc
    return error


def _cut() -> StreamCut:
    return StreamCut("the connection broke in the middle of the answer", code="stream_cut")
