"""Raw model calls that outlive the request: background and stored responses.

Each writes its run's log as it goes; viewers tail the log, none is fed directly. A call whose process died goes on in
another one from the text that is on record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tailrace.calls.call_log import CALL_KIND, CallLog, RoutedRequest
from tailrace.calls.raw_model import with_history
from tailrace.errors import ProviderError, StreamCut
from tailrace.events import (
    AnyEvent,
    AttemptDiscarded,
    AttemptStarted,
    Entry,
    ProviderEvents,
    RunFinished,
    UsageRecorded,
)
from tailrace.events.kept_answer import KeptAnswer, kept_in
from tailrace.events.lost_attempt import LostAttempt, lost_in
from tailrace.journal.fold import fold
from tailrace.messages import JsonObject, Message, ModelRequest, Usage, Value
from tailrace.ports import Durability, Journal, NewRun, Run, Signal
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller, CallResult
from tailrace.runs.delta_log import always, never
from tailrace.runs.host import OnEnd, RunHost
from tailrace.runs.lease import LEASE_S
from tailrace.runs.recovery import ClaimedRun
from tailrace.runs.signals import STOP, Stopped, listen, run_beside, stop_only
from tailrace.system.own_task import finish
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.responses.client_request import parse_client_request
from tailrace.wire.token_estimate import estimated_usage

log = logging.getLogger("tailrace.calls")
RoutesFor = Callable[[ClientRequest], tuple[Route, ...]]


class CallSpec(Value):
    """Everything that one call is made from. It is stored with the run, so that any process can go on with it."""

    body: JsonObject  # as the client wrote it, in the words of the Responses API
    history: tuple[Message, ...] = ()  # what was said before it
    origin: JsonObject = msgspec.field(default_factory=dict)  # as with a turn
    headers: dict[str, str] = msgspec.field(default_factory=dict)  # of the request, for a provider of its dialect
    ignored: tuple[str, ...] = ()  # parameters that the model is not told


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
        """`routes_for` says where a request can go; it raises `ConfigError` and `InvalidRequest`. `on_end` is told of
        each call that ended here; it must return quickly."""
        super().__init__(journal, CALL_KIND, owner=owner, log=log, lease_s=lease_s, on_end=on_end)
        self._caller = caller
        self._routes_for = routes_for

    async def submit(self, spec: CallSpec, *, model: str, session: str, durability: Durability) -> Run:
        """A call that has begun; it goes on whether or not anything watches it."""
        return await self.start_run(NewRun(CALL_KIND, msgspec.to_builtins(spec), model, session, durability=durability))

    def _execution(self, claimed: ClaimedRun) -> _CallExecution:
        return _CallExecution(self._journal, self._caller, self._routes_for, claimed)

    async def _last_words(self, run: Run, entries: Sequence[Entry]) -> Sequence[AnyEvent]:
        if (lost := lost_in(entries)) is None:
            return ()
        spec = msgspec.convert(run.new.input, CallSpec)
        request = parse_client_request(spec.body).request
        return (_lost_usage(lost, with_history(spec.history, request), fold(entries).output),)

    def _count_lost(self, recorded: UsageRecorded) -> None:
        self._caller.count_lost(recorded)

    async def _cancel_kept(self, run: Run, kept: KeptAnswer) -> None:
        spec = msgspec.convert(run.new.input, CallSpec)
        await self._caller.cancel_kept(kept, self._routes_for(parse_client_request(spec.body)))


class _CallExecution:
    """One call under way, from the text on record to its sealed end."""

    def __init__(self, journal: Journal, caller: Caller, routes_for: RoutesFor, claimed: ClaimedRun) -> None:
        self._journal = journal
        self._caller = caller
        self._lease = claimed.lease
        self._spec = msgspec.convert(claimed.run.new.input, CallSpec)
        self._asked = msgspec.structs.replace(parse_client_request(self._spec.body), headers=self._spec.headers)
        self._routes = routes_for(self._asked)
        attempts = sum(isinstance(entry.event, AttemptStarted) for entry in claimed.entries)
        spent = (entry.event.usage for entry in claimed.entries if isinstance(entry.event, UsageRecorded))
        self._lost = lost_in(claimed.entries)
        self._began_a_tool_call = _began_a_tool_call(claimed.entries)
        self._record = self._new_log(
            fold(claimed.entries).output, attempts, sum(spent, Usage()), kept_in(claimed.entries)
        )

    async def run(self) -> RunFinished:
        try:
            result = await run_beside(self._answer(), listen(self._journal, self._lease, self._on_signal))
        except Stopped as exc:
            unwanted = self._record.kept
            await self._count_lost()
            try:
                return await self._record.seal(self._record.stopped(exc.failure))
            finally:  # the end may be sealed, and then no other process would cancel it
                if unwanted is not None:
                    await finish(self._caller.cancel_kept(unwanted, self._routes))
        except ProviderError as exc:
            return await self._record.seal(self._record.failed(exc))
        return await self._record.seal(self._record.completed(result))

    def _on_signal(self, signal: Signal) -> None:
        if signal.name == STOP:
            self._record.is_wanted = never
        stop_only(signal)

    async def _answer(self) -> CallResult:
        """The answer that an earlier process asked for, where its provider keeps it, else another one, from the text on
        record. Raises `ProviderError`."""
        request = with_history(self._spec.history, self._asked.request)
        if (kept := self._record.kept) is not None:
            before = msgspec.structs.replace(request, prefill=self._record.text.removesuffix(kept.text))
            result = await self._read_on(kept, before)
            if result is not None:
                return result
            self._began_a_tool_call |= self._record.called
            self._record = self._new_log(self._record.text, self._record.attempts, self._record.usage)
        await self._count_lost()
        if self._began_a_tool_call:  # viewers have seen it begin: it is not begun again (B34)
            raise StreamCut("the process ended in the middle of a tool call; ask again")
        request = msgspec.structs.replace(request, prefill=self._record.text)
        return await self._caller.complete(request, self._routes, listener=self._record)

    async def _read_on(self, kept: KeptAnswer, request: ModelRequest) -> CallResult | None:
        spent = self._record.usage
        try:
            return await self._caller.read_on(kept, request, self._routes, listener=self._record)
        finally:
            if self._record.usage != spent:  # it is of the whole answer
                self._lost = None

    async def _count_lost(self) -> None:
        """Records what an attempt has used that ended with its process, as an estimate, once."""
        lost, self._lost = self._lost, None
        if lost is None:
            return
        recorded = _lost_usage(lost, with_history(self._spec.history, self._asked.request), self._record.text)
        self._record.record_lost(recorded, lost.number)
        await self._journal.commit(self._lease)
        self._caller.count_lost(recorded)

    def _new_log(self, shown: str, attempts: int, usage: Usage, kept: KeptAnswer | None = None) -> CallLog:
        log = CallLog(
            self._journal,
            self._lease,
            shown=shown,
            attempts=attempts,
            usage=usage,
            keep_events=True,
            routed=RoutedRequest(self._asked, self._routes),
            kept=kept,
        )
        log.is_wanted = always  # another process goes on with the call
        return log


def _lost_usage(lost: LostAttempt, request: ModelRequest, shown: str) -> UsageRecorded:
    """An estimate of what an attempt has used that ended with its process."""
    asked = msgspec.structs.replace(request, prefill=shown[: max(0, len(shown) - lost.text_chars)])
    usage = estimated_usage(asked, lost.text_chars + lost.other_chars)
    return UsageRecorded(usage, lost.provider, lost.model)


def _began_a_tool_call(entries: Iterable[Entry]) -> bool:
    """Whether the newest attempt on record has shown the beginning of a tool call in its provider's own events."""
    began = False
    for entry in entries:
        event = entry.event
        if isinstance(event, AttemptStarted | AttemptDiscarded):
            began = False
        elif isinstance(event, ProviderEvents):
            items = (item for each in event.events if isinstance(item := each.get("item"), dict))
            began = began or any(item.get("type") in ("function_call", "custom_tool_call") for item in items)
    return began
