"""Sequences for many: keeps their versions, starts instances, lets them run whoever watches, and goes on after a crash.

Owns the tasks in which instances run. Whoever wants to see one watches its log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tailrace.errors import JournalError, RunNotFound, RunSealed, StaleEpoch
from tailrace.events import AnyEvent, InstanceState, RunFailure, RunFinished, Snapshot
from tailrace.flows.definition.definition import Definition, DefinitionError, parsed
from tailrace.flows.definition.sequence_store import SequenceStore, SequenceVersion
from tailrace.flows.definition.validate import check_definition
from tailrace.flows.engine.instance_events import ENDINGS, InstanceEvent, instance_events
from tailrace.flows.engine.plan import CANCEL, RESUME, Plan, facts_to_keep
from tailrace.flows.engine.runner import WATCH, InstanceRunner, Surroundings
from tailrace.flows.schema.schema import Schema
from tailrace.flows.steps.base import Handlers, waiting_names
from tailrace.journal.fold import SEQUENCE
from tailrace.messages import JsonObject, Usage
from tailrace.ports import ENDED, Durability, Journal, Lease, NewRun, Run, RunState, Signal
from tailrace.runs.lease import held
from tailrace.runs.recovery import recover, stop

log = logging.getLogger("tailrace.flows")


class InstanceSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an instance is made from, stored with its run: any process can go on with it, and no later version of the
    sequence changes it."""

    definition: Definition
    input: JsonObject = {}
    sequence_id: str = ""
    version: int = 0
    dry_run: bool = False
    retry_of: str = ""


class Instance(msgspec.Struct, frozen=True):
    """An instance as it is now. `outputs` are by block id; those of blocks that hold others are among them."""

    id: str
    state: InstanceState
    name: str
    outputs: JsonObject
    sequence_id: str = ""
    version: int = 0
    input: JsonObject = {}
    usage: Usage = Usage()
    error: RunFailure | None = None
    dry_run: bool = False
    retry_of: str = ""
    created_at: float = 0.0
    finished_at: float | None = None


