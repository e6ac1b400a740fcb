"""An answer over one connection: bytes through the decoder, as they come. And an answer that came whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn, Self

from tailrace.errors import ANSWER_TOO_LONG, PeerError, ProviderError
from tailrace.messages import DEFAULT_MAX_ANSWER_CHARS, AnyDelta, Completion, ErrorDelta
from tailrace.ports import AnswerStream, StreamDecoder
from tailrace.providers.transport.port import HttpReply
from tailrace.wire.dialect import WireDialect
from tailrace.wire.token_estimate import CHARS_PER_TOKEN, message_tokens

MAX_STREAM_BYTES = 512 * 1024 * 1024  # of a stream with all its framing
LINGER_S = 0.25  # after the last event: how long to wait for the end of the body, so that the connection can be reused


class StreamedAnswer(AnswerStream):
    """Bytes through the decoder, as they come. One list per read, empty where the read completed nothing."""

    __slots__ = ("_decoder", "_failed", "_head", "_left", "_max_chars", "_read", "_reply", "_take", "_wire")

    def __init__(
        self,
        wire: WireDialect,
        decoder: StreamDecoder,
        failed: Callable[[ErrorDelta], ProviderError],
        max_chars: int = DEFAULT_MAX_ANSWER_CHARS,
    ) -> None:
        self._wire = wire
        self._decoder = decoder
        self._failed = failed
        self._max_chars = max_chars
        # Bytes until the answer may be too long, and all that were read by then: most of a stream is framing.
        self._left = self._read = min(max_chars, MAX_STREAM_BYTES)
        self._take: Callable[[list[AnyDelta]], None] = discard  # of the `pump` under way

    def attach(self, reply: HttpReply, head: bytes = b"") -> Self:
        """The bytes come from this connection, after these."""
        self._reply, self._head = reply, head
        return self

    @property
    def skipped(self) -> str:
        return self._decoder.skipped

    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        decoder = self._decoder
        head, self._head = self._head, b""
        self._take = take
        try:
            if not decoder.complete and not (head and self._sink(head)):
                await self._reply.pump(self._sink)
                if not decoder.complete:  # the body has ended
                    self._hand_on(decoder.close(cut=not _has_proper_end(self._reply)), take)
        finally:
            self._take = discard  # `take` may hold this answer
        if not self._reply.at_end and decoder.complete:
            await self._pump_after_the_last_event(take)

    def _sink(self, data: bytes) -> bool:
        """Takes a read of the body. Whether the answer has ended."""
        self._left -= len(data)
        if self._left < 0:
            self._check_size()
        decoder = self._decoder
        deltas = decoder.feed(data)
        if deltas and (last := deltas[-1]).__class__ is ErrorDelta:
            self._fail(deltas, last, self._take)
        self._take(deltas)
        return decoder.complete

    def _check_size(self) -> None:
        """Raises `PeerError`. Rebuilds the answer, a few times in all."""
        size = checked_size(self.completion(), self._max_chars)
        if self._read >= MAX_STREAM_BYTES:
            raise PeerError(f"the stream exceeds {MAX_STREAM_BYTES} bytes", code=ANSWER_TOO_LONG)
        self._left = min(max(self._max_chars - size, self._max_chars // 64), MAX_STREAM_BYTES - self._read)
        self._read += self._left

    def completion(self) -> Completion:
        return self._wire.completion_from_body(self._decoder.rebuilt_body())

    def _hand_on(self, deltas: list[AnyDelta], take: Callable[[list[AnyDelta]], None]) -> None:
        """Hands on deltas that no read brought."""
        if deltas and isinstance(last := deltas[-1], ErrorDelta):
            self._fail(deltas, last, take)
        if deltas:
            take(deltas)

    def _fail(self, deltas: list[AnyDelta], error: ErrorDelta, take: Callable[[list[AnyDelta]], None]) -> NoReturn:
        """Hands on what came before the error, and raises it."""
        if len(deltas) > 1:
            take(deltas[:-1])
        raise self._failed(error)

    async def _pump_after_the_last_event(self, take: Callable[[list[AnyDelta]], None]) -> None:
        """Waits a moment for the end of the body; a server that keeps the connection open does not keep us."""

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

    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        """There are no deltas."""

    def completion(self) -> Completion:
        return self._completion


def checked_size(answer: Completion, max_chars: int) -> int:
    """About how many characters the answer has. Raises `PeerError` for one that is too long (O178)."""
    size = message_tokens((answer.message,)) * CHARS_PER_TOKEN
    if size > max_chars:
        raise PeerError(f"the answer exceeds {max_chars} characters", code=ANSWER_TOO_LONG)
    return size


def discard(_deltas: list[AnyDelta]) -> None:
    """Takes deltas that no caller wants."""


def _has_proper_end(reply: HttpReply) -> bool:
    """The body has a length or a last chunk. Without them it ends when the connection does, for whatever reason."""
    headers = reply.headers
    return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
