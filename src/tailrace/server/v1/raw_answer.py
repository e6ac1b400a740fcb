"""A raw model's answer to a connected client: the provider's stream, encoded in the client's dialect.

Owns the hot path. A read of the provider's socket becomes one write into the client's, in the same tick of the loop: no
queue, no task switch. The run is in memory and is recorded when it ends; a disconnect cancels the call, also while the
provider is silent (F68). An answer that breaks off continues where it stopped or ends in an error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from aiohttp import web

from tailrace.calls.call_log import CALL_KIND, FLUSH_EVERY_S, REQUEST_LEASE_S, CallLog, RoutedRequest
from tailrace.calls.raw_model import params_left_out, with_history
from tailrace.errors import JournalError, ProviderError, Retryable, TimedOut
from tailrace.events import RunFinished
from tailrace.messages import AnyDelta, EventForm, JsonObject, ReasoningDelta, TextDelta
from tailrace.ports import Journal, Lease, NewRun, Run
from tailrace.providers.attempt import StopCall
from tailrace.providers.call import CallResult
from tailrace.providers.call_listener import Verdict
from tailrace.providers.recovery_log import CURRENT_RUN
from tailrace.server.http.api_errors import ApiError, as_api_error, error_delta
from tailrace.server.http.request_body import IDENTITY
from tailrace.server.http.route import Answering, json_response
from tailrace.server.http.sse_stream import EventStream
from tailrace.server.v1.client_call import ClientCall, set_ignored_header
from tailrace.system.private_apis import request_values
from tailrace.wire.dialect import WireDialect
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.served_dialect import AnswerEncoder

log = logging.getLogger("tailrace.server")
LONG_CHARS = 1 << 16  # of what was relayed together: it is not buffered for a second


async def begin_raw(call: ClientCall) -> Answering:
    """Begins the run; what it returns answers, and raises `ProviderError` where every attempt failed. Raises
    `UnsupportedParameter`."""
    app, client_request = call.pipeline.app, call.client_request
    routes = app.raw_routes(client_request)
    requester = request_values(call.request)[IDENTITY].name
    kept: JsonObject = {"api": call.dialect.name, "request": client_request.body, "requester": requester}
    ignored = params_left_out(routes[0], client_request)
    if ignored:
        set_ignored_header(call.request, ignored)
        kept["ignored"] = ignored
    new = NewRun(CALL_KIND, kept, client_request.request.model, durability="memory")
    run, lease = await app.journal.start(new, app.owner, lease_s=REQUEST_LEASE_S)
    if lease is None:
        raise AssertionError("a run without an idempotency key is always new")
    CURRENT_RUN.set(run.id)
    return _RawAnswer(call, RoutedRequest(client_request, routes, ignored), run, lease).answer()


def broken_off(error: ProviderError) -> ApiError:
    """Of half an answer: a refusal keeps its provider's status, for the same request will fail again; anything else is
    an error of the gateway, whatever status the provider gave."""
    if not isinstance(error, Retryable):
        return as_api_error(error)
    return ApiError(504 if isinstance(error, TimedOut) else 502, str(error), code=error.code)


class _RawAnswer:
    """One call for one connected client."""

    __slots__ = ("_answering", "_call", "_lease", "_pipeline", "_routed", "_routes", "_run", "can_go_on")

    def __init__(self, call: ClientCall, routed: RoutedRequest, run: Run, lease: Lease) -> None:
        self._call = call
        self._pipeline = call.pipeline
        self._routed, self._routes = routed, routed.routes
        self._answering = routed.routes[0]  # the head of the answer names what this one's provider is not told
        self._run = run
        self._lease = lease
        self.can_go_on = not call.client_request.opaque_at  # another provider can be asked for the rest

    async def answer(self) -> web.StreamResponse:
        call, pipeline = self._call, self._pipeline
        journal, routed = pipeline.app.journal, self._routed
        live: _LiveListener | None = None
        if call.client_request.stream:
            record: CallLog = (live := _LiveListener(self, journal, self._lease, routed))
            live.stream = pipeline.stream(call.request, error_frame=live.error_frame)
        else:
            record = CallLog(journal, self._lease, routed, flush_every_s=FLUSH_EVERY_S)
        request = (
            with_history(call.history, call.client_request.request) if call.history else call.client_request.request
        )
        try:
            result = await pipeline.app.caller.complete(request, self._routes, listener=record)
        except ProviderError as exc:
            self._record(record, partial(record.failed, exc))
            raise
        except asyncio.CancelledError:
            self._record(record, record.stopped)
            raise
        if live is None:
            return self._whole_answer(record, result)
        try:
            if result.incomplete is not None:
                raise broken_off(result.incomplete.error)
            return await live.stream.end(live.ending(result))
        finally:  # the connection's next request does not wait for the journal
            self._record(live, partial(live.completed, result))

    def _whole_answer(self, record: CallLog, result: CallResult) -> web.Response:
        self._record(record, partial(record.completed, result))
        if result.incomplete is not None:
            raise broken_off(result.incomplete.error)
        self.begin_attempt(result.provider)
        header = self._call.header(self._run, DIALECTS[result.completion.dialect], ended=time.time())
        return json_response(self._call.dialect.encode_body(result.completion, header))

    def new_encoder(self, provider: str) -> AnswerEncoder:
        """The answer begins: a parameter that its provider has refused meanwhile is named in its head."""
        dialect = self.begin_attempt(provider)
        return self._call.dialect.new_encoder(self._call.header(self._run, dialect, provider=provider))

    def begin_attempt(self, provider: str) -> WireDialect:
        """This provider answers: until the head is sent, it names what this provider is not told. Its dialect."""
        route, client_request = self._answering, self._call.client_request
        # A provider of the client's own dialect is not told the same from the beginning to the end.
        if route.provider.name != provider or route.provider.dialect != client_request.dialect:
            route = next((route for route in self._routes if route.provider.name == provider), self._routes[0])
            self._answering = route
            set_ignored_header(self._call.request, params_left_out(route, client_request))
        return DIALECTS[route.provider.dialect]

    def _record(self, record: CallLog, end: Callable[[], RunFinished]) -> None:
        """Ends the run without waiting for the journal. The client has its answer: a failing journal is logged, not
        sent."""
        metrics = self._pipeline.metrics

        def recorded(error: JournalError | None) -> None:
            if error is not None:  # the journal's log says why
                metrics.lost_runs.inc(CALL_KIND)
            else:
                metrics.runs.inc(CALL_KIND, finished.status)

        try:
            finished = end()
            record.seal_soon(finished, recorded)
        except JournalError as exc:
            log.warning("run %s ended and is on no record, its usage is counted: %s", self._run.id, exc)
            recorded(exc)


class _LiveListener(CallLog):
    """Deltas go to the client first, then to the log."""

    __slots__ = ("_encoder", "_provider", "_raw", "stream")

    stream: EventStream

    def __init__(self, raw: _RawAnswer, journal: Journal, lease: Lease, routed: RoutedRequest) -> None:
        super().__init__(journal, lease, routed, flush_every_s=FLUSH_EVERY_S)
        self._raw = raw
        self._provider = ""
        self._encoder: AnswerEncoder | None = None

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        self._provider = provider
        dialect = self._raw.begin_attempt(provider)
        if self._encoder is not None:
            self._encoder.new_attempt(provider, dialect)
        super().attempt_started(number, provider, model)

    def deltas(self, deltas: list[AnyDelta]) -> None:
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = self._raw.new_encoder(self._provider)
        if data := encoder.encode(deltas):  # until something is sent, an error can still be a status (D52)
            self.stream.send(data)
        super().deltas(deltas)

    def relay(self, form: EventForm) -> Callable[[bytes], float] | None:
        ours = self._encoder.relayed_form(form) if self._encoder is not None else None
        return self.stream.write_between(ours.prefix, ours.suffix) if ours is not None else None

    def relayed(self, deltas: list[AnyDelta], _times: list[float]) -> None:
        if self._encoder is not None:
            self._encoder.encode(deltas)  # the client has these bytes: the encoder notes what they were
        super().deltas(deltas)
        if any(isinstance(delta, TextDelta | ReasoningDelta) and len(delta.text) > LONG_CHARS for delta in deltas):
            self.flush()

    def verdict(self, error: ProviderError) -> Verdict:
        """No other attempt can go on from a tool call whose arguments are open (B34), from several choices, or where
        the request cannot be sent again: the client has seen those."""
        if self.called or self.several or (self._shown and not self._raw.can_go_on):
            return StopCall(error)
        return "continue"

    def ending(self, result: CallResult) -> bytes:
        """The last events; of an answer that was not streamed, all of them."""
        encoder = self._encoder or self._raw.new_encoder(result.provider)
        if result.attempts[-1].streamed:
            return encoder.close(at=time.time())
        completion = result.completion
        deltas = DIALECTS[completion.dialect].deltas_of_completion(completion, texts=not self._shown)
        return encoder.encode(deltas) + encoder.close(at=time.time())

    def error_frame(self, error: ApiError) -> bytes:
        encoder = self._encoder or self._raw.new_encoder(self._provider)
        return encoder.encode([error_delta(error)])
