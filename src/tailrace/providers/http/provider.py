"""A model endpoint over HTTP, in any of the three dialects.

Owns one request and its answer: what is sent, what kind of answer came back, and that the connection is closed
however the block is left. Knows nothing of retries, deadlines or other providers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from tailrace.errors import PeerError, ProviderError, Rejected
from tailrace.messages import AnyDelta, Completion, Dialect, ErrorDelta, JsonObject, ModelRequest
from tailrace.ports import AnswerStream, StreamDecoder
from tailrace.providers.http.endpoint import NOTHING, Endpoint
from tailrace.providers.http.key_redaction import RedactedAnswer
from tailrace.providers.http.quirks import adapted_body, merged, quirks_of, wire_quirks_of
from tailrace.providers.http.refused_fields import OPTIONAL, RefusedFields, refused_field
from tailrace.providers.http.relayed_reply import RelayedReply
from tailrace.providers.http.stop_cut import StopCutAnswer
from tailrace.providers.http.transport import HttpReply, Transport
from tailrace.providers.retry.backoff import retry_after_s
from tailrace.redact import TextRedactor
from tailrace.wire.dialects import DIALECTS, Wire
from tailrace.wire.failure import failure, failure_in, to_exception
from tailrace.wire.peer_json import decode_object, encode_object, object_of, objects_of, text_of

log = logging.getLogger("tailrace.providers")
MAX_BODY_BYTES = 64 * 1024 * 1024  # a whole answer that was not streamed
MAX_STREAM_BYTES = 512 * 1024 * 1024  # a whole answer that was: no model says so much, an endless stream does
MAX_ERROR_BYTES = 64 * 1024
MAX_MODELS = 2000  # that are listed of one endpoint
MAX_MODEL_CHARS = 200
LINGER_S = 0.25  # after the last event: how long to wait for the end of the body, so that the connection can be reused
_PEEK_BYTES = 16  # enough to tell a stream from a page
_EVENT_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_NO_ROUTE = (404, 405, 501)
_UNSET = ModelRequest("", ())  # asks for nothing
# The fields of a request that the dialect's route for counting takes; those that a client wrote are its own affair.
_COUNTED: dict[Dialect, frozenset[str]] = {
    "chat": frozenset(),
    "responses": frozenset({"model", "input", "instructions", "tools", "tool_choice", "text", "reasoning"}),
    "anthropic": frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking"}),
}
_ANSWER_FIELD: dict[Dialect, str] = {"chat": "choices", "responses": "output", "anthropic": "content"}


class HttpProvider:
    """Satisfies `ports.Provider`. `refused` remembers which fields of ours the endpoint refuses: one for all providers
    of a process, where they are made anew."""

    def __init__(self, endpoint: Endpoint, transport: Transport, refused: RefusedFields | None = None) -> None:
        self.name = endpoint.name
        self.dialect: Dialect = endpoint.dialect
        self.is_local = endpoint.is_local
        self._endpoint = endpoint
        self._transport = transport
        self._refused = refused if refused is not None else RefusedFields()
        self._wire = DIALECTS[endpoint.dialect]
        self._url = endpoint.url()
        self._headers = endpoint.request_headers()
        self._redactor = TextRedactor(endpoint.secrets())

    def __repr__(self) -> str:
        return f"HttpProvider({self._endpoint!r})"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnswerStream, None]:
        reply = await self._post(request, stream=True)
        try:
            yield self._cut(self._without_key(await self._answer(reply, request)), request)
        except ProviderError as exc:
            exc.provider = exc.provider or self.name
            raise
        finally:
            reply.close()

    async def complete(self, request: ModelRequest) -> Completion:
        reply = await self._post(request, stream=False)
        try:
            answer = self._cut(self._without_key(await self._answer(reply, request)), request)
            async for _ in answer:  # a peer that streams unasked is understood
                pass
            return answer.completion()
        except ProviderError as exc:
            exc.provider = exc.provider or self.name
            raise
        finally:
            reply.close()

    def _without_key(self, answer: AnswerStream) -> AnswerStream:
        redactor = self._redactor
        return answer if redactor.idle else RedactedAnswer(answer, redactor, self._wire.completion_from_body)

    def _cut(self, answer: AnswerStream, request: ModelRequest) -> AnswerStream:
        """The Responses API has no stop strings: its answers are cut here."""
        if self.dialect != "responses" or not request.stop or request.verbatim:
            return answer
        return StopCutAnswer(answer, request)

    def request_body(self, request: ModelRequest, *, stream: bool, refused: Collection[str] = ()) -> JsonObject:
        """What is sent: the request in the dialect's words, the user's own fields, and what the endpoint needs, without
        the fields of ours that it has `refused`."""
        endpoint = self._endpoint
        quirks = quirks_of(endpoint, request.model)
        return adapted_body(request, self._wire, quirks, extra=endpoint.extra_body, refused=refused, stream=stream)

    def left_out(self, request: ModelRequest) -> tuple[str, ...]:
        """The fields of the request that the endpoint was found to refuse for its model: it is asked without them."""
        paths = self._refused.at((self.name, self._url, request.model))
        sources = (field.source for field in OPTIONAL[self.dialect] if field.path in paths and field.source)
        return tuple(dict.fromkeys(name for name in sources if getattr(request, name) != getattr(_UNSET, name)))

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The tokens of the request's input, as the provider counts them; None where it has no route for that. Raises
        `ProviderError`."""
        if (url := self._endpoint.count_url()) is None:
            return None
        fields = _COUNTED[self.dialect].union(request.extra if request.verbatim else ())
        body = self.request_body(request, stream=False, refused=self._refused.at((self.name, self._url, request.model)))
        body = {name: value for name, value in body.items() if name in fields}
        reply = await self._send(request, body, url=url)
        try:
            if reply.status in _NO_ROUTE:
                return None
            if not 200 <= reply.status < 300:
                raise await self._refusal(reply)
            counted = decode_object(await _read_some(reply, MAX_ERROR_BYTES)).get("input_tokens")
        finally:
            reply.close()
        return counted if isinstance(counted, int) and counted >= 0 else None

    @asynccontextmanager
    async def relay(
        self, route: str, body: JsonObject, headers: Mapping[str, str] = NOTHING
    ) -> AsyncGenerator[RelayedReply, None]:
        """The reply of another route of the endpoint to this very body, once it is known to be a success. Leaving the
        block closes the connection. Raises `ProviderError`."""
        request = ModelRequest(text_of(body.get("model")), (), headers=dict(headers))
        reply = await self._send(request, body, url=self._endpoint.route_url(route))
        try:
            if not 200 <= reply.status < 300:
                raise await self._refusal(reply)
            yield RelayedReply(reply, self._redactor, self._failed)
        except ProviderError as exc:
            exc.provider = exc.provider or self.name
            raise
        finally:
            reply.close()

    async def list_models(self) -> tuple[str, ...]:
        """The names of the models that the endpoint lists, at most `MAX_MODELS`. Raises `ProviderError`."""
        endpoint = self._endpoint
        reply = await self._transport.get(
            endpoint.models_url(),
            headers=self._headers,
            connect_timeout_s=endpoint.connect_timeout_s,
            socket_path=endpoint.socket_path,
        )
        try:
            if not 200 <= reply.status < 300:
                raise await self._refusal(reply)
            listed = decode_object(await _read_some(reply, MAX_BODY_BYTES)).get("data")
        finally:
            reply.close()
        names = (text_of(model.get("id")) for model in objects_of(listed))
        return tuple(dict.fromkeys(name for name in names if 0 < len(name) <= MAX_MODEL_CHARS))[:MAX_MODELS]

    async def _post(self, request: ModelRequest, *, stream: bool) -> HttpReply:
        """The reply, once it is known to be a success. A field of ours that the endpoint refuses by name is left out
        and the request sent again, at most once for each."""
        place = self.name, self._url, request.model
        known = self._refused.at(place)
        left_out: set[str] = set()
        while True:
            body = self.request_body(request, stream=stream, refused=known | left_out)
            reply = await self._send(request, body)
            if 200 <= reply.status < 300:
                break
            try:
                error = await self._refusal(reply)
            finally:
                reply.close()
            chosen = merged(self._endpoint.extra_body, request.extra)
            field = refused_field(error, body, request, self.dialect, chosen)
            if field is None:
                raise error
            left_out.add(field)
            log.info("%s/%s refuses the field %s and is asked without it", self.name, request.model, field)
            log.debug("%s/%s refuses %s: %s", self.name, request.model, field, error)
        if left_out:
            self._refused.remember(place, left_out)
        return reply

    async def _send(self, request: ModelRequest, body: JsonObject, *, url: str | None = None) -> HttpReply:
        endpoint = self._endpoint
        try:
            return await self._transport.post(
                url or self._url,
                headers=endpoint.headers_with(request.headers) if request.headers else self._headers,
                body=encode_object(body),
                connect_timeout_s=endpoint.connect_timeout_s,
                socket_path=endpoint.socket_path,
            )
        except ProviderError as exc:
            exc.provider = self.name
            raise

    async def _refusal(self, reply: HttpReply) -> ProviderError:
        """What a status other than success says."""
        status = reply.status
        if status < 400:
            where = reply.headers.get("location", "elsewhere")
            return Rejected(
                self._endpoint.redacted(f"{self._endpoint.host} redirects to {where}: set that as the base_url"),
                status=status,
                provider=self.name,
            )
        data = self._safe(await _read_some(reply, MAX_ERROR_BYTES))
        try:
            said = decode_object(data)
            error = _with_param(failure_in(said, status=status), said)
        except PeerError:
            error = None
        if error is None:
            error = failure(f"HTTP {status}: {_excerpt(data)}" if data else f"HTTP {status}", status=status)
        return self._failed(error, retry_after=retry_after_s(reply.headers, now=datetime.now(UTC)))

    def _failed(self, error: ErrorDelta, *, retry_after: float | None = None) -> ProviderError:
        redacted = msgspec.structs.replace(error, message=self._endpoint.redacted(error.message))
        return to_exception(redacted, provider=self.name, retry_after_s=retry_after)

    async def _answer(self, reply: HttpReply, request: ModelRequest) -> AnswerStream:
        """The content type decides what came, before any of it is decoded (A19)."""
        match _media_type(reply):
            case "text/event-stream":
                head = b""
            case kind if kind == "application/json" or kind.endswith("+json"):
                return _WholeAnswer(await self._whole(reply))
            case "text/html" | "application/xhtml+xml" as kind:
                raise await self._not_a_stream(reply, kind)
            case kind:  # missing, or one that proxies put there: the first line tells
                head = await _peek(reply)
                if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
                    return _WholeAnswer(await self._whole(reply, head))
                if not head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").startswith(_EVENT_FIELDS):
                    raise await self._not_a_stream(reply, kind or "no content type", head)
        quirks = wire_quirks_of(quirks_of(self._endpoint, request.model))
        decoder = self._wire.decoder(quirks, keep_events=request.keep_events)
        return _StreamedAnswer(self._wire, decoder, reply, head, self._failed)

    async def _whole(self, reply: HttpReply, head: bytes = b"") -> Completion:
        """The answer that a body holds which was not streamed."""
        data = head + await _read_some(reply, MAX_BODY_BYTES + 1)
        if len(data) > MAX_BODY_BYTES:
            raise PeerError(f"the answer exceeds {MAX_BODY_BYTES} bytes", excerpt=data)
        try:
            body = decode_object(data)
        except PeerError:  # whose excerpt may hold the key
            safe = self._safe(data)
            raise PeerError(f"expected an answer in JSON, got {_excerpt(safe)}", excerpt=safe) from None
        if (error := failure_of_body(self.dialect, body)) is not None:
            raise self._failed(error)
        if not isinstance(body.get(_ANSWER_FIELD[self.dialect]), list):
            safe = self._safe(data)
            raise PeerError(f"JSON, but not an answer in the {self.dialect} dialect: {_excerpt(safe)}", excerpt=safe)
        return self._wire.completion_from_body(body)

    async def _not_a_stream(self, reply: HttpReply, kind: str, head: bytes = b"") -> PeerError:
        safe = self._safe(head + await _read_some(reply, MAX_ERROR_BYTES))
        message = f"expected an answer, got {kind}: {_excerpt(safe)}"
        return PeerError(message, excerpt=safe, status=reply.status, provider=self.name)

    def _safe(self, data: bytes) -> bytes:
        """The same without secrets; before it is cut short, or half a key would be left (J114)."""
        return self._endpoint.redacted(data[:MAX_ERROR_BYTES].decode("utf-8", "replace")).encode()