class FlowService:
    """One per process. Use it as an async context manager: leaving cancels what runs and gives the runs back."""

    def __init__(
        self,
        journal: Journal,
        handlers: Handlers,
        *,
        owner: str,
        directory: Path,
        environment: Mapping[str, str | None] | None = None,
        lease_s: float = 30.0,
        clock: Callable[[], float] = time.time,
        durability: Durability = "committed",
    ) -> None:
        """`environment` is what `{{env.X}}` may show: the variables of `flows.env_allow`, None where one is not set,
        and no others."""
        self._journal = journal
        self._handlers = handlers
        self._owner = owner
        self._directory = directory
        self._environment = dict(environment or {})
        self._lease_s = lease_s
        self._clock = clock
        self._durability: Durability = durability
        self._waiting = waiting_names(handlers)
        self.library = SequenceStore(journal, owner)
        self._runners: dict[str, InstanceRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks.values():
            task.cancel()
        await self._stack.aclose()

    # ── sequences ────────────────────────────────────────────────────────────────────────────────────────────

    def check(self, definition: Definition) -> None:
        """Raises `DefinitionError`."""
        check_definition(definition, self._handlers, env_allow=self._environment)

    async def create_sequence(self, definition: Definition) -> SequenceVersion:
        """Raises `DefinitionError`."""
        self.check(await self.library.written_out(definition))
        return await self.library.add(definition)

    # ── instances ────────────────────────────────────────────────────────────────────────────────────────────

    async def start(
        self,
        sequence: SequenceVersion | Definition,
        given: JsonObject | None = None,
        *,
        dry_run: bool = False,
        idempotency_key: str = "",
    ) -> Run:
        """An instance that has begun; it goes on whoever watches. With a known idempotency key, the one that has it.
        Raises `DefinitionError`."""
        version = sequence if isinstance(sequence, SequenceVersion) else SequenceVersion("", 0, sequence)
        definition = await self.library.written_out(version.definition)
        if not version.id:
            self.check(definition)
        given = given or {}
        _check_input(definition, given)
        spec = InstanceSpec(definition, given, version.id, version.version, dry_run)
        return await self._create(spec, idempotency_key)

    async def _create(self, spec: InstanceSpec, idempotency_key: str, facts: Collection[AnyEvent] = ()) -> Run:
        new = NewRun(
            SEQUENCE,
            input=msgspec.to_builtins(spec),
            session=f"instances/{spec.definition.name}",
            idempotency_key=f"instance/{idempotency_key}" if idempotency_key else "",
            durability=self._durability,
        )
        run, lease = await self._journal.start(new, self._owner, lease_s=self._lease_s)
        if lease is not None:
            plan = self._plan(spec)
            if facts:
                self._journal.append(lease, tuple(facts))
                for fact in facts:
                    plan.apply(fact)
            self._spawn(run, lease, spec, plan, begun=False)
        return run

    async def instance(self, instance_id: str) -> Instance:
        """Raises `RunNotFound`."""
        run = await self._get(instance_id)
        spec = _spec_of(run)
        runner = self._runners.get(instance_id)
        if runner is not None and run.finished is None:
            plan = runner.plan
        else:
            plan = self._plan(spec)
            plan.replay(await self._journal.facts(instance_id))
        return Instance(
            id=run.id,
            state=_state_of(run, plan),
            name=spec.definition.name,
            outputs=plan.outputs,
            sequence_id=spec.sequence_id,
            version=spec.version,
            input=spec.input,
            usage=plan.usage,
            error=run.finished.error if run.finished is not None else run.parked,
            dry_run=spec.dry_run,
            retry_of=spec.retry_of,
            created_at=run.created_at,
            finished_at=run.finished.at if run.finished is not None else None,
        )

    async def failed(self, *, limit: int = 50, before: str | None = None) -> list[Run]:
        """Instances that ended in a failure, newest first."""
        states: tuple[RunState, ...] = ("failed", "parked")
        return await self._journal.runs(kind=SEQUENCE, states=states, limit=limit, before=before)

    async def instances(self, *, limit: int = 50, before: str | None = None) -> list[Run]:
        """Newest first."""
        return await self._journal.runs(kind=SEQUENCE, limit=limit, before=before)

    async def retry(self, instance_id: str) -> Run:
        """A new instance that goes on from the step at which this one failed: what has finished is not run again.
        Asked twice, it is the same one. Raises `DefinitionError` for one that has not failed."""
        run = await self._get(instance_id)
        if run.state != "failed":
            raise DefinitionError("$", f"instance {instance_id} has not failed: it is {run.state}")
        spec = _spec_of(run)
        facts = facts_to_keep(spec.definition, spec.input, await self._journal.facts(instance_id))
        again = msgspec.structs.replace(spec, retry_of=instance_id)
        return await self._create(again, f"retry/{instance_id}", facts)

    async def signal(self, instance_id: str, name: str, payload: JsonObject | None = None, *, by: str = "") -> None:
        """Speaks to the instance, in whichever process it is. Raises `RunSealed` when it has ended."""
        run = await self._get(instance_id)
        if run.state == "parked" and name == RESUME:
            await self._journal.unpark(instance_id)
            await self._journal.signal(instance_id, Signal(name, payload or {}, by))
            await self.recover()
            return
        if name == CANCEL and instance_id not in self._tasks:
            await stop(self._journal, instance_id, self._owner, at=self._clock(), by=by)
            return
        await self._journal.signal(instance_id, Signal(name, payload or {}, by))
        if (runner := self._runners.get(instance_id)) is not None:
            runner.listen()

    async def finished(self, instance_id: str) -> RunFinished:
        """How the instance ended, once it has."""
        run = await self._get(instance_id)
        async for _ in self._journal.tail(instance_id, after=run.last_seq):
            pass
        run = await self._get(instance_id)
        if run.finished is None:
            raise JournalError(f"instance {instance_id} has not ended")
        return run.finished

    async def watch(self, instance_id: str, *, after: int = 0) -> AsyncGenerator[list[InstanceEvent], None]:
        """What has happened after the cursor, then whatever happens, until the end. While anybody is here, and only
        then, models that stream are heard word by word. Raises `RunNotFound`, `CursorAhead`."""
        run = await self._get(instance_id)
        runner = self._runners.get(instance_id)
        if runner is not None:
            runner.audience.join()
        elif run.state not in ENDED:
            await self._ask_to_speak(instance_id)
        try:
            async for batch in self._journal.tail(instance_id, after=after):
                if events := instance_events(batch):
                    yield events
        finally:
            if runner is not None:
                runner.audience.leave()

    async def _ask_to_speak(self, instance_id: str) -> None:
        """Whoever executes it, in another process, is told that somebody watches."""
        try:
            await self._journal.signal(instance_id, Signal(WATCH))
        except RunSealed:
            return

    # ── execution ────────────────────────────────────────────────────────────────────────────────────────────

    async def recover(self) -> list[str]:
        """Goes on with the unfinished instances of dead processes; returns them."""
        found: list[str] = []
        async for orphan in recover(self._journal, self._owner, lease_s=self._lease_s, kind=SEQUENCE):
            if orphan.run.id in self._tasks:
                continue
            spec = _spec_of(orphan.run)
            plan = self._plan(spec)
            plan.replay(orphan.facts)
            self._spawn(orphan.run, orphan.lease, spec, plan, begun=True)
            found.append(orphan.run.id)
        return found

    async def drain(self, timeout_s: float) -> None:
        """Lets what runs come to its end, for so long. What has not by then is given back when the service ends."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=timeout_s)

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def _plan(self, spec: InstanceSpec) -> Plan:
        return Plan(spec.definition, spec.input, dry_run=spec.dry_run, waiting=self._waiting)

    def _spawn(self, run: Run, lease: Lease, spec: InstanceSpec, plan: Plan, *, begun: bool) -> None:
        surroundings = Surroundings(
            handlers=self._handlers,
            directory=self._directory,
            environment={name: value for name, value in self._environment.items() if value is not None},
            budget=spec.definition.budget,
            dry_run=spec.dry_run,
            clock=self._clock,
        )
        runner = InstanceRunner(self._journal, lease, plan, surroundings, begun=begun)
        self._runners[run.id] = runner
        task = self._group.create_task(self._execute(runner, lease), name=run.id)
        self._tasks[run.id] = task
        task.add_done_callback(lambda _: self._forget(run.id))

    def _forget(self, run_id: str) -> None:
        self._tasks.pop(run_id, None)
        self._runners.pop(run_id, None)

    async def _execute(self, runner: InstanceRunner, lease: Lease) -> None:
        async with held(self._journal, lease, lease_s=self._lease_s):
            try:
                await runner.run()
            except StaleEpoch:
                log.warning("instance %s was taken over by another process", lease.run_id)
            except JournalError as exc:
                log.error("instance %s cannot be written: %s", lease.run_id, exc)  # noqa: TRY400 - no bug of ours
            except Exception as exc:  # the top of the task: whatever it is, the instance ends and says so
                log.exception("instance %s failed", lease.run_id)
                await self._fail(lease, RunFailure("permanent", f"{type(exc).__name__}: {exc}", "internal"))

    async def _fail(self, lease: Lease, failure: RunFailure) -> None:
        match (await self._journal.snapshot(lease.run_id)).event:
            case Snapshot(output=output, usage=usage):
                await self._journal.seal(lease, RunFinished("failed", output, usage, failure, self._clock()))
            case _:
                pass

    async def _get(self, instance_id: str) -> Run:
        run = await self._journal.get(instance_id)
        if run.new.kind != SEQUENCE:
            raise RunNotFound(f"there is no instance {instance_id}")
        return run


def _spec_of(run: Run) -> InstanceSpec:
    fields: dict[str, Any] = dict(run.new.input)
    try:
        definition = parsed(fields.pop("definition"))
        return InstanceSpec(definition=definition, **fields)
    except (DefinitionError, KeyError, TypeError) as exc:
        raise JournalError(f"instance {run.id} cannot be read: {exc}") from exc


def _state_of(run: Run, plan: Plan) -> InstanceState:
    if run.finished is not None:
        return ENDINGS[run.finished.status]
    if run.state == "parked":
        return "paused"  # until somebody says `resume`
    return plan.known_state or "scheduled"


def _check_input(definition: Definition, given: JsonObject) -> None:
    if definition.input_schema is not None and (errors := Schema(definition.input_schema).errors(given)):
        raise DefinitionError("$.input", "; ".join(errors))
