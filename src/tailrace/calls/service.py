"""Raw model calls that outlive the request: background and stored responses.

Each writes its run's log as it goes; viewers tail the log, none is fed directly. A call whose process died goes on in
another one from the text that is on record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from tailrace import events
from tailrace.calls.call_log import CALL_KIND, NOTHING_LOGGED, CallLog, LoggedCall, RoutedRequest
from tailrace.calls.raw_model import with_history
from tailrace.errors import ProviderError
from tailrace.messages import JsonObject, Message, Value
from tailrace.ports import Durability, Journal, NewRun, Run, Signal
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller, CallResult
from tailrace.runs.delta_log import always, never
from tailrace.runs.host import OnEnd, RunHost
from tailrace.runs.lease import LEASE_S
from tailrace.runs.recovery import ClaimedRun
from tailrace.runs.signals import STOP, Stopped, run_signalled, stop_only
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.responses.client_request import parse_client_request

log = logging.getLogger("tailrace.calls")
RoutesFor = Callable[[ClientRequest], tuple[Route, ...]]


class CallSpec(Value):
    """Everything that one call is made from. It is stored with the run, so that any process can go on with it."""

    body: JsonObject  # as the client wrote it, in the words of the Responses API
    history: tuple[Message, ...] = ()  # what was said before it
    origin: JsonObject = msgspec.field(default_factory=dict)  # as with a turn
    headers: dict[str, str] = msgspec.field(default_factory=dict)  # of the request, for a provider of its dialect
    ignored: tuple[str, ...] = ()  # parameters that are not sent to the model

    def as_input(self) -> JsonObject:
        """The input of the run, which shares the body and the origin: a stream holds neither twice."""
        rest = msgspec.to_builtins(msgspec.structs.replace(self, body={}, origin={}))
        return {**rest, "body": self.body, "origin": self.origin}


class CallService(RunHost["_CallExecution"]):
    """The raw calls of this process that outlive their requests."""

    def __init__(
        self,
        journal: Journal,
        caller: Caller,
        routes_for: RoutesFor,
        *,
        owner: str,
        lease_s: float = LEASE_S,
        on_end: OnEnd | None = None,
    ) -> None:
        """`routes_for` says where a request can go; it raises `ConfigError` and `InvalidRequest`. `on_end` is called
        with each call that ended here; it must return quickly."""
        super().__init__(journal, CALL_KIND, owner=owner, log=log, lease_s=lease_s, on_end=on_end)
        self._caller = caller
        self._routes_for = routes_for

    async def submit(
        self, spec: CallSpec, *, model: str, session: str, durability: Durability, routed: RoutedRequest | None = None
    ) -> Run:
        """A call that has begun; it goes on whether or not anything watches it. `routed`, the spec's body as it was
        parsed, saves parsing it again."""
        new = NewRun(CALL_KIND, spec.as_input(), model, session, durability=durability)
        executed = partial(_CallExecution, self._journal, self._caller, spec, routed) if routed else None
        return await self.start_run(new, execution=executed)

    def begin(self, spec: CallSpec, model: str, durability: Durability, routed: RoutedRequest) -> Run | None:
        """As `submit` without a session, where `begin_run` can do it."""
        new = NewRun(CALL_KIND, spec.as_input(), model, durability=durability)
        return self.begin_run(new, partial(_CallExecution, self._journal, self._caller, spec, routed))

    def _execution(self, claimed: ClaimedRun) -> _CallExecution:
        spec = msgspec.convert(claimed.run.new.input, CallSpec)
        asked = msgspec.structs.replace(parse_client_request(spec.body), headers=spec.headers)
        routed = RoutedRequest(asked, self._routes_for(asked))
        return _CallExecution(self._journal, self._caller, spec, routed, claimed)


class _CallExecution:
    """One call under way, from the text on record to its sealed end."""

    def __init__(
        self, journal: Journal, caller: Caller, spec: CallSpec, routed: RoutedRequest, claimed: ClaimedRun
    ) -> None:
        self._journal = journal
        self._caller = caller
        self._lease = claimed.lease
        self._request = with_history(spec.history, routed.request.request)
        self._routes = routed.routes
        logged = LoggedCall.of(claimed.entries) if claimed.entries else NOTHING_LOGGED
        self._record = CallLog(journal, claimed.lease, routed, logged=logged, keep_events=True)
        self._record.goes_on_later = always  # in another process

    async def run(self) -> events.RunFinished:
        try:
            result = await run_signalled(self._answer(), self._journal, self._lease, self._on_signal)
        except Stopped as exc:
            return await self._record.seal(self._record.stopped(exc.failure))
        except ProviderError as exc:
            return await self._record.seal(self._record.failed(exc))
        return await self._record.seal(self._record.completed(result))

    def _on_signal(self, signal: Signal) -> None:
        if signal.name == STOP:
            self._record.goes_on_later = never
        stop_only(signal)

    async def _answer(self) -> CallResult:
        """Raises `ProviderError`."""
        if self._record.resumable is None:
            self._record.start_over()
        request = msgspec.structs.replace(self._request, prefill=self._record.text)
        return await self._record.complete(self._caller, request, self._routes)