class _StreamedAnswer:
    """Bytes through the decoder, as they come. One list per read, empty where the read completed nothing."""

    def __init__(
        self,
        wire: Wire,
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
        self._error: ProviderError | None = None
        self._left = MAX_STREAM_BYTES

    def __aiter__(self) -> AsyncIterator[list[AnyDelta]]:
        return self

    async def __anext__(self) -> list[AnyDelta]:
        if self._error is not None:
            raise self._error
        decoder = self._decoder
        if decoder.complete:
            return await self._after_the_last_event()
        if self._head:
            data, self._head = self._head, b""
        else:
            data = await self._reply.read()
        self._left -= len(data)
        if self._left < 0:
            raise PeerError(f"the stream exceeds {MAX_STREAM_BYTES} bytes")
        deltas = decoder.feed(data) if data else decoder.close(cut=not _has_proper_end(self._reply))
        if deltas:
            if isinstance(last := deltas[-1], ErrorDelta):
                return self._up_to(deltas, last)
        elif not data:
            raise StopAsyncIteration
        return deltas

    def completion(self) -> Completion:
        return self._wire.completion_from_body(self._decoder.rebuilt_body())

    def _up_to(self, deltas: list[AnyDelta], error: ErrorDelta) -> list[AnyDelta]:
        """What came before the error; the error itself is raised next."""
        self._error = self._failed(error)
        if len(deltas) == 1:
            raise self._error
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


class _WholeAnswer:
    """An answer that came in one piece although a stream was asked for."""

    def __init__(self, completion: Completion) -> None:
        self._completion = completion

    def __aiter__(self) -> AsyncIterator[list[AnyDelta]]:
        return self

    async def __anext__(self) -> list[AnyDelta]:
        raise StopAsyncIteration

    def completion(self) -> Completion:
        return self._completion


def failure_of_body(dialect: Dialect, body: JsonObject) -> ErrorDelta | None:
    """The error that a body with a status of success reports all the same (D56)."""
    if (error := failure_in(body)) is not None:
        return error
    if dialect == "responses" and body.get("status") in ("failed", "cancelled"):
        return failure(f"the provider ended the response as {body['status']}", code=f"response_{body['status']}")
    return None


def _with_param(error: ErrorDelta | None, body: JsonObject) -> ErrorDelta | None:
    """The error with the name of the field at fault, where the provider has it beside the message alone."""
    param = object_of(body.get("error")).get("param")
    if error is None or not isinstance(param, str) or not param or param in error.message:
        return error
    return msgspec.structs.replace(error, message=f"{error.message} ({param})")


def _media_type(reply: HttpReply) -> str:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def _has_proper_end(reply: HttpReply) -> bool:
    """The body has a length or a last chunk. Without them it ends when the connection does, for whatever reason."""
    headers = reply.headers
    return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()


async def _peek(reply: HttpReply) -> bytes:
    head = b""
    while len(head) < _PEEK_BYTES and (data := await reply.read()):
        head += data
    return head


async def _read_some(reply: HttpReply, max_bytes: int) -> bytes:
    """The beginning of a body, up to its end or past so many bytes."""
    pieces: list[bytes] = []
    size = 0
    while size < max_bytes and (data := await reply.read()):
        pieces.append(data)
        size += len(data)
    return b"".join(pieces)[:max_bytes]


def _excerpt(data: bytes) -> str:
    """One line of it, for a message."""
    return " ".join(data[:300].decode("utf-8", "replace").split())[:200]
