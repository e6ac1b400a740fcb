"""A model endpoint over HTTP, in any dialect: one request, its answer, and that the connection is closed however the
block is left. Knows nothing of retries, deadlines or other providers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import msgspec

from tailrace.config.quirks import Quirk, WireQuirks
from tailrace.errors import PeerError, ProviderError, Rejected
from tailrace.messages import Completion, Dialect, ErrorDelta, JsonObject, ModelRequest
from tailrace.ports import AnswerStream, FieldRefuser
from tailrace.providers.http.endpoint import NOTHING, Endpoint
from tailrace.providers.http.key_redaction import RedactedAnswer
from tailrace.providers.http.quirks import adapted_body, quirks_of, wire_quirks_of
from tailrace.providers.http.refused_fields import Place, RefusedFields, refused_field
from tailrace.providers.http.stop_cut import StopCutAnswer
from tailrace.providers.http.streamed_answer import StreamedAnswer, WholeAnswer, check_size, discard
from tailrace.providers.retry.backoff import retry_after_s
from tailrace.providers.transport.port import EVENT_STREAM, HttpReply, Transport
from tailrace.values.redact import TextRedactor
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.failure import failure, failure_in, to_exception
from tailrace.wire.peer_json import decode_object, encode_object, merged, object_of, objects_of, text_of

log = logging.getLogger("tailrace.providers")
MAX_BODY_BYTES = 64 * 1024 * 1024  # a whole answer that was not streamed
MAX_ERROR_BYTES = 64 * 1024
MAX_MODELS = 2000  # that are listed of one endpoint
MAX_MODEL_CHARS = 200
MAX_KNOWN_MODELS = 1024  # whose quirks are kept at hand: clients name any model they like
_PEEK_BYTES = 16  # enough to tell a stream from a page
_EVENT_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_NO_ROUTE = (404, 405, 501)
_UNSET = ModelRequest("", ())  # asks for nothing


class _ModelHere(msgspec.Struct, frozen=True, gc=False):
    """What is known of one model at this endpoint before it is asked: the same for every request."""

    place: Place
    quirks: tuple[Quirk, ...]
    wire_quirks: WireQuirks


class ReplyReading:
    """Closes the reply at the end of the block, and names the provider in an error of it."""

    def __init__(self, reply: HttpReply, provider: str) -> None:
        self._reply, self._provider = reply, provider

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._reply.close()
        if isinstance(error, ProviderError):
            error.provider = error.provider or self._provider


class _ModelsHere(dict[str, _ModelHere]):
    """What is known of each model, made when it is first asked for. Bounded, the oldest are forgotten."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __missing__(self, name: str) -> _ModelHere:
        quirks = quirks_of(self._endpoint, name)
        model = _ModelHere((self._endpoint.name, self._endpoint.url(), name), quirks, wire_quirks_of(quirks))
        if len(self) >= MAX_KNOWN_MODELS:
            del self[next(iter(self))]
        if len(name) <= MAX_MODEL_CHARS:
            self[name] = model
        return model


class _StreamedCall:
    """The context of one answer. A class: the context of a generator takes 14 calls more of 750 a request."""

    def __init__(self, provider: HttpProvider, request: ModelRequest) -> None:
        self._provider, self._request = provider, request
        self.reply: HttpReply  # once there is one

    def __aenter__(self) -> Coroutine[Any, Any, AnswerStream]:
        return self._provider.open_stream(self._request, self)

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.reply.close()
        if error is not None and isinstance(error, ProviderError):
            error.provider = error.provider or self._provider.name


