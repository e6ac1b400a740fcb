"""The agent for many: starts turns, lets them run whoever watches, stops them, and goes on after a crash.

Owns the tasks in which turns run. Whoever wants to see one tails its log; nobody here knows them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Literal, Self

import msgspec

from tailrace.agent.context import cleaned
from tailrace.agent.observer import UNOBSERVED, Observer
from tailrace.agent.runner import TurnRunner, TurnSettings
from tailrace.agent.safety.redact import Redactor
from tailrace.agent.session import Sessions, ended, history_of, last_words
from tailrace.agent.turn import Turn, TurnLimits
from tailrace.errors import JournalError, RunSealed, StaleEpoch, TailraceError
from tailrace.events import Decision, Entry, MessageRecorded, MessageStop, RunFailure, RunFinished, Snapshot
from tailrace.messages import JsonObject, Message, ModelRequest, ToolSpec, Value
from tailrace.ports import Durability, Journal, Lease, NewRun, Run, RunState, Signal
from tailrace.providers.call import Caller
from tailrace.runs.lease import held
from tailrace.runs.recovery import recover
from tailrace.runs.recovery import stop as stop_run

log = logging.getLogger("tailrace.agent")
Busy = Literal["interrupt", "queue"]
KIND = "agent"
LEASE_S = 30.0  # renewed while a run is held; a process that stops renewing loses its runs after so long


class TurnSpec(Value):
    """Everything that one turn is made from. It is stored with the run, so that any process can go on with it."""

    message: Message
    model: str = ""  # "<provider>/<model>"; empty: the configured one
    request: ModelRequest | None = None  # sampling and further fields of the asker's own
    system: str = ""
    history: tuple[Message, ...] | None = None  # the asker's own account of what was said before
    foreign: tuple[ToolSpec, ...] = ()  # tools that the asker runs
    directory: str = ""
    requester: str = ""
    reachable: bool = False  # somebody is there who can answer an approval
    yolo: bool = False
    checkpoints: bool = False
    max_turns: int | None = None
    tools: tuple[str, ...] | None = None  # which of ours are offered; None: the configured ones
    busy: Busy = "interrupt"  # what becomes of a run that has the session's turn: it is stopped, or waited for
    origin: JsonObject = msgspec.field(default_factory=dict)  # as the asker put it: kept for whoever shows the run


Equip = Callable[[TurnSpec, Run], TurnSettings]
OnEnd = Callable[[Run, RunFinished], None]


class AgentService:
    """One per process. Use it as an async context manager: leaving cancels what runs and gives the runs back."""

    def __init__(  # noqa: PLR0913 - one keyword per collaborator
        self,
        journal: Journal,
        caller: Caller,
        equip: Equip,
        *,
        owner: str,
        limits: TurnLimits | None = None,
        durability: Durability = "committed",
        on_end: OnEnd | None = None,
        observer: Observer = UNOBSERVED,
        redactor: Redactor | None = None,
    ) -> None:
        """`on_end` is told of each run that ended here; it must return quickly. `observer` watches each turn. What the
        `redactor` knows is taken out of a question before it is stored, and so before any model sees it (J114)."""
        self._journal = journal
        self._caller = caller
        self._equip = equip
        self._owner = owner
        self._limits = limits or TurnLimits()
        self._durability: Durability = durability
        self._on_end = on_end
        self._observer = observer
        self._redactor = redactor or Redactor()
        self._sessions = Sessions()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[str] = set()  # of these; one that waits for its turn need not begin
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.sleep(0)  # a turn that was sealed in this tick is about to say so: its last word is not cut off
        for task in self._tasks.values():
            task.cancel()
        await self._stack.aclose()

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(
        self,
        spec: TurnSpec,
        *,
        session: str = "",
        idempotency_key: str = "",
        durability: Durability | None = None,
        deadline_at: float | None = None,
    ) -> Run:
        """A run that has begun; it goes on whoever watches. With a known idempotency key, the run that has it. It is as
        durable as the service's runs are unless it is said here.

        In a session that is busy, the runs before it are stopped or waited for."""
        redact = self._redactor.redact_message
        history = tuple(map(redact, spec.history)) if spec.history is not None else None
        spec = msgspec.structs.replace(spec, message=redact(cleaned(spec.message)), history=history)
        new = NewRun(
            kind=KIND,
            input=msgspec.to_builtins(spec),
            model=spec.model,
            session=session,
            idempotency_key=idempotency_key,
            durability=durability or self._durability,
            deadline_at=deadline_at,
        )
        run, lease = await self._journal.start(new, self._owner, lease_s=LEASE_S)
        if lease is None:
            return run
        before = self._sessions.members(session)
        self._spawn(run, lease, spec)
        if spec.busy == "interrupt":
            for run_id in before:
                await self.stop(run_id)
        return run

    async def finished(self, run_id: str) -> RunFinished:
        """How the run ended, once it has."""
        await ended(self._journal, run_id)
        run = await self._journal.get(run_id)
        if run.finished is None:
            raise JournalError(f"run {run_id} is parked: {run.parked.message if run.parked else 'nobody executes it'}")
        return run.finished

    async def stop(self, run_id: str, *, by: str = "") -> None:
        """Ends the run as `stopped`. One that has ended already stays as it is."""
        try:
            if run_id in self._tasks:
                self._stopped.add(run_id)
                await self._journal.signal(run_id, Signal("stop", by=by))
            else:
                await stop_run(self._journal, run_id, self._owner, at=time.time(), by=by, last_words=last_words)
        except RunSealed:
            return

    async def answer(self, run_id: str, approval_id: str, decision: Decision, *, by: str = "") -> None:
        """Answers an approval, in whichever process the run is. Raises `RunSealed`, `RunNotFound`."""
        payload = {"approval_id": approval_id, "decision": decision}
        await self._journal.signal(run_id, Signal("approval", payload, by=by))

    async def recover(self, *, session: str | None = None) -> list[str]:
        """Goes on with the unfinished turns of dead processes, of one session where it is named; returns their runs."""
        found: list[str] = []
        async for orphan in recover(self._journal, self._owner, kind=KIND, session=session, lease_s=LEASE_S):
            spec = msgspec.convert(orphan.run.new.input, TurnSpec)
            entries = await self._journal.read(orphan.run.id)
            self._spawn(orphan.run, orphan.lease, spec, list(entries))
            found.append(orphan.run.id)
        return found

    async def drain(self, timeout_s: float) -> None:
        """Lets what runs come to its end, for so long. What has not by then is given back when the service ends."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=timeout_s)

    def current(self, session: str) -> str | None:
        """The run that has the session's turn in this process."""
        return self._sessions.current(session)

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    # ── execution ────────────────────────────────────────────────────────────────────────────────────────────

    def _spawn(self, run: Run, lease: Lease, spec: TurnSpec, entries: list[Entry] | None = None) -> None:
        self._sessions.join(run.new.session, run.id)
        task = self._group.create_task(self._execute(run, lease, spec, entries or []), name=run.id)
        self._tasks[run.id] = task
        task.add_done_callback(lambda _: self._forget(run))

    def _forget(self, run: Run) -> None:
        del self._tasks[run.id]
        self._stopped.discard(run.id)
        self._sessions.leave(run.new.session, run.id)

    async def _execute(self, run: Run, lease: Lease, spec: TurnSpec, entries: list[Entry]) -> None:
        """The top of a run's task: what goes wrong with it stays its own."""
        try:
            async with held(self._journal, lease, lease_s=LEASE_S):
                await self._attempt(run, lease, spec, entries)
        except JournalError as exc:
            log.warning("run %s was not given back: %s", run.id, exc)

    async def _attempt(self, run: Run, lease: Lease, spec: TurnSpec, entries: list[Entry]) -> None:
        try:
            async with self._sessions.turn_of(run.new.session, run.id):
                await self._clear_session(run, spec.busy)
                with self._observer.turn(run) as ended:
                    finished = await self._turn(run, lease, spec, entries)
                    ended(finished)
                self._ended(run, finished)
        except (StaleEpoch, RunSealed):
            log.warning("run %s was taken over by another process", run.id)
        except TailraceError as exc:
            await self._fail(run, lease, RunFailure("error", str(exc)))
        except Exception as exc:  # whatever it is, the run ends and says so
            log.exception("run %s failed", run.id)
            await self._fail(run, lease, RunFailure("internal", f"{type(exc).__name__}: {exc}"))

    async def _clear_session(self, run: Run, busy: Busy) -> None:
        """Runs of the session that other processes have, or left behind, come to their end first (I101). One that
        nobody executes is not waited for: it would never end."""
        if not run.new.session:
            return
        states: tuple[RunState, ...] = ("pending", "running")
        others = await self._journal.runs(session=run.new.session, kind=KIND, states=states, before=run.id)
        abandoned = {orphan.id for orphan in await self._journal.orphans()} if others else set()
        for other in others:
            if other.id not in self._tasks:
                if busy == "interrupt" or other.id in abandoned:
                    await self.stop(other.id)
                await ended(self._journal, other.id)

    async def _turn(self, run: Run, lease: Lease, spec: TurnSpec, entries: list[Entry]) -> RunFinished:
        history = spec.history
        if history is None:
            history = await history_of(self._journal, run.new.session, before=run.id) if run.new.session else ()
        limits = self._limits
        if spec.max_turns is not None:
            limits = msgspec.structs.replace(limits, max_calls=spec.max_turns)
        turn = Turn(history, limits=limits, foreign=[tool.name for tool in spec.foreign])
        turn.replay(entries)
        begun = any(isinstance(entry.event, MessageRecorded) for entry in entries)
        runner = TurnRunner(self._journal, lease, turn, self._caller, self._equip(spec, run))
        message = None if begun else spec.message
        return await runner.run(message, stopped=run.id in self._stopped)

    async def _fail(self, run: Run, lease: Lease, failure: RunFailure) -> None:
        """Ends the run with what its log shows. One that cannot be ended is left to whoever recovers it."""
        try:
            try:
                finished = await self._seal_failed(lease, failure)
            except (StaleEpoch, RunSealed):
                raise
            except JournalError:  # a lease is void once storage refused one of its entries: claimed anew, it is not
                anew = await self._journal.claim(run.id, self._owner, lease_s=LEASE_S)
                finished = await self._seal_failed(anew, failure)
        except JournalError as exc:
            log.warning("run %s failed and could not be ended: %s", run.id, exc)
        else:
            self._ended(run, finished)

    async def _seal_failed(self, lease: Lease, failure: RunFailure) -> RunFinished:
        state = (await self._journal.snapshot(lease.run_id)).event
        assert isinstance(state, Snapshot)  # noqa: S101 - what a snapshot is
        if not any(text.final for text in state.messages):
            self._journal.append(lease, [MessageStop(final=True)])
        finished = RunFinished("failed", state.output, state.usage, failure, time.time())
        await self._journal.seal(lease, finished)
        return finished

    def _ended(self, run: Run, finished: RunFinished) -> None:
        if self._on_end is not None:
            self._on_end(run, finished)
