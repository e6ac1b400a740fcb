"""Sequences as a service: keeps their versions, starts instances, signals them, and goes on with those of dead
processes. Viewers watch an instance's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tailrace.errors import JournalError, RunNotFound, RunSealed
from tailrace.events import AnyEvent, InstanceState, RunFailure, RunFinished, Snapshot, StepState
from tailrace.flows.definition.definition import Definition, DefinitionError, parsed
from tailrace.flows.definition.graph import Graph, graph_of, node_states
from tailrace.flows.definition.public_ids import DEFINITION_KIND, public_form, public_id, run_id_of
from tailrace.flows.definition.sequence_store import SequenceStore, SequenceVersion
from tailrace.flows.definition.validate import mistakes_in, unknown_models
from tailrace.flows.engine.instance_events import InstanceEvent, instance_events
from tailrace.flows.engine.instance_state import instance_state
from tailrace.flows.engine.plan import CANCEL, RESUME, Plan, facts_to_keep
from tailrace.flows.engine.runner import WATCH, InstanceRunner, Surroundings
from tailrace.flows.schema.whole_value import NotChecked, load_schema, value_errors
from tailrace.flows.steps.base import Handlers, waiting_names
from tailrace.journal.fold import SEQUENCE
from tailrace.messages import JsonObject, Usage
from tailrace.ports import ENDED, Durability, Journal, NewRun, Run, RunState, Signal
from tailrace.providers.open_attempt import open_attempts
from tailrace.providers.prices import ListPrices, Prices
from tailrace.runs.host import OnEnd, RunHost
from tailrace.runs.lease import LEASE_S
from tailrace.runs.recovery import ClaimedRun

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
    requester: str = ""  # the name of the key that started it
    is_admin: bool = False  # its steps may write to the conversations of platforms


class Instance(msgspec.Struct, frozen=True):
    """An instance as it is now. `id` is its public one: `ins_…`. `outputs` are by block id; those of blocks that hold
    others are among them."""

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


class InstanceGraph(Graph, frozen=True, kw_only=True):
    """The graph of an instance with the states of its nodes. A node without a state has not begun, or holds others."""

    states: dict[str, StepState]


class FlowService(RunHost[InstanceRunner]):
    """The sequences of a journal, and the instances of this process."""

    def __init__(  # noqa: PLR0913 - one keyword per collaborator
        self,
        journal: Journal,
        handlers: Handlers,
        *,
        owner: str,
        directory: Path,
        environment: Mapping[str, str | None] | None = None,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.time,
        durability: Durability = "committed",
        on_end: OnEnd | None = None,
        prices: Prices | None = None,
    ) -> None:
        """`environment` is what `{{env.X}}` may show: the variables of `flows.env_allow`, None where one is not set,
        and no others. `prices` are by default those of the list alone."""
        super().__init__(journal, SEQUENCE, owner=owner, log=log, lease_s=lease_s, clock=clock, on_end=on_end)
        self.handlers = self._handlers = handlers
        self._directory = directory
        self._environment = dict(environment or {})
        self._durability: Durability = durability
        self._waiting = waiting_names(handlers)
        self._prices: Prices = prices or ListPrices()
        self.library = SequenceStore(journal, owner)

    # ── sequences ────────────────────────────────────────────────────────────────────────────────────────────

    def check(self, definition: Definition) -> None:
        """Raises `DefinitionError`."""
        for mistake in self.mistakes(definition):
            raise mistake

    def mistakes(self, definition: Definition) -> Iterator[DefinitionError]:
        """Every mistake that `check` would raise, one after the other."""
        prices = self._prices.has_any()
        return mistakes_in(definition, self._handlers, env_allow=self._environment, prices=prices)

    def unknown_models(self, definition: Definition) -> Iterator[DefinitionError]:
        """What `check` lets pass, and a run in this process would fail by."""
        return unknown_models(definition, self._handlers)

    async def create_sequence(self, definition: Definition) -> SequenceVersion:
        """Raises `DefinitionError`."""
        await asyncio.to_thread(self.check, await self.library.written_out(definition))
        return await self.library.add(definition)

    # ── instances ────────────────────────────────────────────────────────────────────────────────────────────

    async def start(
        self,
        sequence: SequenceVersion | Definition,
        given: JsonObject | None = None,
        *,
        dry_run: bool = False,
        idempotency_key: str = "",
        requester: str = "",
        is_admin: bool = False,
    ) -> Run:
        """An instance that has begun; it goes on whether or not anything watches it. With a known idempotency key, the
        instance that has it. Raises `DefinitionError`."""
        version = sequence if isinstance(sequence, SequenceVersion) else SequenceVersion("", 0, sequence)
        definition = await self.library.written_out(version.definition)
        if not version.id:
            await asyncio.to_thread(self.check, definition)
        given = given or {}
        await _check_input(definition, given)
        spec = InstanceSpec(
            definition, given, version.id, version.version, dry_run, requester=requester, is_admin=is_admin
        )
        return await self._create(spec, idempotency_key)

    async def _create(self, spec: InstanceSpec, idempotency_key: str, facts: Sequence[AnyEvent] = ()) -> Run:
        new = NewRun(
            SEQUENCE,
            input=msgspec.to_builtins(spec),
            session=f"instances/{spec.definition.name}",
            idempotency_key=f"instance/{idempotency_key}" if idempotency_key else "",
            durability=self._durability,
        )
        return await self.start_run(new, facts, partial(self._runner, spec))

    async def instance(self, instance_id: str) -> Instance:
        """Raises `RunNotFound`."""
        run = await self.get(instance_id)
        runner = self.execution_of(run.id)
        if runner is not None and runner.ending:  # its state and the reason for it are one write (M154)
            await self.left(run.id)
            run, runner = await self.get(run.id), None
        spec, finished = _spec_of(run), run.finished
        if runner is not None and finished is None:
            plan = runner.plan
        else:
            plan = self._plan(spec)
            facts = await self._journal.facts(run.id)
            plan.replay(facts)
            if isinstance(last := facts[-1].event, RunFinished):  # it may have ended since `run` was read
                finished = last
        return Instance(
            id=public_id(run),
            state=instance_state(run, plan.known_state, finished),
            name=spec.definition.name,
            outputs=plan.outputs,
            sequence_id=public_form(spec.sequence_id, DEFINITION_KIND),
            version=spec.version,
            input=spec.input,
            usage=plan.usage,
            error=finished.error if finished is not None else run.parked,
            dry_run=spec.dry_run,
            retry_of=public_form(spec.retry_of, SEQUENCE),
            created_at=run.created_at,
            finished_at=finished.at if finished is not None else None,
        )

    async def graph(self, instance_id: str) -> InstanceGraph:
        """Raises `RunNotFound`."""
        run = await self.get(instance_id)
        drawn = graph_of(_spec_of(run).definition)
        folded = (await self._journal.snapshot(run.id)).event
        steps = folded.steps if isinstance(folded, Snapshot) else ()
        states = node_states((step.block_id, step.state) for step in steps)
        return InstanceGraph(**msgspec.structs.asdict(drawn), states=states)

    async def failed(self, *, limit: int = 50, before: str | None = None) -> list[Run]:
        """Instances that ended in a failure, newest first."""
        states: tuple[RunState, ...] = ("failed", "parked")
        return await self._journal.runs(kind=SEQUENCE, states=states, limit=limit, before=_run_id(before))

    async def instances(self, *, limit: int = 50, before: str | None = None) -> list[Run]:
        """Newest first."""
        return await self._journal.runs(kind=SEQUENCE, limit=limit, before=_run_id(before))

    async def retry(self, instance_id: str, *, requester: str = "", is_admin: bool = False) -> Run:
        """A new instance that goes on from the step at which this one failed: what has finished is not run again.
        Asked twice, it is the same one. Raises `DefinitionError` for one that has not failed."""
        run = await self.get(instance_id)
        if run.state != "failed":
            raise DefinitionError("$", f"instance {public_id(run)} has not failed: it is {run.state}")
        spec = _spec_of(run)
        facts = facts_to_keep(spec.definition, spec.input, await self._journal.facts(run.id))
        again = msgspec.structs.replace(spec, retry_of=public_id(run), requester=requester, is_admin=is_admin)
        return await self._create(again, f"retry/{run.id}", facts)

    async def signal(self, instance_id: str, name: str, payload: JsonObject | None = None, *, by: str = "") -> None:
        """Signals the instance, in whichever process it is. Raises `RunSealed` when it has ended."""
        run = await self.get(instance_id)
        if name == CANCEL and run.id not in self.running:
            await self._stop_elsewhere(run.id, by)
            return
        resumes = run.state == "parked" and name == RESUME
        if resumes:
            await self._journal.unpark(run.id)
        await self._journal.signal(run.id, Signal(name, payload or {}, by))
        if resumes:
            await self.recover()

    async def finished(self, instance_id: str) -> RunFinished:
        """How the instance ended, once it has. Raises `RunParked` for one that is set aside."""
        return await super().finished((await self.get(instance_id)).id)

    async def watch(self, instance_id: str, *, after: int = 0) -> AsyncGenerator[list[InstanceEvent], None]:
        """What has happened after the cursor, then whatever happens, until the end. Raises `RunNotFound`,
        `CursorAhead`."""
        async with self.watched(instance_id):
            async for batch in self._journal.tail(run_id_of(instance_id), after=after):
                if events := instance_events(batch):
                    yield events

    @asynccontextmanager
    async def watched(self, instance_id: str) -> AsyncGenerator[None, None]:
        """For a viewer of the instance's log: only while one is here does the log get a model's answer piece by piece.
        Raises `RunNotFound`."""
        run = await self.get(instance_id)
        runner = self.execution_of(run.id)
        if runner is not None:
            runner.audience.join()
        elif run.state not in ENDED:
            with contextlib.suppress(RunSealed):
                await self._journal.signal(run.id, Signal(WATCH))  # for the process that executes the instance
        del run  # a viewer may stay for long
        try:
            yield
        finally:
            if runner is not None:
                runner.audience.leave()

    # ── execution ────────────────────────────────────────────────────────────────────────────────────────────

    def _plan(self, spec: InstanceSpec) -> Plan:
        return Plan(spec.definition, spec.input, dry_run=spec.dry_run, waiting=self._waiting)

    def _execution(self, claimed: ClaimedRun) -> InstanceRunner:
        return self._runner(_spec_of(claimed.run), claimed)

    def _runner(self, spec: InstanceSpec, claimed: ClaimedRun) -> InstanceRunner:
        plan = self._plan(spec)
        plan.replay(claimed.entries)
        surroundings = Surroundings(
            handlers=self._handlers,
            directory=self._directory,
            environment={name: value for name, value in self._environment.items() if value is not None},
            budget=spec.definition.budget,
            prices=self._prices,
            dry_run=spec.dry_run,
            requester=spec.requester,
            is_admin=spec.is_admin,
            clock=self._clock,
        )
        return InstanceRunner(self._journal, claimed.lease, plan, surroundings, left=open_attempts(claimed.entries))

    def hand_over_run(self, run_id: str, why: str) -> bool:
        """The step waits for the end of this process; other steps of the instance are let end until then."""
        if not self._can_hand_over(run_id):
            return False
        log.info("a step of instance %s %s, and is handed over to the next process", run_id, why)
        return True

    def _failure_of(self, error: Exception) -> RunFailure:
        return RunFailure("permanent", f"{type(error).__name__}: {error}", "internal")

    async def get(self, instance_id: str) -> Run:
        """The instance's run, by its public id or the run's own. Raises `RunNotFound`."""
        try:
            run = await self._journal.get(run_id_of(instance_id))
        except RunNotFound as exc:
            raise RunNotFound(f"there is no instance {instance_id}") from exc
        if run.new.kind != SEQUENCE:
            raise RunNotFound(f"there is no instance {instance_id}")
        return run


def _run_id(public: str | None) -> str | None:
    return run_id_of(public) if public is not None else None


def _spec_of(run: Run) -> InstanceSpec:
    fields: dict[str, Any] = dict(run.new.input)
    try:
        definition = parsed(fields.pop("definition"))
        return InstanceSpec(definition=definition, **fields)
    except (DefinitionError, KeyError, TypeError) as exc:
        raise JournalError(f"instance {run.id} cannot be read: {exc}") from exc


async def _check_input(definition: Definition, given: JsonObject) -> None:
    if definition.input_schema is None:
        return
    try:
        errors = await value_errors(await load_schema(definition.input_schema), given)
    except NotChecked as exc:
        raise DefinitionError("$.input", str(exc)) from exc
    if errors:
        raise DefinitionError("$.input", "; ".join(errors))
