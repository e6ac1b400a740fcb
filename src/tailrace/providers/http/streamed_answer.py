"""An answer over one connection: bytes through the decoder, as they come. And an answer that came whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from tailrace.errors import PeerError, ProviderError
from tailrace.messages import AnyDelta, Completion, ErrorDelta
from tailrace.ports import AnswerStream, StreamDecoder
from tailrace.providers.transport.port import HttpReply
from tailrace.wire.dialect import WireDialect

MAX_STREAM_BYTES = 512 * 1024 * 1024  # a whole answer that was streamed: no model says so much, an endless stream does
LINGER_S = 0.25  # after the last event: how long to wait for the end of the body, so that the connection can be reused


class StreamedAnswer(AnswerStream):
    """Bytes through the decoder, as they come. One list per read, empty where the read completed nothing."""

    __slots__ = ("_decoder", "_failed", "_failure", "_head", "_left", "_reply", "_take", "_wire")

    def __init__(
        self,
        wire: WireDialect,
        decoder: StreamDecoder,
        reply: HttpReply,
        head: bytes,
        failed: Callable[[ErrorDelta], ProviderError],
    ) -> None:
        self._wire = wire
        self._decoder = decoder
        self._reply = reply
        self._head = head
        self._failed = failed
        self._failure: ErrorDelta | None = None  # not the exception: its frames would hold this answer
        self._left = MAX_STREAM_BYTES
        self._take: Callable[[list[AnyDelta]], None] = _discard  # of the `pump` under way

    def __aiter__(self) -> AsyncIterator[list[AnyDelta]]:
        return self

    async def __anext__(self) -> list[AnyDelta]:
        if self._failure is not None:
            raise self._failed(self._failure)
        decoder = self._decoder
        if decoder.complete:
            return await self._after_the_last_event()
        if self._head:
            data, self._head = self._head, b""
        else:
            data = await self._reply.read()
        if data:
            return self._decoded(data)
        if deltas := self._at_the_end():
            return deltas
        raise StopAsyncIteration

    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        if self._failure is not None:
            self._raise_error()
        decoder = self._decoder
        head, self._head = self._head, b""
        self._take = take
        try:
            if not decoder.complete and not (head and self._sink(head)):
                await self._reply.pump(self._sink)
                if not decoder.complete:
                    self._take_the_end(take)
        finally:
            self._take = _discard  # `take` may hold this answer
        if not self._reply.at_end and decoder.complete:
            await self._pump_after_the_last_event(take)

    def _sink(self, data: bytes) -> bool:
        """Takes a read of the body. Whether the answer has ended."""
        self._left -= len(data)
        if self._left < 0:
            raise _too_long()
        decoder = self._decoder
        deltas = decoder.feed(data)
        if deltas and (last := deltas[-1]).__class__ is ErrorDelta:
            self._take(self._up_to(deltas, last))
            self._raise_error()
        self._take(deltas)
        return decoder.complete

    def completion(self) -> Completion:
        return self._wire.completion_from_body(self._decoder.rebuilt_body())

    def _decoded(self, data: bytes) -> list[AnyDelta]:
        self._left -= len(data)
        if self._left < 0:
            raise _too_long()
        deltas = self._decoder.feed(data)
        if deltas and (last := deltas[-1]).__class__ is ErrorDelta:
            return self._up_to(deltas, last)
        return deltas

    def _at_the_end(self) -> list[AnyDelta]:
        """The body has ended."""
        deltas = self._decoder.close(cut=not _has_proper_end(self._reply))
        if deltas and (last := deltas[-1]).__class__ is ErrorDelta:
            return self._up_to(deltas, last)
        return deltas

    def _take_the_end(self, take: Callable[[list[AnyDelta]], None]) -> None:
        if deltas := self._at_the_end():
            take(deltas)
        self._raise_error()

    def _raise_error(self) -> None:
        if self._failure is not None:
            raise self._failed(self._failure)

    def _up_to(self, deltas: list[AnyDelta], error: ErrorDelta) -> list[AnyDelta]:
        """What came before the error; the error itself is raised next."""
        self._failure = error
        if len(deltas) == 1:
            raise self._failed(error)
        return deltas[:-1]

    async def _after_the_last_event(self) -> list[AnyDelta]:
        """Waits a moment for the end of the body; a server that keeps the connection open does not keep us."""
        try:
            async with asyncio.timeout(LINGER_S):
                while not self._reply.at_end and (data := await self._reply.read()):
                    if deltas := self._decoder.feed(data):
                        return deltas
        except (TimeoutError, ProviderError):
            pass
        raise StopAsyncIteration

    async def _pump_after_the_last_event(self, take: Callable[[list[AnyDelta]], None]) -> None:
        """The same for `pump`."""

        def sink(data: bytes) -> bool:
            if deltas := self._decoder.feed(data):
                take(deltas)
            return False

        try:
            async with asyncio.timeout(LINGER_S):
                await self._reply.pump(sink)
        except (TimeoutError, ProviderError):
            pass


class WholeAnswer(AnswerStream):
    """An answer that came in one piece although a stream was asked for."""

    def __init__(self, completion: Completion) -> None:
        self._completion = completion

    def __aiter__(self) -> AsyncIterator[list[AnyDelta]]:
        return self

    async def __anext__(self) -> list[AnyDelta]:
        raise StopAsyncIteration

    def completion(self) -> Completion:
        return self._completion


def _discard(_deltas: list[AnyDelta]) -> None:
    """Takes what comes outside of a `pump`."""


def _too_long() -> PeerError:
    return PeerError(f"the stream exceeds {MAX_STREAM_BYTES} bytes")


def _has_proper_end(reply: HttpReply) -> bool:
    """The body has a length or a last chunk. Without them it ends when the connection does, for whatever reason."""
    headers = reply.headers
    return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
