"""Raw model calls that outlive whoever asked: background and stored responses.

Owns the tasks in which they run. Each writes its run's log as it goes and nobody is fed directly: whoever wants to see
the call tails the log. A call that dies with its process goes on in the next one from the text that is on record.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from tailrace.errors import JournalError, ProviderError, RunSealed, StaleEpoch, TailraceError
from tailrace.events import AttemptStarted, RunFailure, Snapshot
from tailrace.messages import JsonObject, Message, Value
from tailrace.ports import Durability, Lease, NewRun, Run, Signal
from tailrace.runs.lease import held
from tailrace.runs.recovery import recover
from tailrace.runs.recovery import stop as stop_run
from tailrace.server.call_log import KIND, CallLog
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.v1.api_formats import RESPONSES
from tailrace.server.v1.model_target import raw_routes, with_history

log = logging.getLogger("tailrace.server")


class CallSpec(Value):
    """Everything that one call is made from. It is stored with the run, so that any process can go on with it."""

    body: JsonObject  # as the client wrote it, in the words of the Responses API
    history: tuple[Message, ...] = ()  # what was said before it
    origin: JsonObject = msgspec.field(default_factory=dict)  # as with a turn


class Calls:
    """One per server."""

    def __init__(self, frame: RequestPipeline) -> None:
        self._frame = frame
        self._app = frame.app
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Goes on with what a dead process left; on leaving gives back what has not ended."""
        async for orphan in recover(self._app.journal, self._app.owner, kind=KIND):
            attempts = sum(isinstance(entry.event, AttemptStarted) for entry in orphan.facts)
            self._spawn(orphan.run, orphan.lease, attempts)
        try:
            yield
        finally:
            for task in self._tasks.values():
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks.values())

    async def submit(self, spec: CallSpec, *, model: str, session: str, durability: Durability) -> Run:
        """A call that has begun; it goes on whoever watches."""
        new = NewRun(KIND, msgspec.to_builtins(spec), model, session, durability=durability)
        run, lease = await self._app.journal.start(new, self._app.owner)
        if lease is not None:
            self._spawn(run, lease)
        return run

    async def stop(self, run_id: str, *, by: str = "") -> None:
        """Ends the call as `stopped`, in whichever process it runs. One that has ended stays as it is."""
        try:
            if run_id in self._tasks:
                await self._app.journal.signal(run_id, Signal("stop", by=by))
            else:
                await stop_run(self._app.journal, run_id, self._app.owner, at=time.time(), by=by)
        except RunSealed:
            return

    def _spawn(self, run: Run, lease: Lease, attempts: int = 0) -> None:
        task = asyncio.get_running_loop().create_task(self._execute(run, lease, attempts), name=run.id)
        self._tasks[run.id] = task
        self._frame.track(task)
        task.add_done_callback(lambda _: self._tasks.pop(run.id, None))

    async def _execute(self, run: Run, lease: Lease, attempts: int) -> None:
        journal = self._app.journal
        async with held(journal, lease):
            shown = await self._shown(run) if attempts else ""
            record = CallLog(journal, lease, shown=shown)
            record.after(attempts)
            try:
                await self._until_stopped(run, lease, record, shown)
            except StaleEpoch:
                log.warning("run %s was taken over by another process", run.id)
            except TailraceError as exc:
                await record.broke(RunFailure("error", str(exc)))
            except Exception as exc:  # the top of the task: whatever it is, the run ends and says so
                log.exception("run %s failed", run.id)
                await record.broke(RunFailure("internal", f"{type(exc).__name__}: {exc}"))

    async def _shown(self, run: Run) -> str:
        match (await self._app.journal.snapshot(run.id)).event:
            case Snapshot(output=output):
                return output
            case _:
                return ""

    async def _until_stopped(self, run: Run, lease: Lease, record: CallLog, shown: str) -> None:
        """Cancelled from outside, it leaves the run as it is, for whoever claims it next."""
        stopped = asyncio.Event()
        work = asyncio.ensure_future(self._call(run, record, shown))
        watch = asyncio.ensure_future(self._watch(lease, work, stopped))
        try:
            await work
        except asyncio.CancelledError:
            if not stopped.is_set():
                raise
            finished = await record.stopped()
            self._frame.metrics.runs.inc(KIND, finished.status)
        finally:
            watch.cancel()
            work.cancel()
            await asyncio.wait({work, watch})

    async def _call(self, run: Run, record: CallLog, shown: str) -> None:
        spec = msgspec.convert(run.new.input, CallSpec)
        asked = RESPONSES.parse_request(spec.body)
        request = msgspec.structs.replace(with_history(spec.history, asked.request), prefill=shown)
        try:
            result = await self._app.caller.complete(request, raw_routes(self._app, asked), listener=record)
        except ProviderError as exc:
            finished = await record.failed(exc)
        else:
            finished = await record.completed(result)
        self._frame.metrics.runs.inc(KIND, finished.status)

    async def _watch(self, lease: Lease, work: asyncio.Future[None], stopped: asyncio.Event) -> None:
        seen = 0
        while True:
            try:
                signals = await self._app.journal.signals(lease, after=seen)
            except JournalError:
                work.cancel()  # fenced off: somebody else has the run
                return
            seen = max(signal.id for signal in signals)
            if any(signal.name == "stop" for signal in signals):
                stopped.set()
                work.cancel()
                return
