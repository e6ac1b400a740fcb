"""Raw model calls that outlive the request: background and stored responses.

Each writes its run's log as it goes; viewers tail the log, none is fed directly. A call whose process died goes on in
another one from the text that is on record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import msgspec

from tailrace import events
from tailrace.calls.call_log import CALL_KIND, CallLog, RoutedRequest
from tailrace.calls.raw_model import with_history
from tailrace.errors import ProviderError
from tailrace.journal.fold import fold
from tailrace.messages import JsonObject, Message, Usage, Value
from tailrace.ports import Durability, Journal, NewRun, Run, Signal
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller, CallResult
from tailrace.providers.open_attempt import open_attempts
from tailrace.runs.delta_log import always, never
from tailrace.runs.host import OnEnd, RunHost
from tailrace.runs.lease import LEASE_S
from tailrace.runs.recovery import ClaimedRun
from tailrace.runs.signals import STOP, Stopped, listen, run_beside, stop_only
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

    async def submit(self, spec: CallSpec, *, model: str, session: str, durability: Durability) -> Run:
        """A call that has begun; it goes on whether or not anything watches it."""
        return await self.start_run(NewRun(CALL_KIND, msgspec.to_builtins(spec), model, session, durability=durability))

    def _execution(self, claimed: ClaimedRun) -> _CallExecution:
        return _CallExecution(self._journal, self._caller, self._routes_for, claimed)


class _CallExecution:
    """One call under way, from the text on record to its sealed end."""

    def __init__(self, journal: Journal, caller: Caller, routes_for: RoutesFor, claimed: ClaimedRun) -> None:
        self._journal = journal
        self._caller = caller
        self._lease = claimed.lease
        self._spec = msgspec.convert(claimed.run.new.input, CallSpec)
        self._asked = msgspec.structs.replace(parse_client_request(self._spec.body), headers=self._spec.headers)
        self._routes = routes_for(self._asked)
        spent = (entry.event.usage for entry in claimed.entries if isinstance(entry.event, events.UsageRecorded))
        left = open_attempts(claimed.entries).get("")
        self._record = CallLog(
            self._journal,
            self._lease,
            shown=fold(claimed.entries).output,
            attempts=sum(isinstance(entry.event, events.AttemptStarted) for entry in claimed.entries),
            usage=sum(spent, Usage()),
            keep_events=True,
            routed=RoutedRequest(self._asked, self._routes),
            resumed=left.resumable if left is not None else None,
            began_call=_began_a_tool_call(claimed.entries),
        )
        self._record.goes_on_later = always  # in another process

    async def run(self) -> events.RunFinished:
        try:
            result = await run_beside(self._answer(), listen(self._journal, self._lease, self._on_signal))
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
        request = with_history(self._spec.history, self._asked.request)
        if self._record.resumable is None:
            self._record.start_over()
        request = msgspec.structs.replace(request, prefill=self._record.text)
        return await self._record.complete(self._caller, request, self._routes)


def _began_a_tool_call(entries: Iterable[events.Entry]) -> bool:
    """Whether the newest attempt on record has shown the beginning of a tool call in its provider's own events."""
    began = False
    for entry in entries:
        event = entry.event
        if isinstance(event, events.AttemptStarted | events.AttemptDiscarded):
            began = False
        elif isinstance(event, events.ProviderEvents):
            items = (item for each in event.events if isinstance(item := each.get("item"), dict))
            began = began or any(item.get("type") in ("function_call", "custom_tool_call") for item in items)
    return began
