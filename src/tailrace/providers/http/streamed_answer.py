"""An answer over one connection: bytes through the decoder, as they come. And an answer that came whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NoReturn, Protocol, Self

import msgspec

from tailrace import messages
from tailrace.errors import ANSWER_TOO_LONG, PeerError, ProviderError
from tailrace.messages import MAX_ANSWER_BYTES, AnyDelta, Completion, ErrorDelta, Part
from tailrace.ports import AnswerStream, RelayTo, StreamDecoder
from tailrace.providers.transport import extension
from tailrace.providers.transport.port import HttpReply
from tailrace.wire.dialect import WireDialect
from tailrace.wire.peer_json import find_wide
from tailrace.wire.templates import Template, TemplateDecoder

MAX_STREAM_BYTES = 512 * 1024 * 1024  # of a stream with all its framing
RELAYED_EVERY_S = 1.0  # how often what was relayed unread is decoded, for the log and for metrics,
RELAYED_BYTES, TOKEN_BYTES = 1 << 20, 1 << 10  # and when it is so much; an event counts for so much at least
# One character beyond ASCII makes every other one of its text as wide: four bytes, as many as UTF-8, which a text keeps
# once it was encoded, and as many in what is made of it.
WIDE_BYTES: Final = 12
RAW_WIDE_BYTES: Final = 40  # of an answer that is only passed on: its pieces wait for the log and its client too
_ESCAPE_BYTES: Final = 5  # of an escape that is cut in two
LINGER_S = 0.25  # after the last event: how long to wait for the end of the body, so that the connection can be reused


class RelayGuard(Protocol):
    """What stands between a relayed event and its client."""

    waiting: list[AnyDelta]  # while it holds back what came before, nothing is relayed
    finds_key: Callable[[bytes], object]  # None for a text that neither holds a key nor ends in the beginning of one


class _Relay:
    """The steady state of a stream whose client speaks its dialect: an event goes from the read to the client's write
    as bytes, at 13 calls a token instead of 28, 14 with a `guard`. All that is made of it else is made once a second,
    or at the next read of another form. The extension does the same: a property of `tests/relay` holds both."""

    __slots__ = (
        *("_end", "_finds_key", "_is_plain", "_prefix", "_reply", "_start", "_suffix", "_write"),
        *("bodies", "decoder", "form", "looks_at", "room", "times"),
    )

    def __init__(
        self,
        template: Template,
        write: Callable[[bytes], float],
        decoder: TemplateDecoder,
        reply: HttpReply,
        guard: RelayGuard | None,
    ) -> None:
        self.form = form = template.form
        self._is_plain = template.is_plain
        self._finds_key = guard.finds_key if guard is not None else None
        self.decoder = decoder
        self._prefix, self._suffix = form.prefix, form.suffix
        self._start, self._end = len(form.prefix), -len(form.suffix)
        self._write = write
        self._reply = reply
        self.looks_at, self.room = 0.0, RELAYED_BYTES
        self.bodies: list[bytes] = []
        self.times: list[float] = []

    def take(self, data: bytes) -> bool:
        """Whether these bytes were one event of this form."""
        if not data.startswith(self._prefix) or not data.endswith(self._suffix):
            return False
        body = data[self._start : self._end]
        if self._is_plain(body) is None or (self._finds_key is not None and self._finds_key(body) is not None):
            return False
        at = self._write(body)
        self.bodies.append(body)
        self.times.append(at)
        self.room -= len(data) if data[TOKEN_BYTES:] else TOKEN_BYTES
        if at >= self.looks_at or self.room < 0:
            self._reply.call_sink()
        return True


class StreamedAnswer(AnswerStream):
    """Bytes through the decoder, as they come. One list per read, empty where the read completed nothing."""

    __slots__ = (
        *("_char_bytes", "_chars", "_decoder", "_failed", "_head", "_last", "_left", "_max_bytes"),
        *("_newest", "_relay", "_relay_to", "_relayed", "_reply", "_take", "_wide_bytes", "_wire", "guard"),
    )

    def __init__(
        self,
        wire: WireDialect,
        decoder: StreamDecoder,
        failed: Callable[[ErrorDelta], ProviderError],
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._wire = wire
        self._decoder = decoder
        self._failed = failed
        self._max_bytes = max_bytes
        self._wide_bytes = WIDE_BYTES if max_bytes <= MAX_ANSWER_BYTES else RAW_WIDE_BYTES
        self._left = min(max_bytes // self._wide_bytes, MAX_STREAM_BYTES)  # bytes until the answer may be too long
        self._last = self._left - MAX_STREAM_BYTES
        # Of an answer that may be: its characters, how many bytes each may take, and the end of the newest read.
        self._chars, self._char_bytes, self._newest = 0, 0, b""
        self._take: Callable[[list[AnyDelta]], None] = discard  # of the `pump` under way
        self._relay: _Relay | None = None
        self._relay_to: RelayTo | None = None
        self.guard: RelayGuard | None = None
        self._relayed: Callable[[list[AnyDelta], list[float]], None] | None = None

    def attach(self, reply: HttpReply, head: bytes = b"") -> Self:
        """The bytes come from this connection, after these."""
        self._reply, self._head = reply, head
        return self

    def relay_to(self, relay: RelayTo, relayed: Callable[[list[AnyDelta], list[float]], None]) -> None:
        if isinstance(self._decoder, TemplateDecoder):
            self._relay_to, self._relayed = relay, relayed

    def relayed_at(self) -> float:
        relay = self._relay
        return relay.times[-1] if relay is not None and relay.times else 0.0

    @property
    def skipped(self) -> str:
        return self._decoder.skipped

    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        decoder = self._decoder
        head, self._head = self._head, b""
        self._take = take
        try:
            if not decoder.complete and not (head and self._sink(head)):
                try:
                    await self._reply.pump(self._sink)
                finally:  # what was relayed was shown, however the stream ends
                    self._hand_on_relayed()
                if not decoder.complete:  # the body has ended
                    self._hand_on(decoder.close(cut=not _has_proper_end(self._reply)), take)
        finally:
            self._take = discard
            self._relay_to = self._relayed = self._relay = self.guard = None  # each may hold this
        if not self._reply.at_end and decoder.complete:
            await self._pump_after_the_last_event(take)

    def _sink(self, data: bytes) -> bool:
        """Takes a read of the body. Whether the answer has ended."""
        self._left -= len(data)
        decoder = self._decoder
        if self._relay is not None:
            self._hand_on_relayed()
        if self._left < 0:
            self._check_size(data)
        if not data and self._relay_to is not None:  # the relay asks for it
            self._relay_next(self._relay_to)
            return False
        deltas = decoder.feed(data)
        if deltas and (last := deltas[-1]).__class__ is ErrorDelta:
            self._fail(deltas, last, self._take)
        if self._left < 0:
            self._chars += sum([len(_text_in(delta)) for delta in deltas])
        self._take(deltas)
        if self._relay_to is not None and not decoder.complete:
            self._relay_next(self._relay_to)
        return decoder.complete

    def _relay_next(self, relay_to: RelayTo) -> None:
        """From the next read on, events of the newest form are relayed, unless the client has no use for them."""
        relay, decoder = self._relay, self._decoder
        if not isinstance(decoder, TemplateDecoder) or (template := decoder.relayable()) is None:
            return
        if (guard := self.guard) is not None and guard.waiting:
            return
        if relay is None or relay.form is not template.form:
            if (write := relay_to(template.form)) is None:
                self._relay_to = self._relay = None
                return
            new_relay = _Relay if extension.EXTENSION is None else extension.EXTENSION.Relay
            relay = self._relay = new_relay(template, write, decoder, self._reply, guard)
        relay.looks_at = time.monotonic() + RELAYED_EVERY_S - (id(relay) >> 6) % 64 / 256  # not all in one tick
        self._reply.divert(relay.take)

    def _hand_on_relayed(self) -> None:
        """Decodes what was relayed since the last time."""
        if (relay := self._relay) is None:
            return
        self._reply.divert(None)
        if relay.bodies and self._relayed is not None:
            bodies, times, relay.bodies, relay.times = relay.bodies, relay.times, [], []
            relay.room = RELAYED_BYTES
            self._left -= sum(map(len, bodies)) + len(bodies) * (len(relay.form.turn))
            self._relayed(relay.decoder.relayed(bodies), times)

    def _check_size(self, data: bytes) -> None:
        """Raises `PeerError` before these bytes make the answer too long. Joins no text that they may make wide."""
        self._relay_to = None
        if not self._char_bytes:
            text = "".join(map(_text_in, self.completion().message.parts))
            self._chars, self._char_bytes = len(text), 1 if text.isascii() else self._wide_bytes
        if self._char_bytes == 1 and find_wide(self._newest + data):
            self._char_bytes = self._wide_bytes
        self._newest = data[-_ESCAPE_BYTES:]
        if self._chars * self._char_bytes > self._max_bytes:
            raise _too_long(self._max_bytes)
        if self._left < self._last:
            raise PeerError(f"the stream exceeds {MAX_STREAM_BYTES} bytes", code=ANSWER_TOO_LONG)

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


def check_size(answer: Completion, max_bytes: int) -> None:
    """Raises `PeerError` for one whose text takes more memory than this (O178)."""
    texts = map(_text_in, answer.message.parts)
    if sum(len(text) * (1 if text.isascii() else WIDE_BYTES) for text in texts) > max_bytes:
        raise _too_long(max_bytes)


def _too_long(max_bytes: int) -> PeerError:
    words = (
        f"the answer exceeds {max_bytes} bytes; a text that is not ASCII takes {WIDE_BYTES} or more for each character"
    )
    return PeerError(words, code=ANSWER_TOO_LONG)


def _text_in(piece: Part | AnyDelta) -> str:
    match piece:
        case messages.Text(text) | messages.Refusal(text) | messages.Reasoning(text=text):
            return text
        case messages.TextDelta(text) | messages.RefusalDelta(text) | messages.ReasoningDelta(text):
            return text
        case messages.ToolCall(arguments=text) | messages.ToolCallDelta(arguments=text):
            return text
        case messages.Native(item=item) | messages.NativeDelta(item=item):
            return msgspec.json.encode(item).decode()
        case _:
            return ""


def discard(_deltas: list[AnyDelta]) -> None:
    """Takes deltas that no caller wants."""


def _has_proper_end(reply: HttpReply) -> bool:
    """The body has a length or a last chunk. Without them it ends when the connection does, for whatever reason."""
    headers = reply.headers
    return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