class HttpProvider(FieldRefuser):
    """Satisfies `ports.Provider`. `refused` remembers which fields of ours endpoints refuse: one for a whole
    process."""

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
        self._models = _ModelsHere(endpoint)
        # Nothing is kept, cut or looked for in what it streams.
        self._passes_plain_streams = self._redactor.idle and not endpoint.reattach and self._wire.has_stop_strings

    def __repr__(self) -> str:
        return f"HttpProvider({self._endpoint!r})"

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AnswerStream]:
        return _StreamedCall(self, request)

    async def open_stream(self, request: ModelRequest, call: _StreamedCall) -> AnswerStream:
        """The answer. The call closes the reply that brings it."""
        body_without = partial(self.request_body, request, stream=True)
        call.reply, refused = await self._post(request, body_without, self._url)
        reply = call.reply
        if self._passes_plain_streams and reply.is_event_stream:
            return self._streamed(reply, request)  # as what follows would return it
        try:
            return self._cut(self._without_key(await self._streamed_answer(reply, request, refused)), request)
        except BaseException as exc:
            self._reading(reply).__exit__(type(exc), exc, None)
            raise

    async def complete(self, request: ModelRequest) -> Completion:
        body_without = partial(self.request_body, request, stream=False)
        reply, _ = await self._post(request, body_without, self._url)
        with self._reading(reply):
            answer = self._cut(self._without_key(await self._answer(reply, request)), request)
            await answer.pump(discard)  # a peer that streams unasked is understood
            return answer.completion()

    def _reading(self, reply: HttpReply) -> ReplyReading:
        return ReplyReading(reply, self.name)

    def _without_key(self, answer: AnswerStream) -> AnswerStream:
        if self._redactor.idle:
            return answer
        return RedactedAnswer(answer, self._redactor, self._wire.completion_from_body)

    def _cut(self, answer: AnswerStream, request: ModelRequest) -> AnswerStream:
        """The answers of an API without stop strings are cut here."""
        return StopCutAnswer(answer, request, self._wire) if self._cuts(request) else answer

    def _cuts(self, request: ModelRequest) -> bool:
        return not self._wire.has_stop_strings and bool(request.stop) and not request.verbatim

    def request_body(self, request: ModelRequest, refused: Collection[str] = (), *, stream: bool) -> JsonObject:
        """What is sent: the request in the dialect's words and the user's own fields, without those that were
        `refused`."""
        quirks, extra = self._models[request.model].quirks, self._endpoint.extra_body
        return adapted_body(request, self._wire, quirks, extra=extra, refused=refused, stream=stream)

    def left_out(self, request: ModelRequest) -> tuple[str, ...]:
        """The fields of the request that the endpoint was found to refuse for its model: it is asked without them."""
        if not (paths := self._refused.at(self._models[request.model].place)):
            return ()
        sources = (field.source for field in self._wire.optional_fields if field.path in paths and field.source)
        return tuple(dict.fromkeys(name for name in sources if getattr(request, name) != getattr(_UNSET, name)))

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The tokens of the request's input, as the provider counts them; None where it has no route for that."""
        if (url := self._endpoint.count_url()) is None:
            return None
        fields = self._wire.counted_fields.union(request.extra if request.verbatim else ())
        known = self._refused.at(self._models[request.model].place)
        body = self.request_body(request, known, stream=False)
        body = {name: value for name, value in body.items() if name in fields}
        reply = await self._send(url, encode_object(body), request)
        with self._reading(reply):
            if reply.status in _NO_ROUTE:
                return None
            await self._check(reply)
            counted = decode_object(await _read_some(reply, MAX_ERROR_BYTES)).get("input_tokens")
        return counted if isinstance(counted, int) and counted >= 0 else None

    async def relay(self, route: str, body: JsonObject, headers: Mapping[str, str] = NOTHING) -> JsonObject:
        """The whole answer of another route of the endpoint to this very body. Raises `ProviderError`."""
        request = ModelRequest(text_of(body.get("model")), (), headers=dict(headers))
        reply = await self._send(self._endpoint.route_url(route), encode_object(body), request)
        with self._reading(reply):
            await self._check(reply)
            answer = self._without_secrets(await self._json_body(reply))
        if (error := failure_in(answer)) is not None:
            raise self._failed(error)
        return answer

    def _without_secrets(self, body: JsonObject) -> JsonObject:
        return (
            body if self._redactor.idle else decode_object(self._redactor.redact(encode_object(body).decode()).encode())
        )

    async def list_models(self) -> tuple[str, ...]:
        """The names of the models that the endpoint lists, at most `MAX_MODELS`. Raises `ProviderError`."""
        reply = await self._send(self._endpoint.models_url())
        with self._reading(reply):
            await self._check(reply)
            listed = decode_object(await _read_some(reply, MAX_BODY_BYTES)).get("data")
        names = (text_of(model.get("id")) for model in objects_of(listed))
        return tuple(dict.fromkeys(name for name in names if 0 < len(name) <= MAX_MODEL_CHARS))[:MAX_MODELS]

    # ── one request ──────────────────────────────────────────────────────────────────────────────────────────

    async def _post(
        self, request: ModelRequest, body_without: Callable[[Collection[str]], JsonObject], url: str
    ) -> tuple[HttpReply, frozenset[str]]:
        """The reply, once it is known to be a success, and the fields that the body is without. A field of ours that
        the endpoint refuses by name is left out, at most once for each. `chosen`: the fields that the user or the
        client wrote; None for those of the config and the request. `wire`: the dialect of the route."""
        place = self._models[request.model].place
        refused = self._refused.at(place)
        left_out: set[str] = set()
        while True:
            body = body_without(refused)
            reply = await self._send(url, encode_object(body), request)
            if 200 <= reply.status < 300:
                break
            with self._reading(reply):
                error = await self._refusal(reply)
            chosen = merged(self._endpoint.extra_body, request.extra)
            field = refused_field(error, body, request, self._wire, chosen)
            if field is None or field in refused:
                raise error
            left_out.add(field)
            refused = refused.union(left_out)
            log.info("%s/%s refuses the field %s and is asked without it", self.name, request.model, field)
            log.debug("%s/%s refuses %s: %s", self.name, request.model, field, error)
        if left_out:
            self._refused.remember(place, left_out)
        return reply, refused

    async def _send(self, url: str, body: bytes | None = None, request: ModelRequest = _UNSET) -> HttpReply:
        """The reply to a POST of this body; to a GET where there is none. Raises `ProviderError`."""
        endpoint = self._endpoint
        send = self._transport.get if body is None else partial(self._transport.post, body=body)
        try:
            return await send(
                url,
                headers=endpoint.headers_with(request.headers) if request.headers else self._headers,
                connect_timeout_s=endpoint.connect_timeout_s,
                socket_path=endpoint.socket_path,
            )
        except ProviderError as exc:
            exc.provider = self.name
            raise

    async def _check(self, reply: HttpReply) -> None:
        """Raises `ProviderError` for any status but success."""
        if not 200 <= reply.status < 300:
            raise await self._refusal(reply)

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
            error = _refusal_in(said, status)
        except PeerError:
            error = None
        if error is None:
            error = failure(f"HTTP {status}: {_excerpt(data)}" if data else f"HTTP {status}", status=status)
        return self._failed(error, retry_after=retry_after_s(reply.headers, now=datetime.now(UTC)))

    def _failed(self, error: ErrorDelta, *, retry_after: float | None = None) -> ProviderError:
        redacted = msgspec.structs.replace(error, message=self._endpoint.redacted(error.message))
        return to_exception(redacted, provider=self.name, retry_after_s=retry_after)

    async def _streamed_answer(
        self, reply: HttpReply, request: ModelRequest, _refused: Collection[str]
    ) -> AnswerStream:
        """The answer to a request for a stream that was sent without the `_refused` fields."""
        return await self._answer(reply, request)

    async def _answer(self, reply: HttpReply, request: ModelRequest) -> AnswerStream:
        kind, head = await self._kind_of(reply)
        if kind == "whole":
            return self._whole(self._checked(await self._json_body(reply, head)), request)
        return self._streamed(reply, request, head)

    def _whole(self, body: JsonObject, request: ModelRequest) -> WholeAnswer:
        completion = self._wire.completion_from_body(body)
        check_size(completion, request.max_answer_bytes)
        return WholeAnswer(completion)

    def _streamed(self, reply: HttpReply, request: ModelRequest, head: bytes = b"") -> StreamedAnswer:
        decoder = self._wire.decoder(self._models[request.model].wire_quirks, keep_events=request.keep_events)
        return StreamedAnswer(self._wire, decoder, self._failed, request.max_answer_bytes).attach(reply, head)

    async def _kind_of(self, reply: HttpReply) -> tuple[Literal["stream", "whole"], bytes]:
        """What came, and the bytes that were read to tell. The content type decides, before any is decoded (A19)."""
        if reply.is_event_stream:
            return "stream", b""
        match reply.headers.get("content-type", "").partition(";")[0].strip().lower():
            case kind if kind == EVENT_STREAM:
                return "stream", b""
            case kind if kind == "application/json" or kind.endswith("+json"):
                return "whole", b""
            case "text/html" | "application/xhtml+xml" as kind:
                raise await self._not_a_stream(reply, kind)
            case kind:  # missing, or one that proxies put there: the first line tells
                head = await _peek(reply)
                if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
                    return "whole", head
                if not head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").startswith(_EVENT_FIELDS):
                    raise await self._not_a_stream(reply, kind or "no content type", head)
                return "stream", head

    async def _json_body(self, reply: HttpReply, head: bytes = b"") -> JsonObject:
        """A body that was not streamed."""
        data = head + await _read_some(reply, MAX_BODY_BYTES + 1)
        if len(data) > MAX_BODY_BYTES:
            raise PeerError(f"the answer exceeds {MAX_BODY_BYTES} bytes", excerpt=data)
        try:
            return decode_object(data)
        except PeerError:  # whose excerpt may hold the key
            safe = self._safe(data)
            raise PeerError(f"expected an answer in JSON, got {_excerpt(safe)}", excerpt=safe) from None

    def _checked(self, body: JsonObject) -> JsonObject:
        """The body of an answer. Raises `ProviderError` for one that reports a failure or is no answer."""
        if (error := self._wire.failure_of_body(body)) is not None:
            raise self._failed(error)
        if not isinstance(body.get(self._wire.answer_field), list):
            safe = self._safe(encode_object(body))
            raise PeerError(f"JSON, but not an answer in the {self.dialect} dialect: {_excerpt(safe)}", excerpt=safe)
        return body

    async def _not_a_stream(self, reply: HttpReply, kind: str, head: bytes = b"") -> PeerError:
        safe = self._safe(head + await _read_some(reply, MAX_ERROR_BYTES))
        message = f"expected an answer, got {kind}: {_excerpt(safe)}"
        return PeerError(message, excerpt=safe, status=reply.status, provider=self.name)

    def _safe(self, data: bytes) -> bytes:
        """The same without secrets; before it is cut short, or half a key would be left (J114)."""
        return self._endpoint.redacted(data[:MAX_ERROR_BYTES].decode("utf-8", "replace")).encode()


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


def _refusal_in(body: JsonObject, status: int) -> ErrorDelta | None:
    """The error of a body with another status, with the name of the field at fault."""
    error = failure_in(body, status=status)
    param = object_of(body.get("error")).get("param")
    if error is None or not isinstance(param, str) or not param or param in error.message:
        return error
    return msgspec.structs.replace(error, message=f"{error.message} ({param})")
