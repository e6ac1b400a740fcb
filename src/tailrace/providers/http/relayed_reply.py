"""The reply of a route that no dialect here covers: read as JSON or as events, and passed on without the key that it
was asked for with (J114)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec

from tailrace.errors import PeerError, ProviderError
from tailrace.messages import ErrorDelta, JsonObject
from tailrace.providers.transport.port import HttpReply
from tailrace.values.redact import REDACTED, RedactingStream, TextRedactor
from tailrace.wire.failure import failure_in, stream_cut
from tailrace.wire.peer_json import decode_object, objects_of, text_of
from tailrace.wire.sse import SseDecoder

MAX_REPLY_BYTES = 64 * 1024 * 1024  # of a reply that is not streamed
MAX_STREAM_BYTES = 512 * 1024 * 1024  # as of any other stream
_LARGE_BYTES = 1 << 20  # decoded in a thread: a list of embeddings would hold the loop
_DONE = b"[DONE]"
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class RelayedReply:
    """One reply. `on_bytes` is called at each read, for deadlines."""

    def __init__(self, reply: HttpReply, redactor: TextRedactor, failed: Callable[[ErrorDelta], ProviderError]) -> None:
        self._reply = reply
        self._redactor = redactor
        self._failed = failed
        self._texts: dict[int, RedactingStream] = {}  # by choice
        self._head: JsonObject = {}  # the fields of the last event beside its choices
        self.on_bytes: Callable[[], None] = lambda: None

    @property
    def is_stream(self) -> bool:
        return self._reply.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"

    async def fields(self) -> dict[str, msgspec.Raw]:
        """The fields of a whole reply, each as it came. Raises `ProviderError`."""
        pieces: list[bytes] = []
        size = 0
        while data := await self._reply.read():
            self.on_bytes()
            pieces.append(data)
            size += len(data)
            if size > MAX_REPLY_BYTES:
                raise PeerError(f"the answer exceeds {MAX_REPLY_BYTES} bytes")
        whole = self._without_key(b"".join(pieces))
        return await asyncio.to_thread(self._decoded, whole) if size > _LARGE_BYTES else self._decoded(whole)

    def _decoded(self, data: bytes) -> dict[str, msgspec.Raw]:
        try:
            fields = _decode_fields(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise PeerError("expected an answer in JSON", excerpt=data[:300]) from exc
        if "error" in fields and (error := failure_in(decode_object(data))) is not None:
            raise self._failed(error)
        return fields

    async def events(self) -> AsyncIterator[list[JsonObject]]:
        """The events of a stream, those of one read together, up to `[DONE]`. Raises `ProviderError`, also without
        it."""
        decoder = SseDecoder()
        left = MAX_STREAM_BYTES
        while data := await self._reply.read():
            self.on_bytes()
            left -= len(data)
            if left < 0:
                raise PeerError(f"the stream exceeds {MAX_STREAM_BYTES} bytes")
            events: list[JsonObject] = []
            for sent in decoder.feed(data):
                if sent.data.strip() == _DONE:
                    yield [*events, *self._unfinished()]
                    return
                if sent.data.strip():
                    events.append(self._event(sent.data))
            if decoder.error is not None:
                raise decoder.error
            yield events
        raise self._failed(stream_cut("the stream ended without [DONE]"))

    def _event(self, data: bytes) -> JsonObject:
        event = decode_object(self._without_key(data))
        if (error := failure_in(event)) is not None:
            raise self._failed(error)
        if self._redactor.idle or not event.get("choices"):
            return event
        choices = [self._choice(choice) for choice in objects_of(event["choices"])]
        self._head = {name: value for name, value in event.items() if name not in ("choices", "usage")}
        return {**event, "choices": choices}

    def _choice(self, choice: JsonObject) -> JsonObject:
        """The choice; the end of a text that may be the beginning of a key waits for what follows."""
        index = choice.get("index")
        stream = self._texts.setdefault(index if isinstance(index, int) else 0, self._redactor.stream())
        text = stream.feed(text_of(choice.get("text")))
        text += stream.close() if choice.get("finish_reason") else ""
        return {**choice, "text": text} if text or isinstance(choice.get("text"), str) else choice

    def _unfinished(self) -> list[JsonObject]:
        """What waits of the texts whose end the provider has not announced."""
        rest = {index: stream.close() for index, stream in self._texts.items()}
        choices = [{"index": index, "text": text, "finish_reason": None} for index, text in rest.items() if text]
        return [{**self._head, "choices": choices}] if choices else []

    def _without_key(self, data: bytes) -> bytes:
        for secret in self._redactor.secrets:
            data = data.replace(msgspec.json.encode(secret)[1:-1], REDACTED.encode())
        return data
