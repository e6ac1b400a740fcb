"""A Responses endpoint that is asked to keep its answers (`reattach: true`), and an answer that it keeps. When to
reattach is the attempt's part."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final, Self

from tailrace.errors import Permanent, ProviderError, StreamCut
from tailrace.messages import MAX_ANSWER_BYTES, AnyDelta, ErrorDelta, JsonObject, ModelRequest
from tailrace.ports import AnswerStream, ReattachingProvider
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.key_redaction import RedactedAnswer
from tailrace.providers.http.provider import HttpProvider
from tailrace.providers.http.refused_fields import RefusedFields
from tailrace.providers.http.streamed_answer import StreamedAnswer
from tailrace.providers.transport.port import HttpReply, Transport
from tailrace.wire.dialect import WireDialect
from tailrace.wire.peer_json import merged
from tailrace.wire.responses.decode import ResponsesDecoder

_KEEP: Final[JsonObject] = {"background": True, "store": True}  # how a provider is asked to keep its answer
MAX_POLLS: Final = 50  # of an answer that is neither streamed nor queued: with backoff, a good half hour
_NOT_ENDED = ("queued", "in_progress")
_STATUSES = (*_NOT_ENDED, "completed", "incomplete", "failed", "cancelled")
_ANSWER_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:~-]{0,255}")  # what may stand in the path of an address


def http_provider(endpoint: Endpoint, transport: Transport, refused: RefusedFields | None = None) -> HttpProvider:
    """The provider at this endpoint."""
    kind = ReattachingHttpProvider if endpoint.reattach else HttpProvider
    return kind(endpoint, transport, refused)


class ReattachingHttpProvider(HttpProvider, ReattachingProvider):
    """Asks for answers that the provider keeps."""

    def request_body(self, request: ModelRequest, refused: Collection[str] = (), *, stream: bool) -> JsonObject:
        body = super().request_body(request, refused, stream=stream)
        return {**body, **_KEEP} if stream and self._may_keep(request, refused) else body

    def _may_keep(self, request: ModelRequest, refused: Collection[str]) -> bool:
        """Whether nothing forbids to keep this answer. One that is cut here is not: what follows would be paid for."""
        if not _KEEP.keys().isdisjoint(refused) or self._cuts(request):
            return False
        chosen = merged(self._endpoint.extra_body, request.extra)
        return not any(chosen.get(name) is False for name in _KEEP)

    async def _streamed_answer(self, reply: HttpReply, request: ModelRequest, refused: Collection[str]) -> AnswerStream:
        if not self._may_keep(request, refused):
            return await super()._streamed_answer(reply, request, refused)
        kind, head = await self._kind_of(reply)
        answer = self._new_answer(request)
        if kind == "stream":
            answer.attach(reply, head)
            return answer
        body = self._checked(await self._json_body(reply, head))
        if body.get("status") not in _NOT_ENDED:
            return self._whole(body, request)
        answer.take_whole(body)
        return answer

    def _new_answer(self, request: ModelRequest, answer_id: str = "") -> ResumableStream:
        decoder = ResponsesDecoder(self._models[request.model].wire_quirks, keep_events=request.keep_events)
        return ResumableStream(self._wire, decoder, self._failed, request.max_answer_bytes, answer_id)

    @asynccontextmanager
    async def reattach(
        self, request: ModelRequest, answer_id: str, answer: AnswerStream | None = None
    ) -> AsyncGenerator[AnswerStream, None]:
        resumed = self._new_answer(request, answer_id) if answer is None else _resumable_in(answer)
        reply = await self._get_answer(request, answer_id, resumed.last_number)
        with self._reading(reply):
            await self._attach(resumed, reply)
            yield answer if answer is not None else self._without_key(resumed)

    async def cancel_answer(self, answer_id: str) -> None:
        reply = await self._send(self._endpoint.answer_url(answer_id, "/cancel"), b"")
        with self._reading(reply):
            await self._check(reply)

    async def _get_answer(self, request: ModelRequest, answer_id: str, after: int) -> HttpReply:
        """The events after this number. Where the provider no longer streams them, the response as it is now."""
        endpoint = self._endpoint
        starting_after = {"starting_after": str(after)} if after >= 0 else {}
        streamed = endpoint.answer_url(answer_id, stream="true", **starting_after)
        refusal: ProviderError | None = None
        for url in (streamed, endpoint.answer_url(answer_id)):
            reply = await self._send(url, request=request)
            if 200 <= reply.status < 300:
                return reply
            with self._reading(reply):
                refusal = refusal or await self._refusal(reply)
            if not isinstance(refusal, Permanent):
                break
        raise refusal if refusal is not None else AssertionError("two addresses were asked")

    async def _attach(self, answer: ResumableStream, reply: HttpReply) -> None:
        kind, head = await self._kind_of(reply)
        if kind == "stream":
            answer.attach(reply, head)
        else:
            body = await self._json_body(reply, head)
            answer.take_whole(body if body.get("status") in _STATUSES else self._checked(body))


class ResumableStream(StreamedAnswer):
    """An answer that the provider keeps. Another connection goes on after the last event that came.
    `answer_id`: where the id is known before the first event."""

    __slots__ = ("_known_id", "_polls", "_whole")

    def __init__(
        self,
        wire: WireDialect,
        decoder: ResponsesDecoder,
        failed: Callable[[ErrorDelta], ProviderError],
        max_bytes: int = MAX_ANSWER_BYTES,
        answer_id: str = "",
    ) -> None:
        self._decoder: ResponsesDecoder
        super().__init__(wire, decoder, failed, max_bytes)
        self._known_id = answer_id
        self._whole: list[AnyDelta] | None = None  # what a body brought that was not streamed
        self._polls = 0  # connections in a row that said no more than that the answer is not ready

    @property
    def resumable_id(self) -> str:
        known = self._known_id or self._decoder.response_id
        return known if _ANSWER_ID.fullmatch(known) and not self._decoder.settled else ""

    @property
    def is_queued(self) -> bool:
        return self._decoder.is_queued or 0 < self._polls < MAX_POLLS

    @property
    def last_number(self) -> int:
        return self._decoder.last_number

    def attach(self, reply: HttpReply, head: bytes = b"") -> Self:
        self._decoder.reopen()
        self._whole, self._polls = None, 0
        return super().attach(reply, head)

    def take_whole(self, body: JsonObject) -> None:
        """The provider gave the response whole, as far as it has come."""
        self._decoder.reopen()
        self._whole = self._decoder.take_whole(body)
        self._polls += 1

    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        if self._whole is None:
            await super().pump(take)
            return
        whole, self._whole = self._whole, []
        self._hand_on(whole, take)
        if not self._decoder.complete:
            raise StreamCut("the provider has not finished the answer and does not stream it")


def _resumable_in(answer: AnswerStream) -> ResumableStream:
    inner = answer.inner if isinstance(answer, RedactedAnswer) else answer
    if not isinstance(inner, ResumableStream):
        raise TypeError("the answer is not one that this provider keeps")
    return inner
