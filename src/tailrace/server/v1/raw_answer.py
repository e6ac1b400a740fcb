"""A raw model's answer to a client that waits for it: the provider's stream, said in the client's dialect.

Owns the hot path. A read of the provider's socket becomes one write into the client's, in the same tick of the loop:
nothing is queued, no task is woken. The run lives in memory and is recorded when it ends; the client's going ends the
call, also while the provider is silent (F68).

Raw means raw: the client sees what the provider sends. It cannot be made to forget, so an answer that breaks off either
goes on where it stopped or ends in an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import web

from tailrace.calls.listener import FLUSH_EVERY_S, KIND, LEASE_S, CallLog
from tailrace.errors import JournalError, ProviderError, TimedOut
from tailrace.events import RunFinished
from tailrace.messages import AnyDelta, Dialect, JsonObject, Message
from tailrace.ports import Journal, Lease, NewRun, Run
from tailrace.providers.attempt import Route, StopCall
from tailrace.providers.call import CallResult
from tailrace.providers.call_listener import Verdict
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.json_answer import json_response
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.sse_stream import EventStream
from tailrace.server.v1.api_formats import AnswerHeader, ApiFormat, Encoder, answer_id, error_delta
from tailrace.server.v1.model_target import after, raw_routes
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.completion_deltas import deltas_of

log = logging.getLogger("tailrace.server")


async def answer_raw(
    frame: RequestPipeline,
    request: web.Request,
    asked: ClientRequest,
    voice: ApiFormat,
    *,
    history: tuple[Message, ...] = (),
    fields: JsonObject | None = None,
) -> web.StreamResponse:
    """`history` is what was said before, beside what the client says now; `fields` stand in the answer again. Raises
    `ProviderError` where no answer can be had, `ApiError` 400 for what the model cannot be asked."""
    app = frame.app
    routes = raw_routes(app, asked)
    new = NewRun(KIND, {"api": voice.dialect, "request": asked.body}, asked.model, durability="memory")
    run, lease = await app.journal.start(new, app.owner, lease_s=LEASE_S)
    if lease is None:
        raise AssertionError("a run without an idempotency key is a new one")
    call = _RawAnswer(frame, voice, asked, routes, run, lease, history, fields or {})
    return await (call.streamed(request) if asked.stream else call.whole())


def broken_off(error: ProviderError) -> ApiError:
    """Half an answer is none, and whatever the provider says of it, the gateway failed."""
    return ApiError(504 if isinstance(error, TimedOut) else 502, str(error), code=error.code)


class _RawAnswer:
    """One call for one client, who waits."""

    def __init__(
        self,
        frame: RequestPipeline,
        voice: ApiFormat,
        asked: ClientRequest,
        routes: tuple[Route, ...],
        run: Run,
        lease: Lease,
        history: tuple[Message, ...],
        fields: JsonObject,
    ) -> None:
        self._frame = frame
        self._voice = voice
        self._asked = asked
        self._routes = routes
        self._run = run
        self._lease = lease
        self._history = history
        self._fields = fields

    async def whole(self) -> web.Response:
        record = CallLog(self._frame.app.journal, self._lease, flush_every_s=FLUSH_EVERY_S)
        result = await self._complete(record)
        await self._frame.run_to_end(self._record(record.completed(result)))
        if result.incomplete is not None:
            raise broken_off(result.incomplete.error)
        return json_response(self._voice.body(result.completion, self._saying(result.completion.dialect)))

    async def streamed(self, request: web.Request) -> web.StreamResponse:
        live = _LiveListener(self._frame.app.journal, self._lease, self._encoder, can_go_on=not self._asked.opaque)
        live.stream = self._frame.stream(request, frame=live.error_frame)
        result = await self._complete(live)
        try:
            if result.incomplete is not None:
                raise broken_off(result.incomplete.error)
            return await live.stream.end(live.ending(result))
        finally:  # the connection's next request need not wait for storage
            self._frame.track(asyncio.get_running_loop().create_task(self._record(live.completed(result))))

    def _encoder(self, provider: str) -> Encoder:
        dialects = {route.provider.name: route.provider.dialect for route in reversed(self._routes)}
        return self._voice.encoder(self._saying(dialects.get(provider, self._routes[0].provider.dialect)))

    def _saying(self, source: Dialect) -> AnswerHeader:
        return AnswerHeader(
            id=answer_id(self._voice, self._run.id),
            model=self._asked.model,
            created=int(self._run.created_at),
            source=source,
            include_usage=self._asked.include_usage,
            fields=self._fields,
        )

    async def _complete(self, record: CallLog) -> CallResult:
        try:
            request = after(self._history, self._asked.request)
            return await self._frame.app.caller.complete(request, self._routes, listener=record)
        except ProviderError as exc:
            await self._frame.run_to_end(self._record(record.failed(exc)))
            raise
        except asyncio.CancelledError:
            await self._frame.run_to_end(self._record(record.stopped()))
            raise

    async def _record(self, end: Coroutine[Any, Any, RunFinished]) -> None:
        """The client has its answer: a journal that fails now is ours to know, not the client's."""
        try:
            finished = await end
        except JournalError:
            log.exception("run %s ended and could not be recorded", self._run.id)
        else:
            self._frame.metrics.runs.inc(KIND, finished.status)


class _LiveListener(CallLog):
    """Deltas go to the client first, then to the log."""

    stream: EventStream

    def __init__(
        self, journal: Journal, lease: Lease, encoder_of: Callable[[str], Encoder], *, can_go_on: bool
    ) -> None:
        super().__init__(journal, lease, flush_every_s=FLUSH_EVERY_S)
        self._encoder_of = encoder_of
        self._can_go_on = can_go_on
        self._provider = ""
        self._encoder: Encoder | None = None

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        self._provider = provider
        super().attempt_started(number, provider, model)

    def deltas(self, deltas: list[AnyDelta]) -> None:
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = self._encoder_of(self._provider)
        if data := encoder.encode(deltas):
            self.stream.send(data)
        super().deltas(deltas)

    def verdict(self, error: ProviderError) -> Verdict:
        """No other attempt can go on from a tool call whose arguments are open (B34), from several choices, or where
        the request cannot be sent again: the client has seen those."""
        if self.called or self.several or (self._shown and not self._can_go_on):
            return StopCall(error)
        return "continue"

    def ending(self, result: CallResult) -> bytes:
        """The last events; of an answer that was not streamed, all of them."""
        encoder = self._encoder or self._encoder_of(result.provider)
        if result.attempts[-1].streamed:
            return encoder.close()
        return encoder.encode(deltas_of(result.completion, texts=not self._shown)) + encoder.close()

    def error_frame(self, error: ApiError) -> bytes:
        encoder = self._encoder or self._encoder_of(self._provider)
        return encoder.encode([error_delta(error)])
